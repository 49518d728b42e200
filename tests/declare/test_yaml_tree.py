"""YAML that remembers where things stand."""

from __future__ import annotations

import pytest
import yaml

from errata.declare.yaml_tree import YamlList, YamlMapping, YamlNode, YamlScalar, parse_yaml
from errata.errors import UsageError


def table(text: str) -> YamlMapping:
    node = parse_yaml(text, "errata.yaml")
    assert isinstance(node, YamlMapping)
    return node


def mistake(text: str) -> str:
    with pytest.raises(UsageError) as raised:
        parse_yaml(text, "errata.yaml")
    return str(raised.value)


def plain(node: YamlNode) -> object:
    if isinstance(node, YamlMapping):
        return {name: plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, YamlList):
        return [plain(item) for item in node.items]
    return node.text


def test_keys_and_values_know_line_and_column() -> None:
    entry = table("a: 1\nbc:\n  - x\n  -   y\n").entries["bc"]
    assert (entry.line, entry.column) == (2, 1)
    assert isinstance(entry.value, YamlList)
    assert entry.value.items == (YamlScalar("x", 3, 5), YamlScalar("y", 4, 7))


def test_scalars_stay_as_they_are_written() -> None:
    read = plain(table("{a: yes, b: 1_000, c: 12:30, d: 2026-01-01, e: ~, f: , g: '~', h: 1e3}"))
    written = {"a": "yes", "b": "1_000", "c": "12:30", "d": "2026-01-01", "e": None, "f": None, "g": "~", "h": "1e3"}
    assert read == written


def test_anchors_and_merges() -> None:
    read = table("base: &b {x: 1, y: 2}\nsame: *b\nmore:\n  y: 3\n  <<: *b\n")
    assert plain(read) == {"base": {"x": "1", "y": "2"}, "same": {"x": "1", "y": "2"}, "more": {"x": "1", "y": "3"}}


def test_many_aliases_of_aliases_take_no_time() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert len(table("\n".join(lines)).entries) == 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "errata.yaml:3: key 'a' is written twice, first in line 1"),
        ("a: &x [*x]\n", "errata.yaml:1: an alias names what it is part of"),
        ("<<: 5\n", "errata.yaml:1: << does not name a mapping"),
        ("[a]: 1\n", "errata.yaml:1: a key is not a plain text"),
        ("", "errata.yaml: the file is empty"),
        ("a:\n\tb: 1\n", "errata.yaml:2: this is not YAML: found character '\\t' that cannot start any token"),
        ("a: 1\n---\nb: 2\n", "errata.yaml:2: this is not YAML: but found another document"),
        ("a: [1, 2\nb: 3\n", "errata.yaml:2: this is not YAML:"),
        ("a: *b\n", "errata.yaml:1: this is not YAML: found undefined alias 'b'"),
        ("a: \x07\n", "errata.yaml:1: this is not YAML: a character that cannot be in a text: '\\x07'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str) -> None:
    assert mistake(text).startswith(said)
    assert "how to mend" in mistake(text)


def test_a_variable_in_braces_without_quotes() -> None:
    assert "put quotes around a value with ${…}" in mistake("spark: {master: ${MASTER:-local}}\n")


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000 + "x", "{a: " * 3_000 + "1", "a: [" + "\n[" * 5_000])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    assert mistake(text).startswith("errata.yaml")


def test_both_ways_of_reading_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x {b: [1, 'two', \"th\\u00e9\"], c: ~}\n# é\nd:\n  - *x\n  - |\n    long\n    text\né: !!str 5\n"
    quickly = table(text)
    monkeypatch.setattr(yaml, "CSafeLoader", None)
    assert table(text) == quickly
    assert quickly.entries["é"].line == 8
