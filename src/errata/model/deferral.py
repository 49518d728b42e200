"""When corrections are worked into a query's results: at once, or not before it is worth it or the hour is quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from errata.model.deferral_rule import (
    Age,
    Always,
    Between,
    Both,
    Condition,
    Either,
    Joint,
    Never,
    Queue,
    Rule,
    both,
    clock_time,
    either,
    read_rule,
)
from errata.model.instants import DAY, HOUR, MINUTE, SECOND, format_duration


@dataclass(frozen=True, slots=True)
class _Moment:
    """What waits, and what time it is."""

    queue: int
    age: int
    now: int


@dataclass(frozen=True, slots=True)
class Deferral:
    """When a query's results are swept, as it is declared."""

    rule: Rule

    @classmethod
    def parse(cls, text: str) -> Deferral:
        """The rule that a text says; what it cannot say is refused with its place."""
        return cls(read_rule(text))

    def __str__(self) -> str:
        if isinstance(self.rule, Always | Never):
            return "always" if self.rule == Always() else "never"
        return _joined(self.rule, _text)

    def due(self, queue: int, age_micros: int, now_micros: int) -> bool:
        """Whether it is time: `queue` revisions wait, the oldest of them for so long. Whether anything is there to be
        worked in at all is not asked: `always` is always due."""
        return _holds(self.rule, _Moment(queue, age_micros, now_micros))

    def waits_for(self, queue: int, age_micros: int, now_micros: int) -> str:
        """What has to happen first, and how things stand, in words."""
        moment = _Moment(queue, max(age_micros, 0), now_micros)
        if isinstance(self.rule, Always | Never):
            return "waits for nothing" if self.rule == Always() else "waits for `errata sweep`"
        missing = _missing(self.rule, moment)
        if missing is None:
            return "waits for nothing"
        # First how many have come: it is said as the answer to so many that are to come.
        conditions = sorted(_conditions(missing), key=lambda each: not isinstance(each, Queue))
        stand = dict.fromkeys(_standing(each, moment) for each in conditions)
        return f"waits until {_joined(missing, _goal)}; {', '.join(stand)}"


ALWAYS = Deferral(Always())
"""What holds where nothing is declared."""


def _holds(rule: Rule, moment: _Moment) -> bool:
    match rule:
        case Always() | Never():
            return isinstance(rule, Always)
        case Queue(least):
            return moment.queue >= least
        case Age(least):
            return moment.age >= least
        case Between(start, end):
            time = moment.now % DAY
            return start <= time < end if start < end else time >= start or time < end
        case Either(parts):
            return any(_holds(each, moment) for each in parts)
        case Both(parts):
            return all(_holds(each, moment) for each in parts)


def _missing(joint: Joint, moment: _Moment) -> Joint | None:
    """What of it does not hold yet; None: it holds."""
    if _holds(joint, moment):
        return None
    if not isinstance(joint, Either | Both):
        return joint
    parts = [part for each in joint.parts if (part := _missing(each, moment)) is not None]
    return either(parts) if isinstance(joint, Either) else both(parts)


def _conditions(joint: Joint) -> list[Condition]:
    if isinstance(joint, Either | Both):
        return [condition for each in joint.parts for condition in _conditions(each)]
    return [joint]


def _joined(joint: Joint, said: Callable[[Condition], str]) -> str:
    match joint:
        case Either(parts):
            return " or ".join(_joined(each, said) for each in parts)
        case Both(parts):
            texts = [(each, _joined(each, said)) for each in parts]
            return " and ".join(f"({text})" if isinstance(each, Either) else text for each, text in texts)
        case _:
            return said(joint)


def _text(condition: Condition) -> str:
    match condition:
        case Queue(least):
            return f"queue >= {least}"
        case Age(least):
            return f"age >= {format_duration(least)}"
        case Between(start, end):
            return f"between {clock_time(start)} and {clock_time(end)}"


def _goal(condition: Condition) -> str:
    match condition:
        case Queue(least):
            return "1 revision has come" if least == 1 else f"{least} revisions have come"
        case Age(least):
            return f"one has waited {format_duration(least)}"
        case Between():
            return f"it is {_text(condition)} UTC"


def _standing(condition: Condition, moment: _Moment) -> str:
    """How things stand with what is waited for."""
    match condition:
        case Queue():
            return {0: "none has", 1: "1 has"}.get(moment.queue, f"{moment.queue} have")
        case Age():
            return f"the oldest has waited {_about(moment.age)}"
        case Between():
            return f"it is {clock_time(moment.now % DAY)}"


def _about(micros: int) -> str:
    """A duration that has been reached, no finer than one wants to know it."""
    unit = next((each for each in (DAY, HOUR, MINUTE) if micros >= 3 * each), SECOND)
    return format_duration(micros - micros % unit)
