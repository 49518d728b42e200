"""What applying would change, in words: streams, queries, and declarations that differ from what is applied.

A change of a stream that would lose data or contradict its rows is refused, with the way to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from errata.declare.feed_changes import feed_changes, refused_feed_losses, same_guarantees
from errata.declare.project import Project
from errata.declare.queries import load_queries
from errata.errors import RefusedError, UsageError
from errata.model.feed import LandingFolder
from errata.model.query import CheckedQuery
from errata.model.reduction import SummaryDeclaration, rate_text
from errata.model.stream import Stream
from errata.model.time import format_duration

_NEW_STREAM_ADVICE = "declare a new stream under another name and take the files in again"


@dataclass(frozen=True, slots=True)
class StreamCreation:
    """A stream that is declared and not in the catalog."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A stream whose declaration differs from the recorded one, and how, in words."""

    before: Stream
    after: Stream
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamDrop:
    """A stream that is no longer declared."""

    name: str
    rows: int
    noun: str = "stream"


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that would lose data or contradict rows in the archive."""

    name: str
    what: str
    why: str
    how: str
    noun: str = "stream"

    def __str__(self) -> str:
        return str(self.error)

    @property
    def error(self) -> RefusedError:
        return RefusedError(self.what, where=f"{self.noun} {self.name}", why=self.why, how=self.how)


@dataclass(frozen=True, slots=True)
class StreamChanges:
    """The changes of streams and the refusals, each kind in the order of names."""

    creates: tuple[StreamCreation, ...] = ()
    changes: tuple[StreamChange, ...] = ()
    drops: tuple[StreamDrop, ...] = ()
    refusals: tuple[RefusedChange, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether declared and recorded agree."""
        return not (self.creates or self.changes or self.drops or self.refusals)

    def check(self) -> None:
        """Raise if anything is refused: a plan is carried out completely or not at all."""
        if len(self.refusals) == 1:
            raise self.refusals[0].error
        if self.refusals:
            lines = [f"{len(self.refusals)} changes are refused, and so none is made", *map(str, self.refusals)]
            raise RefusedError("\n".join(lines))


def plan_stream_changes(
    declared: Mapping[str, Stream],
    recorded: Mapping[str, Stream],
    rows: Mapping[str, int],
    drop: Collection[str] = (),
) -> StreamChanges:
    """Compare declared with recorded streams. `rows` has the number of rows of each recorded one. `drop` names streams
    that may be dropped with their rows; an unknown one is no mistake, so that applying can be repeated."""
    changes: list[StreamChange] = []
    drops: list[StreamDrop] = []
    refusals = [_still_declared_refusal(declared[name]) for name in sorted(drop) if name in declared]
    for name in sorted(recorded):
        count = rows.get(name, 0)
        if name not in declared:
            if count and name not in drop:
                refusals.append(_undeclared_refusal(recorded[name], count))
            else:
                drops.append(StreamDrop(name, count, recorded[name].noun))
            continue
        before, after = recorded[name], declared[name]
        found = refused_losses(before, after) if count else []
        refusals.extend(replace(each, noun=after.noun) for each in found)
        if (before != after or not same_guarantees(before, after)) and not found:
            changes.append(StreamChange(before, after, describe_stream_change(before, after)))
    creates = [StreamCreation(declared[name]) for name in sorted(declared) if name not in recorded]
    return StreamChanges(tuple(creates), tuple(changes), tuple(drops), tuple(refusals))


def refused_losses(before: Stream, after: Stream) -> list[RefusedChange]:
    """The changes that a stream with rows cannot have."""
    refusals = []
    for column in before.columns:
        if column.name not in after.names:
            refusals.append(
                RefusedChange(
                    before.name,
                    f"column {column.name} is no longer declared",
                    "the archive's rows hold its values; a column that is renamed is dropped and another added",
                    f"declare {column.name}: {column.type} again, or {_NEW_STREAM_ADVICE}",
                )
            )
        elif after.column(column.name).type != column.type:
            refusals.append(
                RefusedChange(
                    before.name,
                    f"column {column.name} would change from {column.type} to {after.column(column.name).type}",
                    "the archive's rows hold values of the old type, and buckets are never rewritten for this",
                    f"declare {column.name}: {column.type} again, add a column of the new type, or "
                    f"{_NEW_STREAM_ADVICE}",
                )
            )
    reasons = {
        "key": "the archive's rows were told apart by the old key",
        "order": "the archive's buckets follow the old order",
        "group": "the bucket index lists the groups of the old columns, and scans rely on it",
    }
    for role, reason in reasons.items():
        old, new = _role_text(before, role), _role_text(after, role)
        if old != new:
            refusals.append(
                RefusedChange(
                    before.name,
                    f"{role} would change from {old} to {new}",
                    reason,
                    f"declare {role}: {old} again, or {_NEW_STREAM_ADVICE}",
                )
            )
    losses = refused_feed_losses(before, after)
    return [*refusals, *(RefusedChange(before.name, loss.what, loss.why, loss.how) for loss in losses)]


def describe_stream_change(before: Stream, after: Stream) -> tuple[str, ...]:
    """Every difference in words."""
    details = _stream_column_details(before, after)
    for role in ("key", "order", "group"):
        _add_difference(details, role, _role_text(before, role), _role_text(after, role))
    for name, say in _OPTION_TEXTS.items():
        _add_difference(details, name, say(before), say(after))
    return (*details, *feed_changes(before, after))


def describe_reduction(stream: Stream) -> tuple[str, ...]:
    """What is kept of a new stream at reduced resolution, in words; empty if nothing is."""
    return tuple(f"{name} {text}" for name in _REDUCED if (text := _OPTION_TEXTS[name](stream)) != "none")


def _stream_column_details(before: Stream, after: Stream) -> list[str]:
    details = []
    for column in after.columns:
        if column.name not in before.names:
            details.append(f"column {column.name} {column.type} added; older rows read NULL")
        else:
            _add_difference(details, f"column {column.name}", str(before.column(column.name).type), str(column.type))
    details += [f"column {name} dropped" for name in before.names if name not in after.names]
    old = [name for name in before.names if name in after.names]
    new = [name for name in after.names if name in before.names]
    if old != new:
        details.append(f"columns ordered {', '.join(after.names)}")
    return details


def _add_difference(details: list[str], name: str, old: str, new: str) -> None:
    if old != new:
        details.append(f"{name} {old} -> {new}")


def _role_text(stream: Stream, role: str) -> str:
    if role == "order":
        return "time of arrival" if stream.ordered_on_arrival else stream.order
    if role == "group":
        return f"[{', '.join(stream.group)}]"
    return f"[{', '.join(stream.key if stream.relation is None else stream.relation_key)}]"


def _retention_text(stream: Stream) -> str:
    if stream.retention is None:
        return "for ever"
    if stream.retention.rows is not None:
        return f"{stream.retention.rows} rows"
    return stream.span_text(stream.retention.span or 0)


def _landing_text(say: Callable[[LandingFolder], str]) -> Callable[[Stream], str]:
    return lambda stream: "none" if stream.landing is None else say(stream.landing)


def _summary_text(stream: Stream, summary: SummaryDeclaration) -> str:
    aggregates = ", ".join(f"{sql} AS {name}" for name, sql in summary.aggregates.items())
    by = ", ".join([*summary.group, stream.span_text(summary.window)])
    return f"{summary.name}: {aggregates} by {by}, on {summary.when.value}"


def _on_read_text(stream: Stream) -> str:
    on_read = stream.reduced.on_read
    if on_read is None:
        return "none"
    purged = "never" if on_read.purge_after is None else f"after {stream.span_text(on_read.purge_after)}"
    return f"dropped above {rate_text(on_read.drop_above)}, originals purged {purged}"


_OPTION_TEXTS: Mapping[str, Callable[[Stream], str]] = {
    "kind": lambda stream: "stream" if stream.relation is None else stream.relation.value,
    "deleted": lambda stream: stream.deleted or "none",
    "bucket_rows": lambda stream: str(stream.bucket_rows),
    "layout": lambda stream: stream.layout.value,
    "retention": _retention_text,
    "age_out": lambda stream: stream.age_out.value,
    "slack": lambda stream: stream.span_text(stream.slack),
    "max_ahead": lambda stream: "none" if stream.max_ahead is None else stream.span_text(stream.max_ahead),
    "on_revision": lambda stream: stream.on_revision.value,
    "on_duplicate": lambda stream: stream.on_duplicate.value,
    "horizon": lambda stream: format_duration(stream.horizon),
    "copies": lambda stream: ", ".join(map(rate_text, stream.reduced.copies)) or "none",
    "on_read": _on_read_text,
    "summaries": lambda stream: "; ".join(_summary_text(stream, each) for each in stream.reduced.summaries) or "none",
    "landing path": _landing_text(lambda landing: landing.path),
    "landing settle": _landing_text(lambda landing: format_duration(landing.settle)),
    "landing then": _landing_text(lambda landing: landing.then.value),
}


_REDUCED = ("copies", "on_read", "summaries")
"""The options below `reduce:`."""


def _undeclared_refusal(stream: Stream, rows: int) -> RefusedChange:
    return RefusedChange(
        stream.name,
        f"it is no longer declared and has {rows} {'row' if rows == 1 else 'rows'}",
        "dropping it loses them",
        f"declare it again, or give it up with: errata apply --drop {stream.name}",
        stream.noun,
    )


def _still_declared_refusal(stream: Stream) -> RefusedChange:
    return RefusedChange(
        stream.name,
        "it is to be dropped and is still declared",
        "a declaration says what there shall be",
        "take it out of errata.yaml first",
        stream.noun,
    )


_PROJECT_DEFAULT = "as in the project"


@dataclass(frozen=True, slots=True)
class QueryChange:
    """A query that differs from the recorded one, and how."""

    after: CheckedQuery
    details: tuple[str, ...]
    keeps_results: bool
    """Whether the form stays the same, and with it the results."""


@dataclass(frozen=True, slots=True)
class QueryChanges:
    """The changes of queries, each kind in the order of names."""

    creates: tuple[CheckedQuery, ...] = ()
    changes: tuple[QueryChange, ...] = ()
    drops: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether declared and recorded agree."""
        return not (self.creates or self.changes or self.drops)


def plan_query_changes(declared: Mapping[str, CheckedQuery], recorded: Mapping[str, CheckedQuery]) -> QueryChanges:
    """Compare the declared queries, which have been checked, with the recorded ones."""
    creates, changes = [], []
    for name in sorted(declared):
        after, before = declared[name], recorded.get(name)
        if before is None:
            creates.append(after)
        elif before != after:
            changes.append(QueryChange(after, describe_query_change(before, after), after.same_form(before)))
    drops = [name for name in sorted(recorded) if name not in declared]
    return QueryChanges(tuple(creates), tuple(changes), tuple(drops))


def describe_query_change(before: CheckedQuery, after: CheckedQuery) -> tuple[str, ...]:
    """Every difference in words."""
    details = [*_meaning_details(before, after), *_query_column_details(before, after)]
    was, now = before.query, after.query
    stated = (
        ("file", was.sql_file, now.sql_file),
        ("emit", was.emit.value, now.emit.value),
        ("on_revision", before.on_revision.value, after.on_revision.value),
        ("retention", was.retention_text, now.retention_text),
        ("since", was.since or "the beginning", now.since or "the beginning"),
        ("table", was.serve or "none", now.serve or "none"),
        ("lineage", was.lineage.value, now.lineage.value),
        ("sweep", str(was.sweep or _PROJECT_DEFAULT), str(now.sweep or _PROJECT_DEFAULT)),
        ("key", f"[{', '.join(before.key)}]", f"[{', '.join(after.key)}]"),
        ("pattern", before.pattern.shown, after.pattern.shown),
    )
    details += [f"{name} {old} -> {new}" for name, old, new in stated if old != new]
    return tuple(details) or ("what it reads is declared anew; its results stay as they are",)


def _meaning_details(before: CheckedQuery, after: CheckedQuery) -> list[str]:
    if before.query.text != after.query.text:
        same = before.fingerprint == after.fingerprint
        return ["text changed; it means the same" if same else "text changed, and what it does"]
    if before.fingerprint == after.fingerprint or before.query.emit != after.query.emit:
        return []
    return ["what it reads has changed"]


def _query_column_details(before: CheckedQuery, after: CheckedQuery) -> list[str]:
    old, new = ({each.name: str(each.type) for each in query.columns} for query in (before, after))
    details = [f"column {name} {kind} added" for name, kind in new.items() if name not in old]
    details += [f"column {name} dropped" for name in old if name not in new]
    details += [
        f"column {name} {old[name]} -> {kind}" for name, kind in new.items() if name in old and old[name] != kind
    ]
    if [name for name in old if name in new] != [name for name in new if name in old]:
        details.append(f"columns ordered {', '.join(new)}")
    return details


_APPLY_ADVICE = "`errata apply` makes it count"


def drifted_queries(project: Project, applied: Mapping[str, CheckedQuery], names: Iterable[str]) -> dict[str, str]:
    """The applied queries whose declarations differ now, and how, in words. Only their own files are read."""
    found = {name: _drift_text(project, applied[name]) for name in names}
    return {name: told for name, told in found.items() if told is not None}


def _drift_text(project: Project, applied: CheckedQuery) -> str | None:
    file = project.queries.get(applied.name)
    if file is None:
        return f"query {applied.name} is no longer declared; `errata apply` drops it"
    try:
        now = load_queries([file], project.file)[applied.name]
    except UsageError:
        there = "can no longer be read" if file.path.exists() else "is gone"
        return f"{file.file} {there}: query {applied.name} is answered as it was applied"
    if now.text != applied.query.text:
        return f"{file.file} has changed since it was applied; {_APPLY_ADVICE}"
    if now != applied.query:
        return f"the declaration of query {applied.name} has changed since it was applied; {_APPLY_ADVICE}"
    return None
