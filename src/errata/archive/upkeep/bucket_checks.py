"""The inspection of many buckets by tasks, and the check that base buckets and overlays agree.

Each bucket is read once. What is found is a `BucketInspection`; whether it is a fault is decided in `model.findings`.
Small archives are inspected by this process, large ones by Spark's tasks. The agreement of revisions is checked on what
the inspections report: each revision masks exactly one row, and each key has at most one row that counts.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_frames import run_tasks
from errata.archive.bucket_writer import order_values
from errata.archive.overlays import BUCKET, BucketSource, Overlays, bucket_sources, identity_columns, read_overlays
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, ScanBuckets
from errata.archive.schemas import LIVE, REVISION, pack_table, unpack_table
from errata.archive.tables import key_numbers
from errata.archive.upkeep.inspection import MASK_HIT_SCHEMA, InspectionContext, inspect_bucket, mask_rows
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.warehouse import Warehouse
from errata.engine.budget import EngineDemand
from errata.engine.engines import Engines
from errata.engine.frames import fetch_rows, group_sql, select_sql
from errata.engine.plans.node_rows import quote_name
from errata.intake.convert import canonical_text
from errata.intake.types import arrow_schema
from errata.model.bucket import Bucket, Groups, Resolution
from errata.model.consistency import RESTORE_BACKUP
from errata.model.findings import (
    MAX_EXAMPLES,
    BucketFigures,
    BucketInspection,
    Finding,
    FindingKind,
    InspectedArchive,
    Severity,
)
from errata.model.stream import Stream
from errata.model.time import LOWEST, Interval

INSPECTION_TASK_BYTES = 64 * 1024 * 1024
"""Bytes that a task has to read before it gets no further bucket."""

TASKS_PER_JOB = 32
"""Tasks of one job; progress is reported between jobs."""

_REPORT_SCHEMA = pa.schema([("bucket", pa.int64()), ("seen", pa.string()), ("hits", pa.binary())])

DoneCallback = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """The inspection of each bucket, and the rows of base buckets at places of masks."""

    seen: dict[int, BucketInspection]
    hits: pa.Table = field(default_factory=MASK_HIT_SCHEMA.empty_table)


def inspect_sizes(warehouse: Warehouse, found: Iterable[Bucket], inline: dict[int, int]) -> dict[int, BucketInspection]:
    """Whether each bucket is there, and its size, without opening it. Each folder is listed once."""
    folders: defaultdict[str, list[Bucket]] = defaultdict(list)
    seen = {}
    for bucket in found:
        if bucket.path is None:
            seen[bucket.bucket_id] = BucketInspection(inline.get(bucket.bucket_id))
        else:
            folders[bucket.path.rpartition("/")[0]].append(bucket)
    for folder, there in folders.items():
        sizes = {f"{folder}/{entry.name}": entry.size for entry in warehouse.entries(folder) if entry.file}
        seen |= {bucket.bucket_id: BucketInspection(sizes.get(bucket.path or "")) for bucket in there}
    return seen


def inspect_buckets(
    session: Callable[[], SparkSession],
    catalog: Catalog,
    context: InspectionContext,
    found: Sequence[Bucket],
    on_done: DoneCallback = lambda _: None,
) -> InspectionResult:
    """Read and inspect buckets."""
    size, told = sum(bucket.size for bucket in found), [_REPORT_SCHEMA.empty_table()]
    tasks = list(_batch_sources(bucket_sources(catalog, found)))
    for start in range(0, len(tasks), TASKS_PER_JOB):
        some = tasks[start : start + TASKS_PER_JOB]
        told.append(run_tasks(session, size, len(some), partial(_inspect_tasks, context, some), _REPORT_SCHEMA))
        on_done(sum(map(len, some)))
    return _collect_inspections(pa.concat_tables(told))


def _batch_sources(wanted: Sequence[BucketSource]) -> Iterator[list[BucketSource]]:
    """Tasks of neighbouring buckets, since mostly the same overlays mask their rows."""
    task: list[BucketSource] = []
    size = 0
    for source in sorted(wanted, key=lambda each: (each.bucket.vs_min, each.bucket.bucket_id)):
        if task and size + source.bucket.size > INSPECTION_TASK_BYTES:
            yield task
            task, size = [], 0
        task.append(source)
        size += source.bucket.size
    if task:
        yield task


def _inspect_tasks(
    context: InspectionContext,
    tasks: Sequence[Sequence[BucketSource]],
    numbers: Iterable[int],
) -> Iterator[pa.RecordBatch]:
    cache: dict[int, pa.Table] = {}
    for source in (each for number in numbers for each in tasks[number]):
        seen, hits = inspect_bucket(context, source, cache)
        row = {"bucket": source.bucket.bucket_id, "seen": _seen_to_json(seen), "hits": pack_table(hits)}
        yield pa.RecordBatch.from_pylist([row], schema=_REPORT_SCHEMA)


def _collect_inspections(told: pa.Table) -> InspectionResult:
    rows = told.to_pylist()
    hits = [MASK_HIT_SCHEMA.empty_table(), *(unpack_table(row["hits"]) for row in rows)]
    return InspectionResult({row["bucket"]: _seen_from_json(row["seen"]) for row in rows}, pa.concat_tables(hits))


def _seen_to_json(seen: BucketInspection) -> str:
    figures = seen.figures
    told: dict[str, object] = {name: getattr(seen, name) for name in _PLAIN_FIELDS}
    if figures is not None:
        groups = figures.groups
        told["groups"] = [groups.low, groups.high, groups.members_json()]
        told["figures"] = [figures.rows, figures.vs_min, figures.vs_max]
        told["ends"] = [figures.revisions, figures.masks, figures.content, figures.ends]
        told["resolution"] = [figures.resolution.rate, figures.resolution.hashes.start, figures.resolution.hashes.end]
    return json.dumps(told)


_PLAIN_FIELDS = ("size", "checksum", "fault", "nulls", "disordered", "unfiltered", "counting", "masked")


def _seen_from_json(text: str) -> BucketInspection:
    told = json.loads(text)
    figures = None
    if "figures" in told:
        revisions, masks, content, ends = (None if each is None else (each[0], each[1]) for each in told["ends"])
        rows, low, high = told["figures"]
        rate, *hashes = told["resolution"]
        resolution, groups = Resolution(rate, Interval(*hashes)), Groups.of(*told["groups"])
        figures = BucketFigures(rows, low, high, groups, revisions, masks, content, ends, resolution)
    plain: dict[str, Any] = {name: told[name] for name in _PLAIN_FIELDS}
    plain |= {name: tuple(told[name]) for name in ("nulls", "unfiltered")}
    return BucketInspection(figures=figures, **plain)


# Whether buckets and overlays agree.

MAX_SUSPECT_HASHES = 1_000
"""Hashes occurring more than once whose keys are compared, at most."""


@dataclass(frozen=True, slots=True)
class LiveOverlays:
    """Live overlays, read."""

    stream: Stream
    rows: pa.Table
    aged_to: int | None

    @classmethod
    def read(
        cls, catalog: Catalog, warehouse: Warehouse, standing: StreamState, overlays: Sequence[Bucket]
    ) -> LiveOverlays:
        """Read these overlays."""
        stream = standing.stream
        return cls(stream, read_overlays(stream, warehouse, bucket_sources(catalog, overlays)), standing.aged_to)

    @property
    def overlays(self) -> Overlays:
        return Overlays(self.stream, self.rows)

    def added_counts(self) -> Counter[int]:
        """By overlay, how many rows it added, including those that its own commit superseded."""
        return Counter(self.rows.filter(self.rows[LIVE])[BUCKET].to_pylist())

    def live_counts(self) -> Counter[int]:
        """By overlay, how many of these count now."""
        return Counter(self.overlays.live_rows(self.aged_to)[BUCKET].to_pylist())

    def findings(self, inspected: InspectedArchive, hits: pa.Table) -> Iterator[Finding]:
        """Revisions that occur twice, and those that mask no row or several. `hits` are the rows of base buckets at
        places of masks."""
        numbers = self.rows[REVISION].to_numpy()
        single, counts = np.unique(numbers, return_counts=True)
        if len(twice := single[counts > 1]):
            what = f"{_revision_list(twice)} are there twice"
            why = "each revision was applied once: rows that it brings may be there twice"
            yield _damage_finding(inspected, FindingKind.NUMBERS, what, "overlays", why)
            return
        masks, after = self._left_at_masks(hits)
        for wrong, told in ((after < 0, "no row"), (after > 0, "more than one row")):
            if wrong.any():
                places = order_values(masks.filter(pa.array(wrong))[self.stream.order])
                where = f"overlays, {inspected.span(int(places.min()), int(places.max()))}"
                why = "scans show what has been corrected, or leave out what has not been"
                yield _damage_finding(
                    inspected,
                    FindingKind.MASKS,
                    f"{_revision_list(masks[REVISION].to_numpy()[wrong])} mask {told}",
                    where,
                    why,
                )

    def _left_at_masks(self, hits: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The masks at places that have not been aged out, and how many rows are left at the place after each:
        additions and masks of a place are counted in the order of their revision numbers."""
        columns, least = identity_columns(self.stream), LOWEST if self.aged_to is None else self.aged_to
        masks, brought = mask_rows(self.stream, self.rows), self.rows.filter(self.rows[LIVE])
        places = pa.concat_tables([masks.select(columns), brought.select(columns)])
        codes = key_numbers(places)
        own, new = codes[: masks.num_rows], codes[masks.num_rows :]
        numbers = masks[REVISION].to_numpy()
        by_number = np.argsort(numbers)
        at = by_number[np.searchsorted(numbers[by_number], hits["revision"].to_numpy())]
        code = np.concatenate([own, new, own[at]])
        # A base row came after the revision of its floor, and a row that a revision adds after the one that it masks.
        came = [2 * brought[REVISION].to_numpy() + 1, 2 * hits["floor"].to_numpy() + 1]
        when = np.concatenate([2 * numbers, *came])
        change = np.ones(len(code), dtype=np.int64)
        change[: masks.num_rows] = -1
        sequence = np.lexsort((when, code))
        total = np.cumsum(change[sequence])
        starts = np.diff(code[sequence], prepend=-1) > 0
        before = np.where(starts, total - change[sequence], 0)
        left = np.empty(len(code), dtype=np.int64)
        left[sequence] = total - before[np.maximum.accumulate(np.where(starts, np.arange(len(code)), 0))]
        there = order_values(masks[self.stream.order]) >= least
        return masks.filter(pa.array(there)), left[: masks.num_rows][there]


def duplicate_key_findings(
    engines: Engines,
    catalog: Catalog,
    warehouse: Warehouse,
    inspected: InspectedArchive,
    scan: ArchiveScan,
    opened: ScanBuckets,
) -> Iterator[Finding]:
    """Keys of which more than one row counts."""
    stream = scan.state.stream
    # A scan does not mask rows of overlays that have no superseded rows by the index; the index is not trusted here.
    doubted = replace(opened, overlays=[replace(each, masked=max(each.masked, 1)) for each in opened.overlays])
    found, _ = engines.run(
        EngineDemand.of(opened.all),
        lambda session: _duplicate_keys(scan_rows(session, catalog, warehouse, scan, doubted), stream),
    )
    if not found.num_rows:
        return
    texts = zip(*(canonical_text(found[name]).to_pylist() for name in stream.key), strict=True)
    keys = [", ".join(f"{name}={value}" for name, value in zip(stream.key, row, strict=True)) for row in texts]
    more = f" and {len(keys) - MAX_EXAMPLES:,} more" if len(keys) > MAX_EXAMPLES else ""
    what = f"more than one row counts of {len(keys):,} key{'' if len(keys) == 1 else 's'}"
    why = "corrections name a row by its key, and answers count it twice"
    yield _damage_finding(inspected, FindingKind.DOUBLE, what, "; ".join(keys[:MAX_EXAMPLES]) + more, why)


def _duplicate_keys(rows: DataFrame, stream: Stream) -> pa.Table:
    """Keys that occur more than once: first by a hash, which is little to shuffle, then by the keys of repeated
    hashes."""
    key = [quote_name(name) for name in stream.key]
    hashed = select_sql(rows, "*", f"xxhash64({', '.join(key)}) AS _hash")
    hashes = fetch_rows(_repeated_rows(hashed, ["_hash"]).limit(MAX_SUSPECT_HASHES))["_hash"].to_pylist()
    if not hashes:
        return arrow_schema(stream).empty_table()
    some = hashed.filter(f"_hash IN ({', '.join(f'{each}L' for each in hashes)})")
    return fetch_rows(_repeated_rows(some, key).orderBy(*key))


def _repeated_rows(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return group_sql(rows, columns, ["count(*) AS _count"]).filter("_count > 1")


def _revision_list(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, np.sort(numbers)[:MAX_EXAMPLES].tolist()))
    return f"revisions {shown}{'' if len(numbers) <= MAX_EXAMPLES else f' and {len(numbers) - MAX_EXAMPLES:,} more'}"


def _damage_finding(inspected: InspectedArchive, kind: FindingKind, what: str, where: str, why: str) -> Finding:
    return Finding(inspected.name, kind, what, where, why, RESTORE_BACKUP, severity=Severity.DAMAGE)
