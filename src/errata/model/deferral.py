"""The rule that says when corrections are worked into results: its text, its conditions, and when it is met.

always | never | condition, with conditions `queue >= 10`, `age >= 30 minutes`, `between 01:00 and 05:00`,
joined by `and` and `or` with brackets; `and` binds more tightly than `or`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from errata.errors import UsageError, candidates_text
from errata.model.columns import MAX_DIGITS
from errata.model.time import DAY, HOUR, MINUTE, SECOND, format_duration, parse_duration

MAX_NESTING = 20
"""Depth of nested brackets at most; the parser is recursive."""

EXAMPLE_RULE = "queue >= 10 or age >= 30 minutes"

_CONDITIONS = ("queue", "age", "between")
_STANDALONE_WORDS = ("always", "never")
_TOKEN = re.compile(r"[A-Za-z]+|[0-9][0-9_:]*|[<>=]+|\S")
_NUMBER = re.compile(r"[0-9]{1,12}")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class AlwaysRule:
    """As soon as there is any correction."""


@dataclass(frozen=True, slots=True)
class NeverRule:
    """Only when a person runs `errata sweep`."""


@dataclass(frozen=True, slots=True)
class QueueCondition:
    """When at least `least` revisions wait."""

    least: int


@dataclass(frozen=True, slots=True)
class AgeCondition:
    """When the oldest of them has waited for at least `least` microseconds."""

    least: int


@dataclass(frozen=True, slots=True)
class TimeOfDayCondition:
    """At these times of day, UTC: from `start` on and before `end`, both in microseconds after midnight. An end that is
    not later than the start means the next day."""

    start: int
    """0 or more, and less than a day."""
    end: int
    """More than 0, up to a whole day."""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """When one of two or more conditions holds. None of them is an AnyOf itself: `any_of` flattens them."""

    parts: tuple[DeferralCondition, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """When all of two or more conditions hold. None of them is an AllOf itself: `all_of` flattens them."""

    parts: tuple[DeferralCondition, ...]


SimpleCondition = QueueCondition | AgeCondition | TimeOfDayCondition
DeferralCondition = SimpleCondition | AnyOf | AllOf
DeferralRule = AlwaysRule | NeverRule | DeferralCondition


def any_of(parts: Sequence[DeferralCondition]) -> DeferralCondition:
    """The condition that holds when one of these does."""
    flat = tuple(part for each in parts for part in (each.parts if isinstance(each, AnyOf) else (each,)))
    return flat[0] if len(flat) == 1 else AnyOf(flat)


def all_of(parts: Sequence[DeferralCondition]) -> DeferralCondition:
    """The condition that holds when all of these do."""
    flat = tuple(part for each in parts for part in (each.parts if isinstance(each, AllOf) else (each,)))
    return flat[0] if len(flat) == 1 else AllOf(flat)


def parse_rule(text: str) -> DeferralRule:
    """The rule in a text; a mistake is refused with its place."""
    return _RuleParser(text).whole()


def format_time_of_day(micros: int) -> str:
    """A time of day as it is written: 01:00."""
    return f"{micros // HOUR:02}:{micros % HOUR // MINUTE:02}"


class _RuleParser:
    """A recursive descent over the tokens of the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text))
        self._at = 0

    def whole(self) -> DeferralRule:
        first = self._next
        if first in _STANDALONE_WORDS:
            self._at += 1
            self._end(f"{first} stands alone")
            return AlwaysRule() if first == "always" else NeverRule()
        rule = self._either(0)
        self._end(candidates_text(self._next, ["and", "or"]))
        return rule

    @property
    def _next(self) -> str:
        """The next word or sign; behind the last one it is empty."""
        return self._tokens[self._at][0].lower() if self._at < len(self._tokens) else ""

    def _either(self, depth: int) -> DeferralCondition:
        parts = [self._both(depth)]
        while self._took("or"):
            parts.append(self._both(depth))
        return any_of(parts)

    def _both(self, depth: int) -> DeferralCondition:
        parts = [self._condition(depth)]
        while self._took("and"):
            parts.append(self._condition(depth))
        return all_of(parts)

    def _condition(self, depth: int) -> DeferralCondition:
        if self._took("queue"):
            self._must(">=", "write queue >= and a number of revisions, such as queue >= 10")
            return QueueCondition(self._number())
        if self._took("age"):
            self._must(">=", "write age >= and a duration, such as age >= 30 minutes")
            return AgeCondition(self._duration())
        if self._took("between"):
            return self._between()
        if self._next == "(" and depth < MAX_NESTING:
            self._at += 1
            within = self._either(depth + 1)
            self._must(")", "close the bracket with ), or go on with and, or")
            return within
        raise self._refused(self._no_condition())

    def _no_condition(self) -> str:
        if self._next == "(":
            return f"nest brackets no more than {MAX_NESTING} deep"
        if self._next in _STANDALONE_WORDS:
            return f"{self._next} stands alone, with nothing joined to it"
        # At the beginning the whole of it may be meant to be one word.
        known = [*_CONDITIONS, *(_STANDALONE_WORDS if self._at == 0 else ())]
        return f"{candidates_text(self._next, known)}; an example is {EXAMPLE_RULE}"

    def _number(self) -> int:
        digits = self._next.replace("_", "")
        if not _NUMBER.fullmatch(digits) or len(digits) > MAX_DIGITS or int(digits) < 1:
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

    def _between(self) -> TimeOfDayCondition:
        start = self._hour(DAY - MINUTE)
        self._must("and", "write between, a time, and, another time: between 01:00 and 05:00")
        end = self._hour(DAY)
        if start == end:
            self._at -= 1
            raise self._refused(
                f"name two different times; the whole day is between 00:00 and {format_time_of_day(DAY)}"
            )
        return TimeOfDayCondition(start, end or DAY)

    def _hour(self, last: int) -> int:
        """A time of day up to the last one that may be meant."""
        found = _TIME.fullmatch(self._next)
        micros = int(found[1]) * HOUR + int(found[2]) * MINUTE if found else DAY
        if found is None or int(found[2]) > 59 or micros > last:
            raise self._refused(
                f"write a time of day, UTC, from 00:00 to {format_time_of_day(last)}: between 01:00 and 05:00"
            )
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
        """The error that the next token cannot stand here."""
        if self._at == len(self._tokens):
            return UsageError(f"something is missing at the end of {self._text!r}", how=how)
        found = self._tokens[self._at]
        return UsageError(f"{found[0]!r} cannot stand at character {found.start() + 1} of {self._text!r}", how=how)


@dataclass(frozen=True, slots=True)
class _QueueSnapshot:
    """The number of waiting revisions, the age of the oldest, and the time."""

    queue: int
    age: int
    now: int


@dataclass(frozen=True, slots=True)
class Deferral:
    """The declared rule of a query or project."""

    rule: DeferralRule

    @classmethod
    def parse(cls, text: str) -> Deferral:
        """The rule in a text; a mistake is refused with its place."""
        return cls(parse_rule(text))

    def __str__(self) -> str:
        if isinstance(self.rule, AlwaysRule | NeverRule):
            return "always" if self.rule == AlwaysRule() else "never"
        return _condition_text(self.rule, _simple_text)

    def due(self, queue: int, age_micros: int, now_micros: int) -> bool:
        """Whether corrections are due: `queue` revisions wait, the oldest for `age_micros`. Whether there are any is
        not asked: `always` is always due."""
        return _is_met(self.rule, _QueueSnapshot(queue, age_micros, now_micros))

    def waits_for(self, queue: int, age_micros: int, now_micros: int) -> str:
        """What has to happen first, and the progress towards it, in words."""
        moment = _QueueSnapshot(queue, max(age_micros, 0), now_micros)
        if isinstance(self.rule, AlwaysRule | NeverRule):
            return "waits for nothing" if self.rule == AlwaysRule() else "waits for `errata sweep`"
        missing = _unmet_part(self.rule, moment)
        if missing is None:
            return "waits for nothing"
        # The number comes first, since the other conditions are about the same revisions.
        conditions = sorted(_simple_conditions(missing), key=lambda each: not isinstance(each, QueueCondition))
        stand = dict.fromkeys(_progress_text(each, moment) for each in conditions)
        return f"waits until {_condition_text(missing, _goal_text)}; {', '.join(stand)}"


DEFAULT_DEFERRAL = Deferral(AlwaysRule())
"""The rule where none is declared."""


def _is_met(rule: DeferralRule, moment: _QueueSnapshot) -> bool:
    match rule:
        case AlwaysRule() | NeverRule():
            return isinstance(rule, AlwaysRule)
        case QueueCondition(least):
            return moment.queue >= least
        case AgeCondition(least):
            return moment.age >= least
        case TimeOfDayCondition(start, end):
            time = moment.now % DAY
            return start <= time < end if start < end else time >= start or time < end
        case AnyOf(parts):
            return any(_is_met(each, moment) for each in parts)
        case AllOf(parts):
            return all(_is_met(each, moment) for each in parts)


def _unmet_part(joint: DeferralCondition, moment: _QueueSnapshot) -> DeferralCondition | None:
    """The part of the condition that does not hold yet; None: it holds."""
    if _is_met(joint, moment):
        return None
    if not isinstance(joint, AnyOf | AllOf):
        return joint
    parts = [part for each in joint.parts if (part := _unmet_part(each, moment)) is not None]
    return any_of(parts) if isinstance(joint, AnyOf) else all_of(parts)


def _simple_conditions(joint: DeferralCondition) -> list[SimpleCondition]:
    if isinstance(joint, AnyOf | AllOf):
        return [condition for each in joint.parts for condition in _simple_conditions(each)]
    return [joint]


def _condition_text(joint: DeferralCondition, said: Callable[[SimpleCondition], str]) -> str:
    match joint:
        case AnyOf(parts):
            return " or ".join(_condition_text(each, said) for each in parts)
        case AllOf(parts):
            texts = [(each, _condition_text(each, said)) for each in parts]
            return " and ".join(f"({text})" if isinstance(each, AnyOf) else text for each, text in texts)
        case QueueCondition() | AgeCondition() | TimeOfDayCondition():
            return said(joint)


def _simple_text(condition: SimpleCondition) -> str:
    match condition:
        case QueueCondition(least):
            return f"queue >= {least}"
        case AgeCondition(least):
            return f"age >= {format_duration(least)}"
        case TimeOfDayCondition(start, end):
            return f"between {format_time_of_day(start)} and {format_time_of_day(end)}"


def _goal_text(condition: SimpleCondition) -> str:
    match condition:
        case QueueCondition(least):
            return "1 revision has come" if least == 1 else f"{least} revisions have come"
        case AgeCondition(least):
            return f"one has waited {format_duration(least)}"
        case TimeOfDayCondition():
            return f"it is {_simple_text(condition)} UTC"


def _progress_text(condition: SimpleCondition, moment: _QueueSnapshot) -> str:
    """The progress towards a condition."""
    match condition:
        case QueueCondition():
            return {0: "none has", 1: "1 has"}.get(moment.queue, f"{moment.queue} have")
        case AgeCondition():
            return f"the oldest has waited {_rounded_duration(moment.age)}"
        case TimeOfDayCondition():
            return f"it is {format_time_of_day(moment.now % DAY)}"


def _rounded_duration(micros: int) -> str:
    """A duration in words, rounded down to a unit of which there are at least three."""
    unit = next((each for each in (DAY, HOUR, MINUTE) if micros >= 3 * each), SECOND)
    return format_duration(micros - micros % unit)
