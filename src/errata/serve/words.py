"""Numbers, sizes, moments and commits in the words of a person."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from errata.model.commit import Cause, Commit
from errata.model.instants import DAY, SECOND, format_instant
from errata.model.revision import Op

_UNITS = ("B", "KB", "MB", "GB", "TB")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")


def counted(count: int, thing: str, things: str | None = None) -> str:
    """'1 row', '2,000 rows', 'no rows'."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}" if count else f"no {things or thing + 's'}"


def size(count: int) -> str:
    """Bytes, in the unit that leaves a number one can grasp."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    raise AssertionError("the last unit takes all")


def place(value: int | None, timed: bool) -> str:
    """A value of an order field, as Errata writes it everywhere."""
    if value is None:
        return ""
    return format_instant(value) if timed else str(value)


def place_shown(value: int | None, timed: bool) -> str:
    """The same for a table, where milliseconds will do."""
    return place(value, timed)[:23] if timed else place(value, timed)


def distance(value: int, timed: bool) -> str:
    """How far two values of an order field are apart: '3 days 00:05:10', '00:00:01.5', '70 units'."""
    if not timed:
        return counted(value, "unit")
    days, rest = divmod(value, DAY)
    seconds, micros = divmod(rest, SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if micros:
        clock += f".{micros:06d}".rstrip("0")
    return f"{counted(days, 'day')} {clock}" if days else clock


def near(text: str) -> str:
    """Paths in the text as one would write them from here."""
    return text.replace(f"{Path.cwd()}/", "")


def moment(value: int) -> str:
    """A wall-clock time to the second."""
    return format_instant(value)[:19]


def batch_name(batch_id: str) -> str:
    """A batch's id; one that is a hash is told apart by its beginning."""
    return _HASH.sub(lambda found: f"{found[0][:12]}…", batch_id)


def who(cause: Cause) -> str:
    """Who made a commit: the DAG's run and try when Airflow did, else the user and machine."""
    person = "@".join(part for part in (cause.user, cause.host) if part)
    if not cause.dag_id:
        return person
    tried = f" try {cause.try_number}" if cause.try_number is not None else ""
    return f"{'/'.join(part for part in (cause.dag_id, cause.task_id, cause.run_id) if part)}{tried}"


def deed(commit: Commit) -> str:
    """What a commit did."""
    say = _DEEDS.get(commit.cause.flow)
    if say is not None:
        return say(commit.summary)
    return ", ".join(f"{name} {value}" for name, value in commit.summary.items())


def _applied(summary: Mapping[str, object]) -> str:
    verbs = ("created", "changed", "dropped")
    parts = [f"{verb} {_names(summary[verb])}" for verb in verbs if summary.get(verb)]
    parts += [f"{verb} {_queries(found)}" for verb in verbs if (found := summary.get(f"queries_{verb}"))]
    return "; ".join(parts)


def _queries(found: object) -> str:
    if isinstance(found, int):
        return counted(found, "query", "queries")
    return f"{'queries' if isinstance(found, list) and len(found) > 1 else 'query'} {_names(found)}"


def _appended(summary: Mapping[str, object]) -> str:
    rows = counted(_number(summary, "appended"), "row")
    inline, buckets = _number(summary, "inline"), _number(summary, "buckets")
    where = f" in {counted(buckets, 'bucket')}" if buckets else ""
    kept = f" ({inline} of them inline)" if inline and inline < buckets else " (inline)" if inline else ""
    parts = [f"{rows} appended{where}{kept}"]
    for name, words in (("pending", "pending"), ("dropped", "dropped"), ("replaced", "replaced")):
        if _number(summary, name):
            parts.append(f"{_number(summary, name):,} {words}")
    if held := _number(summary, "quarantined"):
        parts.append(f"{held:,} in quarantine")
    return ", ".join(parts)


def _aged(summary: Mapping[str, object]) -> str:
    buckets, rows = _number(summary, "dropped_buckets"), _number(summary, "dropped_rows")
    of = f"query {summary['query']}: " if "query" in summary else ""
    what = "result" if of else "row"
    return f"{of}{counted(buckets, 'bucket')} with {counted(rows, what)} dropped, past the retention"


def _vacuumed(summary: Mapping[str, object]) -> str:
    buckets, files = _number(summary, "removed_buckets"), _number(summary, "removed_files")
    freed = size(_number(summary, "removed_bytes"))
    return f"{counted(buckets, 'bucket')} in {counted(files, 'file')} removed for good, {freed}"


def _compacted(summary: Mapping[str, object]) -> str:
    old, new = _number(summary, "rewritten"), _number(summary, "into")
    parts = [f"{counted(old, 'bucket')} rewritten into {new:,}"] if old or new else []
    if corrections := _number(summary, "revisions"):
        parts.append(f"{counted(corrections, 'correction')} worked in")
    return ", ".join([*parts, f"{size(_number(summary, 'bytes_before'))} became {size(_number(summary, 'bytes'))}"])


def _given_up(summary: Mapping[str, object]) -> str:
    rows, files = _number(summary, "dropped_rows"), _number(summary, "dropped_files")
    told = [counted(rows, "row")] if rows or not files else []
    told += [counted(files, "file")] if files else []
    return f"{' and '.join(told)} dropped from quarantine"


def _revised(summary: Mapping[str, object]) -> str:
    first, last = _number(summary, "first_revision"), _number(summary, "last_revision")
    which = f"revision {first}" if first == last else f"revisions {first:,} to {last:,}"
    became = [
        f"{_number(summary, name):,} {words}"
        for name, words in (
            ("inserted", "put in"),
            ("replaced", "changed"),
            ("deleted", "deleted"),
            ("dropped", "so already"),
            ("ignored", "ignored"),
            ("waiting", "waiting"),
            ("refused", "in quarantine"),
        )
        if _number(summary, name)
    ]
    return f"{which}: {', '.join(became)}"


def _undone(summary: Mapping[str, object]) -> str:
    parts = [f"undoes batch {batch_name(str(summary.get('undoes', '')))}"]
    for name, words in (
        ("deleted", "to delete"),
        ("restored", "to restore"),
        ("put_back", "to put back"),
        ("kept", "kept, changed since"),
        ("aged", "left, aged out"),
        ("withdrawn", "withdrawn"),
    ):
        if _number(summary, name):
            parts.append(f"{_number(summary, name):,} {words}")
    return ", ".join(parts)


_OPS = {Op.INSERT: "late row", Op.REPLACE: "replacement", Op.DELETE: "deletion"}


def op_words(op: Op) -> str:
    """A revision that is still to be applied, by what it does."""
    return _OPS[op]


def _mended(summary: Mapping[str, object]) -> str:
    parts = [("counters", "counter", "counters"), ("masked", "count of a bucket", "counts of buckets")]
    parts += [("figures", "bucket's figures", "buckets' figures"), ("caches", "cache", "caches")]
    parts.append(("ended", "abandoned archive", "abandoned archives"))
    told = [counted(_number(summary, name), one, many) for name, one, many in parts if _number(summary, name)]
    return f"{', '.join(told)} put right" if told else "cleared up"


def _evaluated(summary: Mapping[str, object]) -> str:
    results = counted(_number(summary, "results"), "new result")
    form = " in its new form" if summary.get("new_form") else " anew" if summary.get("anew") else ""
    as_of = _number(summary, "data_commit")
    return f"query {summary.get('query', '')}{form} answered as of commit {as_of}: {results}{_by_engine(summary)}"


def _by_engine(summary: Mapping[str, object]) -> str:
    """The engine that did the work, and why the far one had to where the near one could not."""
    engine, why = summary.get("engine"), summary.get("engine_why")
    return "" if not engine else f" ({engine}: {why})" if engine == "far" else f" ({engine})"


def _corrected(summary: Mapping[str, object]) -> str:
    query, technique = f"query {summary.get('query', '')}", summary.get("technique", "")
    as_of = f"as of commit {_number(summary, 'data_commit')}"
    if technique == "none":
        return f"{query} stays as it was published, as it declares, though its streams were corrected {as_of}"
    done = "replayed" if summary.get("replayed") else "corrected"
    changed, compared = _number(summary, "changed"), counted(_number(summary, "compared"), "result")
    told = [f"{changed:,} of {compared} came out different" if _number(summary, "compared") else "no result touched"]
    if refused := _number(summary, "refused"):
        told.append(f"{counted(refused, 'correction')} refused")
    return f"{query} {done} {as_of} ({technique}): {', '.join(told)}{_by_engine(summary)}"


_DEEDS: Mapping[str, Callable[[Mapping[str, object]], str]] = {
    "apply": _applied,
    "run": _evaluated,
    "sweep": _corrected,
    "revise": _revised,
    "undo": _undone,
    "append": _appended,
    "age-out": _aged,
    "vacuum": _vacuumed,
    "compact": _compacted,
    "doctor": _mended,
    "quarantine-drop": _given_up,
}


def _number(summary: Mapping[str, object], name: str) -> int:
    value = summary.get(name, 0)
    return value if isinstance(value, int) else 0


def _names(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
