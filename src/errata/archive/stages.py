"""The stages of an append, as functions from Arrow batches to Arrow batches that Spark runs in its tasks.

read: splits to typed rows, each with its slot; late rows, corrections and faults become asides.
settle: rows sorted by key to rows without duplicates (a stage of its own only where the key lacks the order field).
finish: rows sorted in stream order to buckets; asides to buckets of pending revisions and to the batch's faults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.settle import settled
from errata.archive.wire import (
    BAD,
    Intent,
    Said,
    as_aside,
    as_rows,
    conformed,
    late_inserts,
    numbered_schema,
    opened_aside,
    packed,
    pending_schema,
    told,
    told_bucket,
    unpacked,
    without_asides,
)
from errata.archive.written import POS, cut, order_values
from errata.errors import BadFile, ErrataError
from errata.intake.arrow_types import arrow_schema, arrow_type
from errata.intake.layout import FileLayout
from errata.intake.read import SplitRows, read_split
from errata.model.batch import Split, position
from errata.model.bucket import Role
from errata.model.instants import format_duration, format_instant
from errata.model.interval import HIGHEST, LOWEST
from errata.model.stream import ARRIVAL

BATCH_ROWS = 65_536
SPOOL_BYTES = 4 * 1024 * 1024
"""Faults of more than this go to a file that the driver reads piece by piece."""

RANK = "_rank"
BEFORE_ALL = -1

Batches = Iterator[pa.RecordBatch]


def read(intent: Intent, splits: Mapping[int, tuple[Split, FileLayout]], batches: Batches) -> Batches:
    """Read the splits whose numbers come in."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rows, asides = split_tables(intent, *splits[number])
            for table in (*rows, *asides):
                yield from table.to_batches(BATCH_ROWS)


def archived(intent: Intent, batches: Batches) -> Batches:
    """Rows that are in the archive already, as witnesses against duplicates."""
    for batch in batches:
        table = conformed(pa.Table.from_batches([batch]), arrow_schema(intent.stream))
        if table.num_rows:
            yield from as_rows(intent, table, np.full(table.num_rows, -1)).to_batches()


def settle(intent: Intent, batches: Batches) -> Batches:
    """Rows sorted by key and position: duplicates become asides or nothing, the others pass."""
    asides: list[bytes] = []
    faults = _Faults()
    for found in settled(without_asides(batches, asides), intent.stream):
        yield from found.fresh.to_batches(BATCH_ROWS)
        faults.add(found.conflicts, found.dropped, found.replaced)
        if found.replacing.num_rows:
            faults.replacing.append(_replacing(intent, found.replacing))
    for aside in asides:
        yield from as_aside(intent, 0, *opened_aside(aside)).to_batches()
    for said, blob in faults.blobs():
        yield from as_aside(intent, 0, said, blob).to_batches()


def finish(intent: Intent, settles: bool, batches: Batches) -> Batches:
    """Rows in stream order to buckets; what comes out are rows of `wire.told_schema`."""
    asides: list[bytes] = []
    faults = _Faults()
    slot = -1

    def fresh() -> Iterator[pa.Table]:
        nonlocal slot
        for table in without_asides(batches, asides):
            slot = table["_slot"][0].as_py()
            yield table

    def unique() -> Iterator[pa.Table]:
        for found in settled(fresh(), intent.stream):
            faults.add(found.conflicts, found.dropped, found.replaced)
            if found.replacing.num_rows:
                faults.replacing.append(_replacing(intent, found.replacing))
            yield found.fresh

    stored = [*intent.stream.names, POS]
    rows = (table.select(stored) for table in (unique() if settles else fresh()))
    for bucket in cut(rows, intent.stream.bucket_rows):
        yield told_bucket(slot, intent.writer.write(bucket, Role.BASE))
    for place, blobs in ((slot, list(faults.blobs())), (intent.aside_slot, list(map(opened_aside, asides)))):
        pending = [_ranked(said, unpacked(blob)) for said, blob in blobs if said in (Said.PENDING, Said.REPLACING)]
        yield from _pending_buckets(intent, place, pending)
        yield from _told_faults(intent, [unpacked(blob) for said, blob in blobs if said is Said.BAD])
        for said, blob in blobs:
            if said in (Said.LINES, Said.COUNT, Said.FAILED):
                yield told(said, data=blob)


def split_tables(intent: Intent, split: Split, layout: FileLayout) -> tuple[list[pa.Table], list[pa.Table]]:
    """A split's rows for the archive, and asides about everything else in it, or about why it cannot be read."""
    try:
        found = read_split(split, layout, intent.stream)
    except ErrataError as error:
        of_file = isinstance(error, BadFile)
        told = json.dumps(
            {"what": error.what, "where": error.where, "why": error.why, "how": error.how, "file": of_file}
        )
        return [], [as_aside(intent, 0, Said.FAILED, told.encode())]
    tables = list(_sorted_out(intent, split, found))
    return tables[:1], tables[1:]


def failure_of(blob: bytes) -> ErrataError:
    """The error that a task told of."""
    told = json.loads(blob)
    kind = BadFile if told["file"] else ErrataError
    return kind(told["what"], where=told["where"], why=told["why"], how=told["how"])


class _Faults:
    """What settling found, gathered over a partition."""

    def __init__(self) -> None:
        self.replacing: list[pa.Table] = []
        self._conflicts: list[np.ndarray] = []
        self._dropped = 0
        self._replaced = 0

    def add(self, conflicts: np.ndarray, dropped: int, replaced: int) -> None:
        if len(conflicts):
            self._conflicts.append(conflicts)
        self._dropped += dropped
        self._replaced += replaced

    def blobs(self) -> Iterator[tuple[Said, bytes]]:
        for table in self.replacing:
            yield Said.REPLACING, packed(table)
        if self._conflicts:
            pairs = np.concatenate(self._conflicts)
            absent = pa.nulls(len(pairs), pa.string())
            yield Said.BAD, packed(pa.table([pairs[:, 0], pairs[:, 1], absent, absent], schema=BAD))
        if self._dropped or self._replaced:
            yield Said.COUNT, counted(dropped=self._dropped, replaced=self._replaced)


def counted(**counts: int) -> bytes:
    """Named numbers as a blob."""
    return ",".join(f"{name}={count}" for name, count in counts.items()).encode()


def counts_of(blob: bytes) -> dict[str, int]:
    return {name: int(count) for name, _, count in (part.partition("=") for part in blob.decode().split(","))}


def _sorted_out(intent: Intent, split: Split, found: SplitRows) -> Iterator[pa.Table]:
    """A split's rows for the archive, and one aside for each kind of other thing in it."""
    stream = intent.stream
    rows = _with_arrival(intent, found.rows)
    order = order_values(rows[stream.order])
    places = found.ordinals + position(split.number, 0)
    ahead = _out_of_place(intent, order)
    late = np.zeros(len(order), dtype=bool) if intent.stable is None else order < intent.stable
    late &= ~ahead
    on_time = ~(late | ahead)
    if on_time.all():
        yield as_rows(intent, rows, places)
    else:
        yield as_rows(intent, rows.filter(pa.array(on_time)), places[on_time])
    bad = list(found.bad) + [
        (ordinal, text, _too_far(intent, moment))
        for (ordinal, text), moment in zip(_quoted(found, found.ordinals[ahead]), order[ahead].tolist(), strict=True)
    ]
    pending = [late_inserts(stream, rows.filter(pa.array(late)), places[late])] if late.any() else []
    corrections, too_far = _corrections(intent, found, split)
    bad += [
        (ordinal, text, _too_far(intent, moment))
        for (ordinal, text), moment in zip(_quoted(found, too_far[:, 0]), too_far[:, 1].tolist(), strict=True)
    ]
    if corrections.num_rows:
        pending.append(corrections)
    records = len(order) + found.corrections.num_rows + len(found.bad)
    yield as_aside(intent, 0, Said.LINES, counted(split=split.number, lines=found.lines, records=records))
    if pending:
        yield as_aside(intent, 0, Said.PENDING, packed(pa.concat_tables(pending)))
    if bad:
        yield as_aside(intent, 0, Said.BAD, packed(_bad_table(split, bad)))


def _with_arrival(intent: Intent, rows: pa.Table) -> pa.Table:
    """Rows that come without an order field get the time of their arrival."""
    if ARRIVAL in rows.column_names or not intent.stream.ordered_on_arrival:
        return rows
    kind = arrow_type(intent.stream.order_type)
    return rows.append_column(ARRIVAL, pa.repeat(pa.scalar(intent.arrival, pa.int64()), rows.num_rows).cast(kind))


def _corrections(intent: Intent, found: SplitRows, split: Split) -> tuple[pa.Table, np.ndarray]:
    """Corrections as they are kept, and the ordinal and order of those that would move a row too far ahead."""
    table = found.corrections.append_column(
        POS, pa.array(found.correction_ordinals + position(split.number, 0), pa.int64())
    )
    schema = pending_schema(intent.stream)
    table = table.select(schema.names).cast(schema)
    moved = pc.fill_null(table[intent.stream.order].cast(pa.int64()), intent.newest).to_numpy()
    ahead = _out_of_place(intent, moved) & pc.not_equal(table["_op"], "delete").to_numpy()
    return table.filter(pa.array(~ahead)), np.column_stack((found.correction_ordinals[ahead], moved[ahead]))


def _out_of_place(intent: Intent, order: np.ndarray) -> np.ndarray:
    """Which order fields are too far ahead, or where no half-open interval of 64 bits can hold them."""
    beyond: np.ndarray = (order > intent.newest) | (order == LOWEST)
    return beyond


def _quoted(found: SplitRows, ordinals: np.ndarray) -> list[tuple[int, str]]:
    texts = found.texts(ordinals.tolist()) if len(ordinals) else {}
    return [(ordinal, texts[ordinal]) for ordinal in ordinals.tolist()]


def _bad_table(split: Split, bad: Sequence[tuple[int, str, str]]) -> pa.Table:
    ordinals, texts, reasons = zip(*bad, strict=True)
    places = np.asarray(ordinals, dtype=np.int64) + position(split.number, 0)
    return pa.table([places, pa.nulls(len(bad), pa.int64()), list(texts), list(reasons)], schema=BAD)


def _too_far(intent: Intent, moment: int) -> str:
    stream = intent.stream
    if not stream.timed:
        return f"{stream.order}: {moment} is at the very end of what a bigint can hold, where nothing can come after it"
    if stream.max_ahead is None:
        return f"{stream.order}: {moment} microseconds are beyond the time that can be kept"
    return (
        f"{stream.order}: {format_instant(moment)} is more than {format_duration(stream.max_ahead)} "
        "(max_ahead) after now"
    )


def _replacing(intent: Intent, rows: pa.Table) -> pa.Table:
    """New values for rows of the archive, as pending replacements."""
    return late_inserts(intent.stream, rows, rows[POS].to_numpy(), op="replace")


def _pending_buckets(intent: Intent, slot: int, tables: Sequence[pa.Table]) -> Batches:
    """Pending revisions in the order of their numbers: by rank, then by the source's own count, then by place.

    Slots find replacements each for itself. They are numbered between the late insertions, which are told of as if
    they came from a slot before all others, and the corrections, which come from the last slot of all.
    """
    if not tables:
        return
    schema = numbered_schema(intent.stream)
    table = pa.concat_tables(tables)
    keys = {
        "seq": pc.fill_null(table["_seq"], HIGHEST),
        "pos": table[POS],
    }
    table = table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))
    for rank, place in enumerate((BEFORE_ALL, slot, intent.aside_slot)):
        for bucket in cut(iter([table.filter(pc.equal(table[RANK], rank))]), intent.stream.bucket_rows):
            numbered = bucket.append_column("_ordinal", pa.array(np.arange(bucket.num_rows)))
            yield told_bucket(place, intent.writer.write(numbered.select(schema.names).cast(schema), Role.PENDING))


def _ranked(said: Said, table: pa.Table) -> pa.Table:
    """A batch's inserts speak first: late ones, then those of keys that are taken; then its corrections."""
    if said is Said.REPLACING:
        rank = pa.repeat(pa.scalar(1, pa.int8()), table.num_rows)
    else:
        rank = pc.if_else(pc.equal(table["_op"], "insert"), pa.scalar(0, pa.int8()), pa.scalar(2, pa.int8()))
    return table.append_column(RANK, rank)


def _told_faults(intent: Intent, tables: Sequence[pa.Table]) -> Batches:
    if not tables:
        return
    table = pa.concat_tables(tables).combine_chunks()
    faults, count = packed(table), table.num_rows
    if len(faults) <= SPOOL_BYTES:
        yield told(Said.BAD, data=faults, rows=count)
        return
    path = intent.warehouse.new_name(intent.stream, intent.arrival, "faults", "arrow")
    intent.warehouse.write(path, faults)
    yield told(Said.BAD, path=path, rows=count)
