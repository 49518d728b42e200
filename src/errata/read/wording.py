"""Sizes, times, identifiers and commits as text for people, and the formats in which rows are printed. Uses only the
model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from errata.errors import count_text
from errata.model.batch import Op
from errata.model.commit import Cause, Commit
from errata.model.time import DAY, SECOND, format_instant

_BYTE_UNITS = ("B", "KB", "MB", "GB", "TB")
_CONTENT_HASH = re.compile(r"\b[0-9a-f]{64}\b")


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class ExportFormat(StrEnum):
    """How many rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def byte_size_text(count: int) -> str:
    """Bytes in a unit that leaves a small number."""
    amount = float(count)
    for unit in _BYTE_UNITS:
        if amount < 1000 or unit == _BYTE_UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    raise AssertionError("the last unit takes all")


def event_time_text(value: int | None, timed: bool) -> str:
    """A value of an order field in full."""
    if value is None:
        return ""
    return format_instant(value) if timed else str(value)


def event_time_short(value: int | None, timed: bool) -> str:
    """The same to the millisecond, for tables."""
    return event_time_text(value, timed)[:23] if timed else event_time_text(value, timed)


def event_time_distance(value: int, timed: bool) -> str:
    """The distance of two values of an order field: '3 days 00:05:10', '00:00:01.5', '70 units'."""
    if not timed:
        return count_text(value, "unit")
    days, rest = divmod(value, DAY)
    seconds, micros = divmod(rest, SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if micros:
        clock += f".{micros:06d}".rstrip("0")
    return f"{count_text(days, 'day')} {clock}" if days else clock


def relative_paths(text: str) -> str:
    """The text with paths relative to the working directory."""
    return text.replace(f"{Path.cwd()}/", "")


def wall_time(value: int) -> str:
    """A wall-clock time to the second."""
    return format_instant(value)[:19]


def short_batch_id(batch_id: str) -> str:
    """A batch's id; one that is a hash is shortened."""
    return _CONTENT_HASH.sub(lambda found: f"{found[0][:12]}…", batch_id)


def commit_author(cause: Cause) -> str:
    """Who made a commit: the DAG's run and try when Airflow did, else the user and machine."""
    person = "@".join(part for part in (cause.user, cause.host) if part)
    if not cause.dag_id:
        return person
    tried = f" try {cause.try_number}" if cause.try_number is not None else ""
    return f"{'/'.join(part for part in (cause.dag_id, cause.task_id, cause.run_id) if part)}{tried}"


def commit_summary(commit: Commit) -> str:
    """What a commit did. The counts of a flow without a text of its own are listed by name."""
    say = _SUMMARIES.get(commit.cause.flow)
    if say is not None:
        return say(commit.summary)
    return ", ".join(f"{name} {value}" for name, value in commit.summary.items())


def _apply_summary(summary: Mapping[str, object]) -> str:
    verbs = ("created", "changed", "dropped")
    parts = [f"{verb} {_joined_names(summary[verb])}" for verb in verbs if summary.get(verb)]
    parts += [f"{verb} {_query_names(found)}" for verb in verbs if (found := summary.get(f"queries_{verb}"))]
    return "; ".join(parts)


def _query_names(found: object) -> str:
    if isinstance(found, int):
        return count_text(found, "query", "queries")
    return f"{'queries' if isinstance(found, list) and len(found) > 1 else 'query'} {_joined_names(found)}"


def _append_summary(summary: Mapping[str, object]) -> str:
    rows = count_text(_summary_count(summary, "appended"), "row")
    inline, buckets = _summary_count(summary, "inline"), _summary_count(summary, "buckets")
    where = f" in {count_text(buckets, 'bucket')}" if buckets else ""
    kept = f" ({inline} of them inline)" if inline and inline < buckets else " (inline)" if inline else ""
    parts = [f"{rows} appended{where}{kept}"]
    for name, words in (("pending", "pending"), ("dropped", "dropped"), ("replaced", "replaced")):
        if _summary_count(summary, name):
            parts.append(f"{_summary_count(summary, name):,} {words}")
    if (held := _summary_count(summary, "held")) > 0:
        parts.append(f"{held:,} remembered by the merge")
    for name, words in (("disagreements", "disagreed about"), ("agreed", "agreed about again")):
        if _summary_count(summary, name):
            parts.append(f"{_summary_count(summary, name):,} {words}")
    if held := _summary_count(summary, "quarantined"):
        parts.append(f"{held:,} in quarantine")
    return ", ".join(parts)


def _age_out_summary(summary: Mapping[str, object]) -> str:
    buckets, rows = _summary_count(summary, "dropped_buckets"), _summary_count(summary, "dropped_rows")
    of = f"query {summary['query']}: " if "query" in summary else ""
    what = "result" if of else "row"
    return f"{of}{count_text(buckets, 'bucket')} with {count_text(rows, what)} dropped, past the retention"


def _vacuum_summary(summary: Mapping[str, object]) -> str:
    if "built_buckets" in summary:
        built, dropped = _summary_count(summary, "built_buckets"), _summary_count(summary, "dropped_buckets")
        made = f"{count_text(built, 'smaller version')} of buckets built, "
        return f"{made}{byte_size_text(_summary_count(summary, 'built_bytes'))}, and {dropped:,} dropped"
    if "remaining_bytes" in summary:
        rows, left = _summary_count(summary, "dropped_rows"), _summary_count(summary, "remaining_rows")
        return f"{count_text(rows, 'row')} purged, of which a sample of {left:,} stays"
    buckets, files = _summary_count(summary, "removed_buckets"), _summary_count(summary, "removed_files")
    freed = byte_size_text(_summary_count(summary, "removed_bytes"))
    return f"{count_text(buckets, 'bucket')} in {count_text(files, 'file')} removed for good, {freed}"


def _compaction_summary(summary: Mapping[str, object]) -> str:
    old, new = _summary_count(summary, "rewritten"), _summary_count(summary, "into")
    parts = [f"{count_text(old, 'bucket')} rewritten into {new:,}"] if old or new else []
    if corrections := _summary_count(summary, "revisions"):
        parts.append(f"{count_text(corrections, 'correction')} worked in")
    return ", ".join(
        [
            *parts,
            f"{byte_size_text(_summary_count(summary, 'bytes_before'))} became "
            f"{byte_size_text(_summary_count(summary, 'bytes'))}",
        ]
    )


def _quarantine_drop_summary(summary: Mapping[str, object]) -> str:
    rows, files = _summary_count(summary, "dropped_rows"), _summary_count(summary, "dropped_files")
    told = [count_text(rows, "row")] if rows or not files else []
    told += [count_text(files, "file")] if files else []
    return f"{' and '.join(told)} dropped from quarantine"


def _revise_summary(summary: Mapping[str, object]) -> str:
    first, last = _summary_count(summary, "first_revision"), _summary_count(summary, "last_revision")
    which = f"revision {first}" if first == last else f"revisions {first:,} to {last:,}"
    became = [
        f"{_summary_count(summary, name):,} {words}"
        for name, words in (
            ("inserted", "put in"),
            ("replaced", "changed"),
            ("deleted", "deleted"),
            ("dropped", "so already"),
            ("ignored", "ignored"),
            ("waiting", "waiting"),
            ("refused", "in quarantine"),
        )
        if _summary_count(summary, name)
    ]
    return f"{which}: {', '.join(became)}"


def _undo_summary(summary: Mapping[str, object]) -> str:
    parts = [f"undoes batch {short_batch_id(str(summary.get('undoes', '')))}"]
    for name, words in (
        ("deleted", "to delete"),
        ("restored", "to restore"),
        ("put_back", "to put back"),
        ("kept", "kept, changed since"),
        ("aged", "left, aged out"),
        ("withdrawn", "withdrawn"),
    ):
        if _summary_count(summary, name):
            parts.append(f"{_summary_count(summary, name):,} {words}")
    return ", ".join(parts)


_REVISION_OP_TEXTS = {Op.INSERT: "late row", Op.REPLACE: "replacement", Op.DELETE: "deletion"}


def revision_op_text(op: Op) -> str:
    """A pending revision by its operation."""
    return _REVISION_OP_TEXTS[op]


def _doctor_summary(summary: Mapping[str, object]) -> str:
    parts = [("counters", "counter", "counters"), ("masked", "count of a bucket", "counts of buckets")]
    parts += [("figures", "bucket's figures", "buckets' figures"), ("caches", "cache", "caches")]
    parts.append(("ended", "abandoned archive", "abandoned archives"))
    told = [
        count_text(_summary_count(summary, name), one, many)
        for name, one, many in parts
        if _summary_count(summary, name)
    ]
    return f"{', '.join(told)} put right" if told else "cleared up"


def _evaluation_summary(summary: Mapping[str, object]) -> str:
    results = count_text(_summary_count(summary, "results"), "new result")
    form = " in its new form" if summary.get("new_form") else " anew" if summary.get("anew") else ""
    as_of = _summary_count(summary, "data_commit")
    told = f"query {summary.get('query', '')}{form} answered as of commit {as_of}: {results}{_skip_suffix(summary)}"
    return f"{told}{_engine_suffix(summary)}"


def _skip_suffix(summary: Mapping[str, object]) -> str:
    """What a query that is a feed has left out."""
    if "skipped_to" not in summary:
        return ""
    ends = [_summary_count(summary, name) for name in ("skipped_from", "skipped_to")]
    after, to = (event_time_short(each, bool(summary.get("timed"))) for each in ends)
    return f", those after {after} and before {to} skipped"


def _engine_suffix(summary: Mapping[str, object]) -> str:
    """The engine that did the work, and why the far one was used, if the near one could not be."""
    engine, why = summary.get("engine"), summary.get("engine_why")
    return "" if not engine else f" ({engine}: {why})" if engine == "far" else f" ({engine})"


def _sweep_summary(summary: Mapping[str, object]) -> str:
    query, technique = f"query {summary.get('query', '')}", summary.get("technique", "")
    as_of = f"as of commit {_summary_count(summary, 'data_commit')}"
    if technique == "none":
        return f"{query} stays as it was published, as it declares, though its streams were corrected {as_of}"
    done = "replayed" if summary.get("replayed") else "corrected"
    changed, compared = _summary_count(summary, "changed"), count_text(_summary_count(summary, "compared"), "result")
    told = [
        f"{changed:,} of {compared} came out different" if _summary_count(summary, "compared") else "no result touched"
    ]
    if refused := _summary_count(summary, "refused"):
        told.append(f"{count_text(refused, 'correction')} refused")
    return f"{query} {done} {as_of} ({technique}): {', '.join(told)}{_engine_suffix(summary)}"


def _feeds_summary(summary: Mapping[str, object]) -> str:
    verbs = ("attached", "detached", "trusted")
    return "; ".join(f"feed {_joined_names(summary[verb])} {verb}" for verb in verbs if verb in summary)


_SUMMARIES: Mapping[str, Callable[[Mapping[str, object]], str]] = {
    "apply": _apply_summary,
    "run": _evaluation_summary,
    "sweep": _sweep_summary,
    "revise": _revise_summary,
    "undo": _undo_summary,
    "append": _append_summary,
    "age-out": _age_out_summary,
    "vacuum": _vacuum_summary,
    "compact": _compaction_summary,
    "doctor": _doctor_summary,
    "feeds": _feeds_summary,
    "quarantine-drop": _quarantine_drop_summary,
}


def _summary_count(summary: Mapping[str, object], name: str) -> int:
    value = summary.get(name, 0)
    return value if isinstance(value, int) else 0


def _joined_names(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
