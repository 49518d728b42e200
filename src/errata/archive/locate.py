"""Finding the base rows of given keys: the index says in which buckets they may be, and only these are looked into.

A few row groups are read by this process, since a Spark job takes longer to begin than they take to read. What is more
is done by Spark's tasks, one bucket at a time; the same function looks into a bucket in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from errata.archive.bloom import LIKELY, MOST_VALUES
from errata.archive.match import matches
from errata.archive.probe import UNKNOWN, Probe, Sought, Wanted, located_schema
from errata.archive.tasks import by_spark
from errata.archive.warehouse import Warehouse
from errata.archive.wire import unpacked
from errata.archive.written import row_group_of
from errata.catalog import buckets as index
from errata.catalog.open import Catalog
from errata.intake.values import as_text
from errata.model.bucket import Bucket
from errata.model.stream import Stream

MOST_BYTES = 256 * 1024 * 1024
MOST_ROWS = 20_000_000
"""What may have to be read is left to Spark when it is more than one of these."""

MOST_GROUPS = 4_096
"""Keys of more groups than this are in nearly every bucket: no bucket is then ruled out by its groups."""

OPENING = 256 * 1024
"""What opening a file costs, in bytes that could be read instead."""

FILTER = 2
"""Bytes of Bloom filters for each row and key, about."""

TASKS = 4
"""Tasks for each core, so that none is left alone with a large part."""

_THREADS = min(4, os.cpu_count() or 1)


def locate(
    session_factory: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    stream: Stream,
    wanted: Wanted,
    buckets: Sequence[Bucket],
) -> pa.Table:
    """All rows of the buckets that have one of the wanted keys, and are at its place if that is known; rows that
    overlays mask are among them. The columns are those of `located_schema`, the rows in no particular order."""
    sought = plan(stream, wanted, buckets)
    inline = [each for each in sought if each.bucket.inline]
    files = [(warehouse.path(each.bucket.path), each) for each in sought if each.bucket.path is not None]
    probe = Probe(stream, wanted.placed(stream))
    data = index.inline_data(catalog, [each.bucket.bucket_id for each in inline])
    found = [probe.inline(each, unpacked(data[each.bucket.bucket_id])) for each in inline]
    if not files:
        return pa.concat_tables([located_schema(stream).empty_table(), *found])
    if few(each for _, each in files):
        return pa.concat_tables([*found, *by_this_process(probe, files)])
    return pa.concat_tables([*found, by_tasks(session_factory(), probe, files)])


def plan(stream: Stream, wanted: Wanted, buckets: Sequence[Bucket]) -> list[Sought]:
    """Which of the wanted keys may be in which of the buckets; buckets that can hold none are left out."""
    places = wanted.placed(stream).at
    by_place = np.argsort(places, kind="stable")
    ordered = places[by_place]
    unknown = by_place[: np.searchsorted(ordered, UNKNOWN, side="right")]
    first = np.searchsorted(ordered, [bucket.vs_min for bucket in buckets], side="left")
    last = np.searchsorted(ordered, [bucket.vs_max for bucket in buckets], side="right")
    groups = _Groups.of(stream, wanted)
    sought = []
    for bucket, start, end in zip(buckets, first.tolist(), last.tolist(), strict=True):
        known = by_place[max(start, len(unknown)) : end]
        each = Sought(bucket, groups.within(bucket, known), groups.within(bucket, unknown))
        if len(each.known) or len(each.unknown):
            sought.append(each)
    return sought


def few(sought: Iterable[Sought]) -> bool:
    """Whether so little has to be read that this process does it."""
    read, rows = 0, 0
    for each in sought:
        share = _share(each)
        rows += int(each.bucket.rows * share)
        read += OPENING + int(each.bucket.size * share)
        if len(each.unknown):
            read += FILTER * each.bucket.rows
    return read <= MOST_BYTES and rows <= MOST_ROWS


def _share(sought: Sought) -> float:
    """About how much of a bucket is read: a row group for each key whose place is known, and for each other what its
    filter lets through."""
    if len(sought.unknown) > MOST_VALUES:
        return 1.0
    groups = -(-sought.bucket.rows // row_group_of(sought.bucket.rows))
    return min(1.0, len(sought.known) / groups + len(sought.unknown) * LIKELY)


def by_this_process(probe: Probe, files: Sequence[tuple[str, Sought]]) -> list[pa.Table]:
    """What files hold of the sought, read here; Arrow lets several be decoded at once."""
    if len(files) == 1:
        return [probe.file(sought, path) for path, sought in files]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda each: probe.file(each[1], each[0]), files))


def by_tasks(session: SparkSession, probe: Probe, files: Sequence[tuple[str, Sought]]) -> pa.Table:
    """The same, read by Spark's tasks."""

    def look(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for path, sought in (files[number] for number in numbers):
            yield from probe.file(sought, path).to_batches()

    cores = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return by_spark(session, len(files), min(len(files), TASKS * cores), look, located_schema(probe.stream))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of the wanted keys, where the key tells them."""

    members: Sequence[tuple[str | None, ...]] = ()
    number: np.ndarray | None = None
    """Which of them each key is of; None when buckets are not to be ruled out by it."""

    @classmethod
    def of(cls, stream: Stream, wanted: Wanted) -> _Groups:
        if not stream.group or not set(stream.group) <= set(stream.key):
            return cls()
        texts = pa.table({name: as_text(wanted.keys[name]) for name in stream.group})
        members = texts.group_by(texts.column_names).aggregate([])
        if members.num_rows > MOST_GROUPS:
            return cls()
        listed = [members[name].to_pylist() for name in stream.group]
        return cls(list(zip(*listed, strict=True)), matches(texts, members, stream.group)[1])

    def within(self, bucket: Bucket, keys: np.ndarray) -> np.ndarray:
        """Those of the keys whose group the bucket may hold."""
        if self.number is None or not 0 < len(keys) <= MOST_VALUES:
            return keys
        numbers = self.number[keys]
        there = np.unique(numbers)
        held = np.array([bucket.groups.may_hold(self.members[number]) for number in there.tolist()])
        return keys if held.all() else keys[np.isin(numbers, there[held])]
