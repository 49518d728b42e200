"""The rules that say when results are swept, and how they are read from text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from errata.errors import UsageError, candidates
from errata.model.instants import DAY, HOUR, MINUTE, parse_duration
from errata.model.numbers import DIGITS

DEEP = 20
"""Brackets are nested no more deeply than this."""

EXAMPLE = "queue >= 10 or age >= 30 minutes"

_CONDITIONS = ("queue", "age", "between")
_ALONE = ("always", "never")
_TOKEN = re.compile(r"[A-Za-z]+|[0-9][0-9_:]*|[<>=]+|\S")
_NUMBER = re.compile(r"[0-9]{1,12}")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Always:
    """As soon as there is anything."""


@dataclass(frozen=True, slots=True)
class Never:
    """Only when a person asks for it."""


@dataclass(frozen=True, slots=True)
class Queue:
    """When so many revisions have come."""

    least: int


@dataclass(frozen=True, slots=True)
class Age:
    """When the oldest of them came so many microseconds ago."""

    least: int


@dataclass(frozen=True, slots=True)
class Between:
    """At these times of day, UTC: from `start` on and before `end`, both in microseconds after midnight. With an end
    that is not later than the start it is over midnight."""

    start: int
    """0 or more, and less than a day."""
    end: int
    """More than 0, up to a whole day."""


@dataclass(frozen=True, slots=True)
class Either:
    """When one of them holds; two or more, and none is of this kind itself: `either` makes it so."""

    parts: tuple[Joint, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """When all of them hold; two or more, and none is of this kind itself: `both` makes it so."""

    parts: tuple[Joint, ...]


Condition = Queue | Age | Between
Joint = Condition | Either | Both
Rule = Always | Never | Joint


def either(parts: Sequence[Joint]) -> Joint:
    """What holds when one of these does."""
    flat = tuple(part for each in parts for part in (each.parts if isinstance(each, Either) else (each,)))
    return flat[0] if len(flat) == 1 else Either(flat)


def both(parts: Sequence[Joint]) -> Joint:
    """What holds when all of these do."""
    flat = tuple(part for each in parts for part in (each.parts if isinstance(each, Both) else (each,)))
    return flat[0] if len(flat) == 1 else Both(flat)


def read_rule(text: str) -> Rule:
    """The rule that a text says; what it cannot say is refused with its place."""
    return _Reader(text).whole()


def clock_time(micros: int) -> str:
    """A time of day as it is written: 01:00."""
    return f"{micros // HOUR:02}:{micros % HOUR // MINUTE:02}"


class _Reader:
    """The text, read from left to right: `and` binds more tightly than `or`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text))
        self._at = 0

    def whole(self) -> Rule:
        first = self._next
        if first in _ALONE:
            self._at += 1
            self._end(f"{first} stands alone")
            return Always() if first == "always" else Never()
        rule = self._either(0)
        self._end(candidates(self._next, ["and", "or"]))
        return rule

    @property
    def _next(self) -> str:
        """The next word or sign; behind the last one it is empty."""
        return self._tokens[self._at][0].lower() if self._at < len(self._tokens) else ""

    def _either(self, depth: int) -> Joint:
        parts = [self._both(depth)]
        while self._took("or"):
            parts.append(self._both(depth))
        return either(parts)

    def _both(self, depth: int) -> Joint:
        parts = [self._condition(depth)]
        while self._took("and"):
            parts.append(self._condition(depth))
        return both(parts)

    def _condition(self, depth: int) -> Joint:
        if self._took("queue"):
            self._must(">=", "write queue >= and a number of revisions, such as queue >= 10")
            return Queue(self._number())
        if self._took("age"):
            self._must(">=", "write age >= and a duration, such as age >= 30 minutes")
            return Age(self._duration())
        if self._took("between"):
            return self._between()
        if self._next == "(" and depth < DEEP:
            self._at += 1
            within = self._either(depth + 1)
            self._must(")", "close the bracket with ), or go on with and, or")
            return within
        raise self._refused(self._no_condition())

    def _no_condition(self) -> str:
        if self._next == "(":
            return f"nest brackets no more than {DEEP} deep"
        if self._next in _ALONE:
            return f"{self._next} stands alone, with nothing joined to it"
        # At the beginning the whole of it may be meant to be one word.
        known = [*_CONDITIONS, *(_ALONE if self._at == 0 else ())]
        return f"{candidates(self._next, known)}; an example is {EXAMPLE}"

    def _number(self) -> int:
        digits = self._next.replace("_", "")
        if not _NUMBER.fullmatch(digits) or len(digits) > DIGITS or int(digits) < 1:
            raise self._refused("write a whole number of 1 or more, such as queue >= 10")
        self._at += 1
        return int(digits)

    def _duration(self) -> int:
        """Numbers, each with its unit."""
        begun, parts = self._at, []
        while _NUMBER.fullmatch(self._next):
            parts.append(self._next)
            self._at += 1
            if self._next[:1].isalpha() and self._next not in {"and", "or"}:
                parts.append(self._next)
                self._at += 1
        try:
            micros = parse_duration(" ".join(parts))
        except UsageError as error:
            self._at = begun
            raise self._refused(error.how or "") from None
        if micros < 1:
            self._at = begun
            raise self._refused("write more than zero, or leave the condition out")
        return micros

    def _between(self) -> Between:
        start = self._hour(DAY - MINUTE)
        self._must("and", "write between, a time, and, another time: between 01:00 and 05:00")
        end = self._hour(DAY)
        if start == end:
            self._at -= 1
            raise self._refused(f"name two different times; the whole day is between 00:00 and {clock_time(DAY)}")
        return Between(start, end or DAY)

    def _hour(self, last: int) -> int:
        """A time of day up to the last one that may be meant."""
        found = _TIME.fullmatch(self._next)
        micros = int(found[1]) * HOUR + int(found[2]) * MINUTE if found else DAY
        if found is None or int(found[2]) > 59 or micros > last:
            raise self._refused(f"write a time of day, UTC, from 00:00 to {clock_time(last)}: between 01:00 and 05:00")
        self._at += 1
        return micros

    def _took(self, word: str) -> bool:
        found = self._next == word
        self._at += found
        return found

    def _must(self, sign: str, how: str) -> None:
        if not self._took(sign):
            raise self._refused(how)

    def _end(self, how: str) -> None:
        if self._at < len(self._tokens):
            raise self._refused(how)

    def _refused(self, how: str) -> UsageError:
        """That what comes next cannot stand where it does."""
        if self._at == len(self._tokens):
            return UsageError(f"something is missing at the end of {self._text!r}", how=how)
        found = self._tokens[self._at]
        return UsageError(f"{found[0]!r} cannot stand at character {found.start() + 1} of {self._text!r}", how=how)
