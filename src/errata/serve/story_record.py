"""An answer's story as plain data, for programs."""

from __future__ import annotations

from errata.model.commit import Commit
from errata.model.instants import format_instant
from errata.model.interval import HIGHEST
from errata.serve.story import (
    Batch,
    Behind,
    Cause,
    Causes,
    Correction,
    Edit,
    Redeclared,
    Replayed,
    ResultChanged,
    Story,
    Swept,
    Value,
)
from errata.serve.words import place

Record = dict[str, object]


def as_record(story: Story) -> Record:
    """The whole story, as JSON can hold it."""
    return {
        "query": story.query,
        "key": dict(story.key),
        "at": place(story.at, story.timed),
        "values": value_records(story),
        "behind": [_behind(each) for each in story.behind],
        "notes": list(story.notes),
    }


def value_records(story: Story) -> list[Record]:
    """Each value that the answer has had, oldest first."""
    return [_value(each, timed=story.timed) for each in story.values]


def _value(value: Value, *, timed: bool) -> Record:
    return {
        "values": None if value.values is None else dict(value.values),
        "vs": _time(value.vs, timed),
        "ve": _time(value.ve, timed),
        **_commit(value.commit),
        "cut": value.cut,
        "causes": _causes(value.causes),
        "more_causes": value.causes.more,
    }


def _commit(commit: Commit) -> Record:
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


def _time(at: int, timed: bool) -> object:
    if at == HIGHEST:
        return None
    return format_instant(at) if timed else at


def _causes(causes: Causes) -> list[Record]:
    return [_cause(each) for each in causes.told]


def _cause(cause: Cause) -> Record:
    match cause:
        case Batch():
            return {
                "type": "batch",
                "stream": cause.stream,
                "batch": cause.batch_id,
                "commit": cause.commit_id,
                "brings": cause.brings,
            }
        case Correction():
            return _correction(cause)
        case Edit() | Redeclared() | Replayed():
            return _decided(cause)
        case Swept():
            return {"type": "revisions", "source": cause.source, "first": cause.first, "last": cause.last}
        case ResultChanged():
            return _result(cause)


def _decided(cause: Edit | Redeclared | Replayed) -> Record:
    """What a person has done to the query or to what it reads."""
    match cause:
        case Edit():
            return {"type": "query", "anew": cause.anew, "dropped": cause.dropped, "reads": cause.reads}
        case Redeclared():
            return {"type": "stream", "stream": cause.stream}
        case Replayed():
            return {"type": "replay"}


def _correction(cause: Correction) -> Record:
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


def _result(cause: ResultChanged) -> Record:
    return {
        "type": "result",
        "query": cause.query,
        "key": dict(cause.key),
        "vs": _time(cause.vs, cause.timed),
        "commit": cause.commit_id,
        "was": None if cause.was is None else dict(cause.was),
        "is": None if cause.now is None else dict(cause.now),
        "causes": _causes(cause.causes),
        "more_causes": cause.causes.more,
    }


def _behind(behind: Behind) -> Record:
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
