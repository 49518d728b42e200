"""Provenance of a result as JSON, and as text with a paragraph for each value."""

from __future__ import annotations

from collections.abc import Iterator

from errata.errors import count_text
from errata.intake.encoding import JsonRow, display_change, display_values
from errata.model.commit import Commit
from errata.model.time import HIGHEST, format_instant
from errata.read.provenance import (
    BatchCause,
    CauseList,
    ProvenanceCause,
    ProvenanceRow,
    QueryEditCause,
    ReplayCause,
    ResultProvenance,
    ResultValue,
    RevisionCause,
    RevisionRangeCause,
    RowFate,
    SourceProvenance,
    StreamEditCause,
    UpstreamResultCause,
)
from errata.read.wording import (
    commit_author,
    event_time_short,
    event_time_text,
    relative_paths,
    short_batch_id,
    wall_time,
)

JsonRecord = dict[str, object]


def provenance_json(provenance: ResultProvenance) -> JsonRecord:
    """The provenance as JSON."""
    return {
        "query": provenance.query,
        "key": dict(provenance.key),
        "at": event_time_text(provenance.at, provenance.timed),
        "values": value_history_json(provenance),
        "behind": [_source_json(each) for each in provenance.sources],
        "notes": list(provenance.notes),
    }


def value_history_json(provenance: ResultProvenance) -> list[JsonRecord]:
    """The values of the result as JSON, oldest first."""
    return [_value_json(each, timed=provenance.timed) for each in provenance.values]


def _value_json(value: ResultValue, *, timed: bool) -> JsonRecord:
    return {
        "values": None if value.values is None else dict(value.values),
        "vs": _time_json(value.vs, timed),
        "ve": _time_json(value.ve, timed),
        **_commit_json(value.commit),
        "cut": value.truncated,
        "causes": _causes_json(value.causes),
        "more_causes": value.causes.more,
    }


def _commit_json(commit: Commit) -> JsonRecord:
    by = commit.cause
    return {
        "commit": commit.commit_id,
        "committed": format_instant(commit.at),
        "flow": by.flow,
        "user": by.user,
        "host": by.host,
        "dag": by.dag_id,
        "run": by.run_id,
        "task": by.task_id,
        "try": by.try_number,
    }


def _time_json(at: int, timed: bool) -> object:
    if at == HIGHEST:
        return None
    return format_instant(at) if timed else at


def _causes_json(causes: CauseList) -> list[JsonRecord]:
    return [_cause_json(each) for each in causes.shown]


def _cause_json(cause: ProvenanceCause) -> JsonRecord:
    match cause:
        case BatchCause():
            return {
                "type": "batch",
                "stream": cause.stream,
                "batch": cause.batch_id,
                "commit": cause.commit_id,
                "brings": cause.brings,
            }
        case RevisionCause():
            return _revision_json(cause)
        case QueryEditCause() | StreamEditCause() | ReplayCause():
            return _decision_json(cause)
        case RevisionRangeCause():
            return {"type": "revisions", "source": cause.source, "first": cause.first, "last": cause.last}
        case UpstreamResultCause():
            return _upstream_result_json(cause)


def _decision_json(cause: QueryEditCause | StreamEditCause | ReplayCause) -> JsonRecord:
    """A change to the query or to its inputs, as JSON."""
    match cause:
        case QueryEditCause():
            return {"type": "query", "anew": cause.anew, "dropped": cause.dropped, "reads": cause.reads}
        case StreamEditCause():
            return {"type": "stream", "stream": cause.stream}
        case ReplayCause():
            return {"type": "replay"}


def _revision_json(cause: RevisionCause) -> JsonRecord:
    return {
        "type": "version" if cause.revision is None else "revision",
        "stream": cause.stream,
        "revision": cause.revision,
        "file": cause.file or None,
        "line": cause.line or None,
        "batch": cause.batch_id,
        "undoes": cause.undoes,
        "was": None if cause.was is None else dict(cause.was),
        "is": None if cause.now is None else dict(cause.now),
    }


def _upstream_result_json(cause: UpstreamResultCause) -> JsonRecord:
    return {
        "type": "result",
        "query": cause.query,
        "key": dict(cause.key),
        "vs": _time_json(cause.vs, cause.timed),
        "commit": cause.commit_id,
        "was": None if cause.was is None else dict(cause.was),
        "is": None if cause.now is None else dict(cause.now),
        "causes": _causes_json(cause.causes),
        "more_causes": cause.causes.more,
    }


def _source_json(behind: SourceProvenance) -> JsonRecord:
    return {
        "source": behind.source,
        "kind": behind.noun,
        "then": {"commit": behind.then.commit_id, "rows": behind.then.rows, "lost": behind.then.lost or None},
        "now": {"commit": behind.now.commit_id, "rows": behind.now.rows},
        "differing": behind.differing,
        "aged_out": behind.aged,
        "rows": [
            {
                "fate": each.fate.value,
                "was": None if each.was is None else dict(each.was),
                "is": None if each.now is None else dict(each.now),
            }
            for each in behind.rows
        ],
    }


# Provenance as text: a paragraph for each value, oldest first, then the source rows.


def provenance_text(provenance: ResultProvenance) -> str:
    """The provenance as text."""
    title = (
        f"{provenance.query}{f', {display_values(provenance.key)}' if provenance.key else ''}, at "
        f"{event_time_short(provenance.at, provenance.timed)}"
    )
    parts = ["\n".join(_value_lines(provenance, number)) for number in range(len(provenance.values))]
    parts += ["\n".join(_source_lines(each)) for each in provenance.sources]
    return "\n\n".join([title, *parts]) + "\n"


def _value_lines(story: ResultProvenance, number: int) -> Iterator[str]:
    value = story.values[number]
    before = story.values[number - 1] if number else None
    if value.truncated:
        yield "What it was before is no longer kept."
    yield f"{number + 1}. {_value_sentence(value, before, timed=story.timed)}"
    commit = value.commit
    by = f", by {told}" if (told := commit_author(commit.cause)) else ""
    yield f"   published in commit {commit.commit_id} at {wall_time(commit.at)}{by}"
    yield from _cause_list_lines(value.causes, "   ")


def _value_sentence(value: ResultValue, before: ResultValue | None, *, timed: bool) -> str:
    if value.values is None:
        return "there is no such result any more"
    values = display_values(value.values) or "it counts"
    if before is None or before.values is None:
        what = values
    elif before.values == value.values:
        what = f"{values}, as before"
    else:
        what = f"{values} ({display_change(before.values, value.values)})"
    until = "" if value.ve == HIGHEST else f" until {event_time_short(value.ve, timed)}"
    return f"{what}, from {event_time_short(value.vs, timed)}{until}"


def _cause_list_lines(causes: CauseList, indent: str) -> Iterator[str]:
    for cause in causes.shown:
        first, *rest = _cause_lines(cause)
        yield f"{indent}because {first}"
        yield from (f"{indent}   {line}" for line in rest)
    if causes.more:
        yield f"{indent}and because of {causes.more:,} more"


def _cause_lines(cause: ProvenanceCause) -> Iterator[str]:
    """The line of a cause, and indented lines below it."""
    match cause:
        case BatchCause():
            took = "" if cause.brings else f", which took {cause.stream} on in time,"
            yield f"batch {short_batch_id(cause.batch_id)} of {cause.stream}{took} came in commit {cause.commit_id}"
        case RevisionCause():
            yield from _revision_lines(cause)
        case QueryEditCause():
            yield _query_edit_text(cause)
        case StreamEditCause():
            yield f"{cause.stream}, which the query reads, was declared otherwise"
        case ReplayCause():
            yield "this range of the results was replayed"
        case RevisionRangeCause():
            which = (
                f"revision {cause.first}" if cause.first == cause.last else f"revisions {cause.first} to {cause.last}"
            )
            yield f"{which} of {cause.source} were taken up; which of them it was can no longer be told"
        case UpstreamResultCause():
            key = f" {display_values(cause.key)}" if cause.key else ""
            at = event_time_short(cause.vs, cause.timed)
            yield f"result{key} of query {cause.query} at {at} changed in commit {cause.commit_id}"
            yield f"{_row_change_text(cause.was, cause.now)}"
            yield from _cause_list_lines(cause.causes, "")


def _revision_lines(cause: RevisionCause) -> Iterator[str]:
    where = f", {relative_paths(cause.file)}:{cause.line}" if cause.file else ""
    batch = f", batch {short_batch_id(cause.batch_id)}"
    undone = f" (undo of {short_batch_id(cause.undoes)})" if cause.undoes else ""
    if cause.revision is None:
        yield f"a version of {cause.stream} came behind what had been answered{where}{batch}"
    else:
        yield f"revision {cause.revision} of {cause.stream}{undone}{where}{batch} {_revision_verb(cause)}"
    yield _row_change_text(cause.was, cause.now)


def _revision_verb(cause: RevisionCause) -> str:
    if cause.was is None:
        return "put a row in"
    return "deleted a row" if cause.now is None else "changed a row"


def _row_change_text(was: JsonRow | None, now: JsonRow | None) -> str:
    """A change of a row as text."""
    if was is None or now is None:
        return f"{'-' if now is None else '+'} {display_values(now or was or {})}"
    changed = display_change(was, now)
    kept = display_values({name: value for name, value in now.items() if name in was and was[name] == value})
    return f"~ {', '.join(part for part in (kept, changed) if part)}"


def _query_edit_text(cause: QueryEditCause) -> str:
    if cause.dropped:
        return "the query was dropped, or edited to another key"
    if cause.reads is not None:
        return f"query {cause.reads}, which the query reads, was edited or worked out anew"
    return "the query was worked out anew" if cause.anew else "the query was edited"


def _source_lines(behind: SourceProvenance) -> Iterator[str]:
    then, now = behind.then, behind.now
    what = "result" if behind.noun == "query" else "row" if behind.noun == "stream" else "version"
    count = f"{count_text(now.rows or 0, what)} of {behind.source} behind it now"
    if then.rows is None:
        yield f"{count}; those of then cannot be told:"
        yield f"   {then.lost}"
    else:
        verb = "differs" if behind.differing == 1 else "differ"
        differ = f"; {behind.differing:,} {verb}" if behind.differing else ", the same" if then.rows == now.rows else ""
        aged = f"; {behind.aged:,} have been aged out since" if behind.aged else ""
        yield f"{count}, {then.rows:,} as of commit {then.commit_id}{differ}{aged}"
        if then.lost:
            yield f"   {then.lost}"
    for each in behind.rows:
        yield f" {_row_line(each)}"
    shown = sum(each.now is not None for each in behind.rows)
    if (now.rows or 0) > shown:
        yield f"   and {(now.rows or 0) - shown:,} more"


def _row_line(row: ProvenanceRow) -> str:
    if row.fate is RowFate.SAME:
        return f"  {display_values(row.now or {})}"
    return _row_change_text(row.was, row.now)
