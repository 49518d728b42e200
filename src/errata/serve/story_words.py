"""An answer's story in the words of a person: a paragraph for each value, oldest first, then the rows behind it."""

from __future__ import annotations

from collections.abc import Iterator

from errata.model.interval import HIGHEST
from errata.serve.said import Said, change_in_words, in_words
from errata.serve.story import (
    Batch,
    Behind,
    Cause,
    Causes,
    Correction,
    Edit,
    Fate,
    Redeclared,
    Replayed,
    ResultChanged,
    Row,
    Story,
    Swept,
    Value,
)
from errata.serve.words import batch_name, counted, moment, near, place_shown, who


def in_paragraphs(story: Story) -> str:
    """All of it."""
    title = f"{story.query}{f', {in_words(story.key)}' if story.key else ''}, at {place_shown(story.at, story.timed)}"
    parts = ["\n".join(_value(story, number)) for number in range(len(story.values))]
    parts += ["\n".join(_behind(each)) for each in story.behind]
    return "\n\n".join([title, *parts]) + "\n"


def _value(story: Story, number: int) -> Iterator[str]:
    value = story.values[number]
    before = story.values[number - 1] if number else None
    if value.cut:
        yield "What it was before is no longer kept."
    yield f"{number + 1}. {_said(value, before, timed=story.timed)}"
    commit = value.commit
    by = f", by {told}" if (told := who(commit.cause)) else ""
    yield f"   published in commit {commit.commit_id} at {moment(commit.at)}{by}"
    yield from _causes(value.causes, "   ")


def _said(value: Value, before: Value | None, *, timed: bool) -> str:
    if value.values is None:
        return "there is no such result any more"
    values = in_words(value.values) or "it counts"
    if before is None or before.values is None:
        what = values
    elif before.values == value.values:
        what = f"{values}, as before"
    else:
        what = f"{values} ({change_in_words(before.values, value.values)})"
    until = "" if value.ve == HIGHEST else f" until {place_shown(value.ve, timed)}"
    return f"{what}, from {place_shown(value.vs, timed)}{until}"


def _causes(causes: Causes, indent: str) -> Iterator[str]:
    for cause in causes.told:
        first, *rest = _cause(cause)
        yield f"{indent}because {first}"
        yield from (f"{indent}   {line}" for line in rest)
    if causes.more:
        yield f"{indent}and because of {causes.more:,} more"


def _cause(cause: Cause) -> Iterator[str]:
    """A line, and those that belong below it."""
    match cause:
        case Batch():
            took = "" if cause.brings else f", which took {cause.stream} on in time,"
            yield f"batch {batch_name(cause.batch_id)} of {cause.stream}{took} came in commit {cause.commit_id}"
        case Correction():
            yield from _correction(cause)
        case Edit():
            yield _edited(cause)
        case Redeclared():
            yield f"{cause.stream}, which the query reads, was declared otherwise"
        case Replayed():
            yield "this range of the results was replayed"
        case Swept():
            which = (
                f"revision {cause.first}" if cause.first == cause.last else f"revisions {cause.first} to {cause.last}"
            )
            yield f"{which} of {cause.source} were taken up; which of them it was can no longer be told"
        case ResultChanged():
            key = f" {in_words(cause.key)}" if cause.key else ""
            at = place_shown(cause.vs, cause.timed)
            yield f"result{key} of query {cause.query} at {at} changed in commit {cause.commit_id}"
            yield f"{_change(cause.was, cause.now)}"
            yield from _causes(cause.causes, "")


def _correction(cause: Correction) -> Iterator[str]:
    where = f", {near(cause.file)}:{cause.line}" if cause.file else ""
    batch = f", batch {batch_name(cause.batch_id)}"
    undone = f" (undo of {batch_name(cause.undoes)})" if cause.undoes else ""
    if cause.revision is None:
        yield f"a version of {cause.stream} came behind what had been answered{where}{batch}"
    else:
        yield f"revision {cause.revision} of {cause.stream}{undone}{where}{batch} {_deed(cause)}"
    yield _change(cause.was, cause.now)


def _deed(cause: Correction) -> str:
    if cause.was is None:
        return "put a row in"
    return "deleted a row" if cause.now is None else "changed a row"


def _change(was: Said | None, now: Said | None) -> str:
    """From which row to which."""
    if was is None or now is None:
        return f"{'-' if now is None else '+'} {in_words(now or was or {})}"
    changed = change_in_words(was, now)
    kept = in_words({name: value for name, value in now.items() if name in was and was[name] == value})
    return f"~ {', '.join(part for part in (kept, changed) if part)}"


def _edited(cause: Edit) -> str:
    if cause.dropped:
        return "the query was dropped, or edited to another key"
    if cause.reads is not None:
        return f"query {cause.reads}, which the query reads, was edited or worked out anew"
    return "the query was worked out anew" if cause.anew else "the query was edited"


def _behind(behind: Behind) -> Iterator[str]:
    then, now = behind.then, behind.now
    what = "result" if behind.noun == "query" else "row" if behind.noun == "stream" else "version"
    count = f"{counted(now.rows or 0, what)} of {behind.source} behind it now"
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
        yield f" {_row(each)}"
    shown = sum(each.now is not None for each in behind.rows)
    if (now.rows or 0) > shown:
        yield f"   and {(now.rows or 0) - shown:,} more"


def _row(row: Row) -> str:
    if row.fate is Fate.SAME:
        return f"  {in_words(row.now or {})}"
    return _change(row.was, row.now)
