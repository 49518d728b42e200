"""How queries stand: what they are, how far they are answered, and what their answers do not contain yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from errata.catalog.leases import Holder
from errata.cli.refused import refusals_of
from errata.cli.talk import say
from errata.flows.telling.status import DUE, Declared, QueryStatus, State
from errata.model.instants import format_instant
from errata.model.stream import OnRevision
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted, distance, place, place_shown

FIELDS = (
    Field("query", "query"),
    Field("reads", "reads", fold=True),
    Field("columns", "columns", fold=True),
    Field("pattern", "pattern"),
    Field("state", "state"),
    Field("answered", "answered up to"),
    Field("as_of", "as of", right=True),
    Field("commit", "in commit", right=True),
    Field("commits_behind", "commits behind", right=True),
    Field("engine", "engine", fold=True),
    Field("engine_why", "engine_why"),
    Field("behind", "behind"),
    Field("pending", "pending", right=True),
    Field("left_out", "left out", fold=True),
    Field("deferred", "corrections", fold=True),
    Field("refused", "refused", fold=True),
    Field("on_revision", "on_revision"),
    Field("waits_for", "waits for"),
    Field("fault", "fault", fold=True),
    Field("lease", "at work", fold=True),
    Field("declared", "declaration"),
)
QUIET = {
    *("answered", "as_of", "engine", "behind", "pending", "left_out", "deferred", "refused", "on_revision"),
    *("waits_for", "lease", "declared"),
}
"""Columns that a person is shown only when they say something."""

PROGRAMS = {"columns", "engine_why", "commit", "commits_behind", "fault"}
"""Columns for programs: a person is told elsewhere, or in other words."""

TOLD = 5
"""Of more queries than these that are as badly off, the others are only counted."""


def print_queries(found: Sequence[QueryStatus], kind: Format, most: int | None) -> None:
    """The queries, all of them or the first so many."""
    if not found:
        say("no queries: declare some in errata.yaml and run `errata apply`")
        if kind is Format.TABLE:
            return
    shown = [_row(each) for each in found[:most]]
    fields = FIELDS if kind is not Format.TABLE else _telling(shown)
    print_records(fields, [_record(each) for each in found], shown, kind, sys.stdout)
    if len(shown) < len(found):
        say(f"{counted(len(found) - len(shown), 'more query', 'more queries')}: errata status --queries")


def query_hints(found: Sequence[QueryStatus]) -> Iterator[str]:
    """What is to be done about queries."""
    due = [each for each in found if each.state in DUE]
    if due:
        yield f"{counted(len(due), 'query is', 'queries are')} to be evaluated: errata run"
    stopped = [each for each in found if each.stopped is not None]
    yield from (_stopped(each) for each in stopped[:TOLD])
    if len(stopped) > TOLD:
        yield f"{counted(len(stopped) - TOLD, 'more query has', 'more queries have')} stopped: errata status --queries"
    blocked = [each for each in found if each.blocked]
    yield from (_blocked(each) for each in blocked[:TOLD])
    if len(blocked) > TOLD:
        yield f"and {counted(len(blocked) - TOLD, 'more query waits', 'more queries wait')} for others: errata leases"
    short = [each for each in found if each.left_out or each.deferred]
    yield from (_left_out(each) for each in short[:TOLD])
    if len(short) > TOLD:
        yield f"and so it is with {counted(len(short) - TOLD, 'more query', 'more queries')}: errata status --queries"
    late = [each for each in found if each.refused]
    yield from (line for each in late[:TOLD] for line in refusals_of(each.name, each.refused))
    if len(late) > TOLD:
        yield f"and of {counted(len(late) - TOLD, 'more query', 'more queries')}: errata status --queries --format json"


def _stopped(each: QueryStatus) -> str:
    fault = each.stopped.fault if each.stopped is not None else None
    if fault is None:
        raise AssertionError("only of a query that has stopped")
    what = f"{fault.expression}: {fault.reason}" if fault.expression else fault.reason
    return (
        f"query {each.name} has stopped at {what.splitlines()[0].rstrip('.')}; errata run {each.name} tells what to do"
    )


def _blocked(each: QueryStatus) -> str:
    if each.holder is None:
        raise AssertionError("only of a query that somebody holds")
    return f"query {each.name} waits for {each.holder.words} ({each.holder.life}): errata leases release {each.name}"


def _left_out(each: QueryStatus) -> str:
    of = " and ".join(f"{counted(count, 'correction')} of {name}" for name, count in each.left_out.items())
    one = sum(each.left_out.values()) == 1
    what = (
        f"{of} {'is' if one else 'are'} not in the answers" if of else f"{counted(each.pending, 'correction')} pending"
    )
    if each.deferred is None:
        return f"query {each.name}: {what}: errata sweep {each.name}"
    how = "" if each.deferred.endswith("`errata sweep`") else f", or for errata sweep {each.name}"
    return f"query {each.name}: {what}; it {each.deferred}{how}"


def _record(each: QueryStatus) -> Record:
    checked, last = each.checked, each.published.last if each.published is not None else None
    return {
        "query": each.name,
        "reads": [] if checked is None else list(checked.reads),
        "columns": {} if checked is None else {column.name: str(column.type) for column in checked.columns},
        "pattern": None if checked is None else checked.pattern.shown,
        "state": None if each.state is None else each.state.value,
        "answered": None if last is None else place(last.frontier, each.timed),
        "as_of": None if last is None else last.data_commit,
        "commit": None if last is None else last.commit_id,
        "commits_behind": each.commits,
        "engine": None if last is None else last.measures.engine,
        "engine_why": None if last is None else last.measures.engine_why,
        "behind": each.instants,
        "pending": each.pending,
        "left_out": dict(each.left_out),
        "deferred": each.deferred,
        "refused": [asdict(refusal) for refusal in each.refused],
        "on_revision": None if checked is None else checked.on_revision.value,
        "waits_for": each.waits_for,
        "fault": None if each.stopped is None else each.stopped.fault.record(),
        "lease": None if each.holder is None else _lease(each.holder),
        "declared": each.declared.value,
    }


def _row(each: QueryStatus) -> Record:
    checked, last = each.checked, each.published.last if each.published is not None else None
    return {
        "query": each.name,
        "reads": "" if checked is None else ", ".join(checked.reads),
        "pattern": "" if checked is None else checked.pattern.shown,
        "state": "" if each.state is None else each.state.value,
        "answered": "" if last is None else place_shown(last.frontier, each.timed),
        "as_of": "" if last is None else last.data_commit,
        "engine": _far(each),
        "behind": _behind(each),
        "pending": each.pending or "",
        "left_out": ", ".join(f"{count:,} of {name}" for name, count in each.left_out.items()),
        "deferred": "deferred" if each.deferred else "",
        "refused": ", ".join(f"{refusal.count:,} of {refusal.source}" for refusal in each.refused),
        "on_revision": _policy(each),
        "waits_for": each.waits_for or "",
        "lease": "" if each.holder is None else each.holder.words,
        "declared": "" if each.declared is Declared.AGREED else each.declared.value,
    }


def _lease(holder: Holder) -> Record:
    return {
        "owner": holder.owner,
        "process": holder.process.words,
        "since": format_instant(holder.since),
        "until": format_instant(holder.until),
        "life": holder.life.value,
    }


def _far(each: QueryStatus) -> str:
    """Why the far engine did the last step, where it did."""
    measures = None if each.published is None else each.published.last.measures
    return "" if measures is None or measures.engine != "far" else f"far: {measures.engine_why}"


def _policy(each: QueryStatus) -> str:
    """What a correction changes, where it changes less than it could."""
    if each.checked is None or each.checked.on_revision is OnRevision.RESULTS:
        return ""
    return each.checked.on_revision.value


def _behind(each: QueryStatus) -> str:
    """How far the answers are behind the streams: in commits, and in event time."""
    if each.published is None or each.state is State.CURRENT:
        return ""
    parts = [counted(each.commits, "commit")] if each.commits else []
    return ", ".join([*parts, distance(each.instants, each.timed)] if each.instants else parts)


def _telling(shown: Sequence[Record]) -> Sequence[Field]:
    """The fields for a person, without those that say nothing."""
    fields = [field for field in FIELDS if field.name not in PROGRAMS]
    return [field for field in fields if field.name not in QUIET or any(row[field.name] != "" for row in shown)]
