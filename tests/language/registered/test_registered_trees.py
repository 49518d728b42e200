"""A text whose tree is another text's with its own constants says what it says when it is parsed by itself."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import pytest
from sqlglot import exp
from sqlglot.tokenizer_core import Token

from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import parse_tokens
from errata.language.registered import read as reading
from errata.language.registered import trees
from errata.language.registered.trees import KnownTrees
from errata.model.registered import RegisteredPlan
from fixtures.chance import seeds
from fixtures.registered.streams import STREAMS
from fixtures.registered.texts import random_text

Parse = Callable[[SqlText, Sequence[Token]], exp.Query]
CONSTANT = re.compile(r"'[^']*'|(?<![\w.'])\d+(?:\.\d+)?(?:[eE]\d+)?(?![\w.'])")
OTHERS = [
    "7",
    "0",
    "12345678901234567890",
    "1.5",
    "'x'",
    "''",
    "'2026-01-01 00:00:00'",
    "'2026-13-01'",
    "3e2",
    "'it''s'",
]


def outcome(text: str, parse: Parse) -> RegisteredPlan | str:
    """The plan of a text, or why it is refused, with the place."""
    try:
        return reading._read(SqlText(text, "q"), STREAMS, (), parse)
    except LanguageError as error:
        return str(error)


def alike(drawn: random.Random, text: str) -> str:
    """The text with other constants, some of which cannot be."""
    return CONSTANT.sub(lambda found: drawn.choice([found[0], found[0], drawn.choice(OTHERS)]), text)


@pytest.mark.parametrize("seed", seeds(__name__, 4))
def test_a_text_says_the_same_whatever_was_read_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(seed)
    monkeypatch.setattr(reading, "_TREES", KnownTrees())
    plans = 0
    for _ in range(40):
        first = random_text(drawn).text
        for text in (first, *(alike(drawn, first) for _ in range(4)), first):
            wanted = outcome(text, parse_tokens)
            try:
                found: RegisteredPlan | str = reading.read_registered(text, STREAMS, where="q")
            except LanguageError as error:
                found = str(error)
            assert found == wanted, text
            plans += isinstance(wanted, RegisteredPlan)
    assert plans > 80


def test_texts_of_one_shape_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(text: SqlText, tokens: Sequence[Token]) -> exp.Query:
        parsed.append(text.sql)
        return parse_tokens(text, tokens)

    monkeypatch.setattr(trees, "parse_tokens", counted)
    known = KnownTrees()
    stream = STREAMS["trades"]
    text = f"SELECT * FROM trades WHERE {stream.key[0]} = {{}} BEGIN (NOW - '1 hour') END (NOW)"
    found = [outcome(text.format(f"'{name}'"), known.parse) for name in ("a", "b", "c")]
    assert parsed == [text.format("'a'")]
    assert len({str(each) for each in found}) == 3


def test_shapes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MAX_SHAPES", 3)
    known = KnownTrees()
    for at in range(10):
        outcome(f"SELECT * FROM trades AS t{at} BEGIN (NOW - '1 hour') END (NOW)", known.parse)
    assert len(known._trees) == 3
