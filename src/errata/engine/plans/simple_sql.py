"""The simple part of Spark's SQL read: names, constants, arithmetic, comparisons, conditions and calls."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache

import pyarrow as pa


class NotSimpleError(Exception):
    """Something is not of the simple part, or does not come out simply: it is Spark's to say what it comes to."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator or a function on arguments; a column (`name`) or a constant (`constant`)."""

    kind: str
    args: tuple[Node, ...] = ()
    text: str = ""
    """A column's name, or the type of a cast."""
    constant: pa.Scalar | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """What a column of a result is made of."""

    name: str
    node: Node


_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LDF])?)(?![\w.])|(?P<name>[A-Za-z_]\w*)|`(?P<quoted>(?:[^`]|``)+)`"
    r"|'(?P<string>(?:[^'\\]|\\.)*)'|(?P<symbol><=>|<=|>=|<>|[=<>+\-*/%(),]))",
    re.DOTALL,
)
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_BINARY = {"OR": 1, "AND": 2, **dict.fromkeys(_COMPARISONS, 4), "+": 6, "-": 6, "*": 7, "/": 7}
_ESCAPES = {"\\\\": "\\", "\\'": "'", "\\n": "\n", "\\r": "\r"}
_MOMENT = "%Y-%m-%d %H:%M:%S.%f"
_MEMO = 4096
"""Texts that are remembered: those of a query are the same from correction to correction."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The text of what may be a keyword or a symbol."""
        return self.text.upper() if self.kind == "name" else self.text if self.kind == "symbol" else ""


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise NotSimpleError(text)
        yield _Token(found.lastgroup, found[found.lastgroup])
        at = found.end()


@lru_cache(_MEMO)
def expression(text: str) -> Node:
    """An expression."""
    reading = _Reading(text)
    found = reading.expression()
    reading.ends()
    return found


@lru_cache(_MEMO)
def item(text: str) -> Item:
    """An expression with the name of the column that it makes; what is a column's name is its own."""
    reading = _Reading(text)
    node = reading.expression()
    name = node.text if node.kind == "column" else ""
    if reading.takes("AS"):
        name = reading.name()
    reading.ends()
    if not name:
        raise NotSimpleError(text)
    return Item(name, node)


class _Reading:
    """A text that is read from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def takes(self, word: str) -> bool:
        """Whether a keyword or symbol comes next; then it is passed."""
        found = self._at < len(self._tokens) and self._tokens[self._at].word == word
        self._at += found
        return found

    def must(self, *words: str) -> None:
        for word in words:
            if not self.takes(word):
                raise NotSimpleError(self._text)

    def ends(self) -> None:
        if self._at < len(self._tokens):
            raise NotSimpleError(self._text)

    def name(self) -> str:
        found = self._next()
        if found.kind not in ("name", "quoted"):
            raise NotSimpleError(self._text)
        return found.text.replace("``", "`") if found.kind == "quoted" else found.text

    def expression(self, strength: int = 0) -> Node:
        left = self._first()
        while self._at < len(self._tokens):
            word = self._tokens[self._at].word
            if word == "IS" and strength < _BINARY["="]:
                left = self._tested(left)
            elif word == "IN" and strength < _BINARY["="]:
                left = self._listed(left)
            elif _BINARY.get(word, -1) > strength:
                self._at += 1
                left = Node(word, (left, self.expression(_BINARY[word])))
            else:
                break
        return left

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise NotSimpleError(self._text)
        self._at += 1
        return self._tokens[self._at - 1]

    def _first(self) -> Node:
        token = self._next()
        match token.kind:
            case "number":
                return Node("constant", constant=_number(token.text))
            case "string":
                return Node("constant", constant=pa.scalar(_string(token.text)))
            case "quoted":
                return Node("column", text=token.text.replace("``", "`"))
            case "symbol":
                return self._signed(token.text)
        return self._worded(token)

    def _signed(self, symbol: str) -> Node:
        if symbol == "(":
            found = self.expression()
            self.must(")")
            return found
        if symbol == "-":
            return Node("negative", (self.expression(_BINARY["*"]),))
        raise NotSimpleError(self._text)

    def _worded(self, token: _Token) -> Node:
        if token.word in _NAMED:
            return Node("constant", constant=_NAMED[token.word])
        match token.word:
            case "NOT":
                return Node("NOT", (self.expression(_BINARY["AND"] + 1),))
            case "CASE":
                return self._cases()
            case "CAST":
                return self._cast()
            case "TIMESTAMP" | "DATE" as kind if self._string_comes:
                return Node("constant", constant=_moment(kind, self._next().text))
        return self._called(token.text) if self.takes("(") else Node("column", text=token.text)

    @property
    def _string_comes(self) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].kind == "string"

    def _tested(self, left: Node) -> Node:
        self.must("IS")
        negated = self.takes("NOT")
        self.must("NULL")
        found = Node("is_null", (left,))
        return Node("NOT", (found,)) if negated else found

    def _listed(self, left: Node) -> Node:
        self.must("IN", "(")
        found = Node("=", (left, self.expression()))
        while self.takes(","):
            found = Node("OR", (found, Node("=", (left, self.expression()))))
        self.must(")")
        return found

    def _cases(self) -> Node:
        parts = []
        while self.takes("WHEN"):
            parts.append(self.expression())
            self.must("THEN")
            parts.append(self.expression())
        parts.append(self.expression() if self.takes("ELSE") else Node("constant", constant=pa.scalar(None)))
        self.must("END")
        if len(parts) == 1:
            raise NotSimpleError(self._text)
        return Node("case", tuple(parts))

    def _cast(self) -> Node:
        self.must("(")
        arg = self.expression()
        self.must("AS")
        kind = self.name().upper()
        if self.takes("("):
            digits = self._next().text
            self.must(",")
            kind = f"{kind}({digits},{self._next().text})"
            self.must(")")
        self.must(")")
        if kind == "DOUBLE" and arg.constant == _INFINITE:
            return Node("constant", constant=pa.scalar(math.inf))
        return Node("cast", (arg,), kind)

    def _called(self, name: str) -> Node:
        args = [] if self.takes(")") else [self.expression()]
        if args:
            while self.takes(","):
                args.append(self.expression())
            self.must(")")
        name = name.lower()
        found = Node("case" if name == "if" and len(args) == _OF_IF else name, tuple(args))
        if self.takes("FILTER"):
            self.must("(", "WHERE")
            found = Node("only", (found, self.expression()))
            self.must(")")
        return found


_NAMED = {"NULL": pa.scalar(None), "TRUE": pa.scalar(True), "FALSE": pa.scalar(False)}
_OF_IF = 3
_INFINITE = pa.scalar("Infinity")


def _number(text: str) -> pa.Scalar:
    try:
        if text.isdigit():
            return pa.scalar(int(text), pa.int32())
        if text.endswith("L"):
            return pa.scalar(int(text[:-1]), pa.int64())
        if text.endswith("D") and not text.endswith("BD"):
            return pa.scalar(float(text[:-1]))
    except (ValueError, OverflowError, pa.ArrowInvalid) as error:
        raise NotSimpleError(text) from error
    raise NotSimpleError(text)


def _string(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        if found[0] not in _ESCAPES:
            raise NotSimpleError(text)
        return _ESCAPES[found[0]]

    return re.sub(r"\\.", plain, text, flags=re.DOTALL)


def _moment(kind: str, text: str) -> pa.Scalar:
    try:
        if kind == "DATE":
            return pa.scalar(date.fromisoformat(text))
        return pa.scalar(datetime.strptime(text, _MOMENT).replace(tzinfo=UTC), pa.timestamp("us", "UTC"))
    except ValueError as error:
        raise NotSimpleError(text) from error
