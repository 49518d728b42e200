"""TABLESAMPLE clauses, found among the tokens of a text and cut out before the rest is parsed as SQL.

    clause   = TABLESAMPLE ( number PERCENT ) | TABLESAMPLE function ( [argument {, argument}] )
    argument = number | text | NULL | TRUE | FALSE | column

A clause belongs to the name before it: that of a stream, or the alias behind one. Names are found again in the tree by
where they stand in the text, since cutting out tokens moves no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import tokenize
from errata.language.sampling import (
    CLAUSE,
    CLAUSE_ADVICE,
    UNIFORM,
    ColumnArgument,
    SampleArgument,
    SampleClause,
)

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_CONSTANTS: Mapping[str, SampleArgument] = {"NULL": None, "TRUE": True, "FALSE": False}
_STABLE_REASON = "whether a row is in a sample follows from its key, so that the same rows are read each time"


@dataclass(frozen=True)
class WrittenSample:
    """A clause in the text: its meaning, and its place."""

    clause: SampleClause
    place: tuple[int, int]


@dataclass
class SampleClauses:
    """The clauses of a text, by the start of the name that each belongs to."""

    by_name: Mapping[int, WrittenSample] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    """The clauses whose names have been read."""

    def behind(self, name: exp.Expression | None) -> WrittenSample | None:
        """The clause behind a name."""
        start = None if name is None else name.meta.get("start")
        if start is None or start not in self.by_name:
            return None
        self.read.add(start)
        return self.by_name[start]

    def check_read(self, text: SqlText) -> None:
        """Refuse clauses that no part of FROM has: nothing that is written may be ignored."""
        for start, written in self.by_name.items():
            if start not in self.read:
                raise text.mistake(
                    written.place,
                    f"{CLAUSE} has no place here",
                    "samples are of streams",
                    f"put it behind the name of a stream, within sliding(...) too: FROM quotes {CLAUSE} (10 PERCENT)",
                )


def split_samples(text: SqlText, tokens: Sequence[Token]) -> tuple[list[Token], SampleClauses]:
    """The tokens without the clauses, and the clauses."""
    kept: list[Token] = []
    found: dict[int, WrittenSample] = {}
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if not _begins_clause(tokens, at):
            kept.append(token)
            at += 1
            continue
        reader = _ClauseReader(text, tokens, at + 1)
        written = WrittenSample(reader.clause(), (token.start, tokens[reader.at - 1].end + 1))
        start = kept[-1].start if kept and kept[-1].token_type in _NAMES else -1
        if start in found:
            raise text.mistake(written.place, f"{CLAUSE} is there twice", how="keep one of them")
        found[start] = written
        at = reader.at
    return kept, SampleClauses(found)


def refuse_samples(text: SqlText, tokens: Sequence[Token], what: str) -> Sequence[Token]:
    """The tokens of a query that is kept up to date: in it a clause is refused."""
    for at, token in enumerate(tokens):
        if _begins_clause(tokens, at):
            raise text.mistake(
                (token.start, token.end + 1),
                f"{CLAUSE} is not part of {what}",
                "their answers are exact, and corrected where the past changes: an estimate is neither",
                "leave it out, or ask once: errata ask --sql '...'",
            )
    return tokens


def _begins_clause(tokens: Sequence[Token], at: int) -> bool:
    # A word after a dot is the name of a column, whatever else it means.
    after_dot = at > 0 and tokens[at - 1].token_type is TokenType.DOT
    return tokens[at].token_type is TokenType.TABLE_SAMPLE and not after_dot


def read_reduction(text: str, where: str) -> SampleClause:
    """A reduction by itself, as it stands behind TABLESAMPLE."""
    whole = SqlText(" ".join(("SELECT 1 FROM t", CLAUSE, text)), where)
    _, clauses = split_samples(whole, tokens := tokenize(whole))
    (written,) = clauses.by_name.values()
    if written.place[1] <= tokens[-1].end:
        raise whole.mistake(written.place[1], "this is not expected behind a reduction", how=CLAUSE_ADVICE)
    return written.clause


class _ClauseReader:
    """Reads one clause from the token behind TABLESAMPLE on."""

    def __init__(self, text: SqlText, tokens: Sequence[Token], at: int) -> None:
        self.text = text
        self.tokens = tokens
        self.at = at

    def clause(self) -> SampleClause:
        first = self._peek()
        in_brackets = first is not None and first.token_type is TokenType.L_PAREN
        clause = self._percentage() if in_brackets else self._call()
        behind = self._peek()
        if behind is not None and behind.text.upper() in ("REPEATABLE", "SEED"):
            raise self._mistake(f"{behind.text.upper()} is not part of {CLAUSE}", _STABLE_REASON, "leave it out")
        return clause

    def _peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _next(self, missing: str) -> Token:
        token = self._peek()
        if token is None:
            raise self._mistake(f"{missing} is missing behind {CLAUSE}")
        self.at += 1
        return token

    def _mistake(self, what: str, why: str | None = None, how: str | None = CLAUSE_ADVICE) -> LanguageError:
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return self.text.mistake((token.start, token.end + 1), what, why, how)

    def _percentage(self) -> SampleClause:
        self._next("(")
        place = self.at
        value = self._value(self._next("a percentage"))
        unit = self._next("PERCENT")
        if unit.text.upper() != "PERCENT":
            self.at = place
            told = unit.text.upper()
            why = _STABLE_REASON if told in ("ROWS", "OUT") else None
            raise self._mistake("a sample is a share of the rows here, in PERCENT", why)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.at = place
            raise self._mistake("a percentage is a number")
        self._close()
        return SampleClause(UNIFORM, (value / 100,))

    def _call(self) -> SampleClause:
        name = self._next("the name of a reduction")
        opening = self._peek()
        if opening is None or opening.token_type is not TokenType.L_PAREN or not name.text.isidentifier():
            self.at -= 1
            raise self._mistake(f"a reduction with its arguments is expected behind {CLAUSE}")
        self.at += 1
        arguments: list[SampleArgument] = []
        closing = self._peek()
        if closing is not None and closing.token_type is TokenType.R_PAREN:
            self.at += 1
            return SampleClause(name.text, ())
        while True:
            arguments.append(self._value(self._next("an argument")))
            between = self._peek()
            if between is None or between.token_type is not TokenType.COMMA:
                break
            self.at += 1
        self._close()
        return SampleClause(name.text, tuple(arguments))

    def _close(self) -> None:
        token = self._next(")")
        if token.token_type is not TokenType.R_PAREN:
            self.at -= 1
            raise self._mistake(") is missing before this")

    def _value(self, token: Token) -> SampleArgument:
        if token.token_type is TokenType.DASH:
            value = self._value(self._next("a number"))
            if isinstance(value, bool) or not isinstance(value, int | float):
                self.at -= 1
                raise self._mistake("a number is missing behind -")
            return -value
        if token.token_type is TokenType.STRING:
            return token.text
        if token.token_type is TokenType.NUMBER:
            return self._number(token)
        if token.token_type is not TokenType.IDENTIFIER and token.text.upper() in _CONSTANTS:
            return _CONSTANTS[token.text.upper()]
        if token.token_type in _NAMES or token.text.isidentifier():
            return ColumnArgument(token.text)
        self.at -= 1
        raise self._mistake("an argument of a reduction is a number, a text or the name of a column")

    def _number(self, token: Token) -> int | float:
        try:
            return int(token.text) if token.text.isdigit() else float(token.text)
        except (ValueError, OverflowError):
            self.at -= 1
            raise self._mistake(f"{token.text} is not a number here") from None
