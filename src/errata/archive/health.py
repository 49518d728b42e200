"""Buckets looked at for their health: each file read once, whole, and compared with nothing but itself.

What is found is told as `Seen`; what is to be thought of it is decided in the model. Small archives are looked at
here, large ones by Spark's tasks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from errata.archive.inspect import HIT, Ward, inspected
from errata.archive.masks import Source, sources
from errata.archive.result_inspect import ResultWard, inspected_results
from errata.archive.tasks import in_tasks
from errata.archive.warehouse import Warehouse
from errata.archive.wire import packed, unpacked
from errata.catalog.open import Catalog
from errata.model.bucket import Bucket, Groups
from errata.model.health import Figures, Seen

TASK_BYTES = 64 * 1024 * 1024
"""Buckets share a task until it has this much to read."""

JOB_TASKS = 32
"""Tasks of one job; between jobs it is told how far things are."""

_TOLD = pa.schema([("bucket", pa.int64()), ("seen", pa.string()), ("hits", pa.binary())])

OnDone = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of each bucket, and where revisions mask."""

    seen: dict[int, Seen]
    hits: pa.Table = field(default_factory=HIT.empty_table)


def look_up(warehouse: Warehouse, found: Iterable[Bucket], inline: dict[int, int]) -> dict[int, Seen]:
    """What can be told without opening anything: whether it is there, and its size. Each folder is listed once."""
    folders: defaultdict[str, list[Bucket]] = defaultdict(list)
    seen = {}
    for bucket in found:
        if bucket.path is None:
            seen[bucket.bucket_id] = Seen(inline.get(bucket.bucket_id))
        else:
            folders[bucket.path.rpartition("/")[0]].append(bucket)
    for folder, there in folders.items():
        sizes = {f"{folder}/{entry.name}": entry.size for entry in warehouse.entries(folder) if entry.file}
        seen |= {bucket.bucket_id: Seen(sizes.get(bucket.path or "")) for bucket in there}
    return seen


def look(
    session: Callable[[], SparkSession],
    catalog: Catalog,
    ward: Ward | ResultWard,
    found: Sequence[Bucket],
    on_done: OnDone = lambda _: None,
) -> Looked:
    """Read buckets and tell what is in them."""
    size, told = sum(bucket.size for bucket in found), [_TOLD.empty_table()]
    tasks = list(_tasks(sources(catalog, found)))
    for start in range(0, len(tasks), JOB_TASKS):
        some = tasks[start : start + JOB_TASKS]
        told.append(in_tasks(session, size, len(some), partial(_told, ward, some), _TOLD))
        on_done(sum(map(len, some)))
    return _heard(pa.concat_tables(told))


def _tasks(wanted: Sequence[Source]) -> Iterator[list[Source]]:
    """Neighbours share a task, since mostly the same overlays speak of them."""
    task: list[Source] = []
    size = 0
    for source in sorted(wanted, key=lambda each: (each.bucket.vs_min, each.bucket.bucket_id)):
        if task and size + source.bucket.size > TASK_BYTES:
            yield task
            task, size = [], 0
        task.append(source)
        size += source.bucket.size
    if task:
        yield task


def _told(
    ward: Ward | ResultWard, tasks: Sequence[Sequence[Source]], numbers: Iterable[int]
) -> Iterator[pa.RecordBatch]:
    shelf: dict[int, pa.Table] = {}
    for source in (each for number in numbers for each in tasks[number]):
        if isinstance(ward, Ward):
            seen, hits = inspected(ward, source, shelf)
        else:
            seen, hits = inspected_results(ward, source), HIT.empty_table()
        row = {"bucket": source.bucket.bucket_id, "seen": _spoken(seen), "hits": packed(hits)}
        yield pa.RecordBatch.from_pylist([row], schema=_TOLD)


def _heard(told: pa.Table) -> Looked:
    rows = told.to_pylist()
    hits = [HIT.empty_table(), *(unpacked(row["hits"]) for row in rows)]
    return Looked({row["bucket"]: _understood(row["seen"]) for row in rows}, pa.concat_tables(hits))


def _spoken(seen: Seen) -> str:
    figures = seen.figures
    told: dict[str, object] = {name: getattr(seen, name) for name in _PLAIN}
    if figures is not None:
        groups = figures.groups
        told["groups"] = [groups.low, groups.high, groups.members_json()]
        told["figures"] = [figures.rows, figures.vs_min, figures.vs_max]
        told["ends"] = [figures.revisions, figures.masks, figures.content, figures.ends]
    return json.dumps(told)


_PLAIN = ("size", "checksum", "fault", "nulls", "disordered", "unfiltered", "counting", "masked")


def _understood(text: str) -> Seen:
    told = json.loads(text)
    figures = None
    if "figures" in told:
        ends = [None if each is None else (each[0], each[1]) for each in told["ends"]]
        rows, low, high = told["figures"]
        figures = Figures(rows, low, high, Groups.of(*told["groups"]), *ends)
    plain: dict[str, Any] = {name: told[name] for name in _PLAIN}
    plain |= {name: tuple(told[name]) for name in ("nulls", "unfiltered")}
    return Seen(figures=figures, **plain)
