"""Variables in values."""

from __future__ import annotations

import pytest

from errata.declare.section import expand_variables
from errata.errors import UsageError

ENVIRON = {"A": "one", "EMPTY": "", "DOLLAR": "${A}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${A}/${A:-x}", "one/one"),
        ("${B:-two words}", "two words"),
        ("${B:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-default}", "default"),
        ("${B:-sqlite:///errata.db}", "sqlite:///errata.db"),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$${A}", "$one"),
        ("$A costs 5$", "$A costs 5$"),
        ("${DOLLAR}", "${A}"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expand_variables(text, ENVIRON) == expected


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(UsageError, match="environment variable B_2 is not set") as raised:
        expand_variables("x${B_2}", ENVIRON)
    assert "${B_2:-default}" in str(raised.value)


@pytest.mark.parametrize("text", ["${", "${A", "${}", "${1A}", "${A-b}", "${A:default}"])
def test_a_broken_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="begins no reference"):
        expand_variables(text, ENVIRON)
