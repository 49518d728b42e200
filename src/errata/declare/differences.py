"""What applying a declaration would change, and what it would lose: that is refused, with the way to do it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from errata.errors import Refused
from errata.model.instants import format_duration
from errata.model.stream import Landing, Stream

_ANEW = "declare a new stream under another name and take the files in again"


@dataclass(frozen=True, slots=True)
class Create:
    """A stream that is declared and not yet there."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Change:
    """A stream whose declaration differs from the recorded one, and how, in words."""

    before: Stream
    after: Stream
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """A stream that is no longer declared."""

    name: str
    rows: int
    noun: str = "stream"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that would lose data or contradict what is there."""

    name: str
    what: str
    why: str
    how: str
    noun: str = "stream"

    def __str__(self) -> str:
        return str(self.error)

    @property
    def error(self) -> Refused:
        return Refused(self.what, where=f"{self.noun} {self.name}", why=self.why, how=self.how)


@dataclass(frozen=True, slots=True)
class Changes:
    """The plan: what would be done, in order of names within each kind, and what will not be done."""

    creates: tuple[Create, ...] = ()
    changes: tuple[Change, ...] = ()
    drops: tuple[Drop, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether declared and recorded agree."""
        return not (self.creates or self.changes or self.drops or self.refusals)

    def check(self) -> None:
        """Raise when anything is refused; a plan is carried out whole or not at all."""
        if len(self.refusals) == 1:
            raise self.refusals[0].error
        if self.refusals:
            lines = [f"{len(self.refusals)} changes are refused, and so none is made", *map(str, self.refusals)]
            raise Refused("\n".join(lines))


def plan_changes(
    declared: Mapping[str, Stream],
    recorded: Mapping[str, Stream],
    rows: Mapping[str, int],
    drop: Collection[str] = (),
) -> Changes:
    """Compare what is declared with what is recorded. `rows` counts each recorded stream's rows, `drop` names streams
    that may be dropped with theirs; one that is gone already is no mistake, so that applying can be repeated."""
    changes: list[Change] = []
    drops: list[Drop] = []
    refusals = [_still_declared(declared[name]) for name in sorted(drop) if name in declared]
    for name in sorted(recorded):
        count = rows.get(name, 0)
        if name not in declared:
            if count and name not in drop:
                refusals.append(_undeclared(recorded[name], count))
            else:
                drops.append(Drop(name, count, recorded[name].noun))
            continue
        before, after = recorded[name], declared[name]
        found = losses(before, after) if count else []
        refusals.extend(replace(each, noun=after.noun) for each in found)
        if before != after and not found:
            changes.append(Change(before, after, describe(before, after)))
    creates = [Create(declared[name]) for name in sorted(declared) if name not in recorded]
    return Changes(tuple(creates), tuple(changes), tuple(drops), tuple(refusals))


def losses(before: Stream, after: Stream) -> list[Refusal]:
    """What a stream with rows cannot become."""
    refusals = []
    for column in before.columns:
        if column.name not in after.names:
            refusals.append(
                Refusal(
                    before.name,
                    f"column {column.name} is no longer declared",
                    "the archive's rows hold its values; a column that is renamed is dropped and another added",
                    f"declare {column.name}: {column.type} again, or {_ANEW}",
                )
            )
        elif after.column(column.name).type != column.type:
            refusals.append(
                Refusal(
                    before.name,
                    f"column {column.name} would change from {column.type} to {after.column(column.name).type}",
                    "the archive's rows hold values of the old type, and buckets are never rewritten for this",
                    f"declare {column.name}: {column.type} again, add a column of the new type, or {_ANEW}",
                )
            )
    reasons = {
        "key": "the archive's rows were told apart by the old key",
        "order": "the archive's buckets follow the old order",
        "group": "the bucket index lists the groups of the old columns, and scans rely on it",
    }
    for role, reason in reasons.items():
        old, new = _role(before, role), _role(after, role)
        if old != new:
            refusals.append(
                Refusal(
                    before.name,
                    f"{role} would change from {old} to {new}",
                    reason,
                    f"declare {role}: {old} again, or {_ANEW}",
                )
            )
    return refusals


def describe(before: Stream, after: Stream) -> tuple[str, ...]:
    """Every difference in words."""
    details = _column_details(before, after)
    for role in ("key", "order", "group"):
        _compare(details, role, _role(before, role), _role(after, role))
    for name, say in _SAYINGS.items():
        _compare(details, name, say(before), say(after))
    return tuple(details)


def _column_details(before: Stream, after: Stream) -> list[str]:
    details = []
    for column in after.columns:
        if column.name not in before.names:
            details.append(f"column {column.name} {column.type} added; older rows read NULL")
        else:
            _compare(details, f"column {column.name}", str(before.column(column.name).type), str(column.type))
    details += [f"column {name} dropped" for name in before.names if name not in after.names]
    old = [name for name in before.names if name in after.names]
    new = [name for name in after.names if name in before.names]
    if old != new:
        details.append(f"columns ordered {', '.join(after.names)}")
    return details


def _compare(details: list[str], name: str, old: str, new: str) -> None:
    if old != new:
        details.append(f"{name} {old} -> {new}")


def _role(stream: Stream, role: str) -> str:
    if role == "order":
        return "time of arrival" if stream.ordered_on_arrival else stream.order
    if role == "group":
        return f"[{', '.join(stream.group)}]"
    return f"[{', '.join(stream.key if stream.relation is None else stream.relation_key)}]"


def _retention(stream: Stream) -> str:
    if stream.retention is None:
        return "for ever"
    if stream.retention.rows is not None:
        return f"{stream.retention.rows} rows"
    return stream.span_text(stream.retention.span or 0)


def _landing(say: Callable[[Landing], str]) -> Callable[[Stream], str]:
    return lambda stream: "none" if stream.landing is None else say(stream.landing)


_SAYINGS: Mapping[str, Callable[[Stream], str]] = {
    "kind": lambda stream: "stream" if stream.relation is None else stream.relation.value,
    "deleted": lambda stream: stream.deleted or "none",
    "bucket_rows": lambda stream: str(stream.bucket_rows),
    "layout": lambda stream: stream.layout.value,
    "retention": _retention,
    "age_out": lambda stream: stream.age_out.value,
    "slack": lambda stream: stream.span_text(stream.slack),
    "max_ahead": lambda stream: "none" if stream.max_ahead is None else stream.span_text(stream.max_ahead),
    "on_revision": lambda stream: stream.on_revision.value,
    "on_duplicate": lambda stream: stream.on_duplicate.value,
    "horizon": lambda stream: format_duration(stream.horizon),
    "landing path": _landing(lambda landing: landing.path),
    "landing settle": _landing(lambda landing: format_duration(landing.settle)),
    "landing then": _landing(lambda landing: landing.then.value),
}


def _undeclared(stream: Stream, rows: int) -> Refusal:
    return Refusal(
        stream.name,
        f"it is no longer declared and has {rows} {'row' if rows == 1 else 'rows'}",
        "dropping it loses them",
        f"declare it again, or give it up with: errata apply --drop {stream.name}",
        stream.noun,
    )


def _still_declared(stream: Stream) -> Refusal:
    return Refusal(
        stream.name,
        "it is to be dropped and is still declared",
        "a declaration says what there shall be",
        "take it out of errata.yaml first",
        stream.noun,
    )
