"""Physical feeds as Parquet files, chunk by chunk, and the merge of them from Parquet to Parquet.

A chunk is what arrives at all feeds within a stretch of a simulated clock: a file for each feed. It is one batch of the
merge, as `errata ingest --landed` would make one of files that have landed. Files are written beforehand. What is timed
is to read a chunk's files, to make elements of their rows, the merge itself, and to write what comes out of it; the
archive, which does the same for every stream, has benchmarks of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.generate.feed_files import OPERATIONS, write_feeds
from errata.generate.feeds import (
    EventTable,
    FeedElement,
    FeedFaults,
    PhysicalFeed,
    physical_feed,
)
from errata.intake.types import arrow_schema
from errata.merge.elements import ELEMENT, FEED, GIVEN, OLD_END, OWN_STABLE, POS, SEQ
from errata.merge.progress import FeedStanding, advance
from errata.merge.step import MergeProgress
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.feed import Feed, FeedOrder, FeedProperties, MergeAlgorithm, MergedFeeds, MergePolicy, StableRule
from errata.model.stream import Stream
from errata.model.time import LOWEST

STREAM = "events"
END, OCCURRENCE = "until", "occurrence"

_ORDERED = FeedProperties(FeedOrder.ORDERED, ties_fixed=False, adjusts=False, complete=True)
PROPERTIES: Mapping[MergeAlgorithm, FeedProperties] = {
    MergeAlgorithm.R0: FeedProperties(FeedOrder.STRICT, ties_fixed=True, adjusts=False, complete=True),
    MergeAlgorithm.R1: FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True),
    MergeAlgorithm.R2: _ORDERED,
    MergeAlgorithm.R3: FeedProperties(complete=True),
    MergeAlgorithm.R4: FeedProperties(complete=True),
}
"""What feeds guarantee, for the algorithm that needs it."""


def merged_stream(feeds: int, algorithm: MergeAlgorithm, policy: MergePolicy | None = None) -> Stream:
    """The stream of the generated events: an integer and a text, as in the paper (VI-B)."""
    kinds = {"at": TypeKind.TIMESTAMP, "value": TypeKind.BIGINT, END: TypeKind.TIMESTAMP, "text": TypeKind.STRING}
    repeats = algorithm is MergeAlgorithm.R4
    if repeats:
        kinds[OCCURRENCE] = TypeKind.BIGINT
    declared = tuple(
        Feed(f"feed_{number}", properties=PROPERTIES[algorithm], stable=StableRule.MARKS) for number in range(feeds)
    )
    return Stream(
        name=STREAM,
        columns=tuple(Column(name, ColumnType(kind)) for name, kind in kinds.items()),
        key=("at", "value", OCCURRENCE) if repeats else ("at", "value"),
        order="at",
        merged=MergedFeeds(declared, policy or MergePolicy(), END, OCCURRENCE if repeats else None),
    )


def made_feeds(table: EventTable, faults: Sequence[FeedFaults], seed: int = 1) -> list[PhysicalFeed]:
    """A feed for each of these faults, of the same events."""
    return [physical_feed(table, each, seed + number) for number, each in enumerate(faults)]


@dataclass(frozen=True, slots=True)
class FeedChunks:
    """The files of all feeds by chunk."""

    folder: Path
    files: Sequence[Sequence[Path]]
    elements: int
    """Elements in all of them, stable ones included."""

    @property
    def feeds(self) -> int:
        return len(self.files[0])

    def remove(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder)


def write_chunks(folder: Path, feeds: Sequence[PhysicalFeed], pieces: int, text_bytes: int = 16) -> FeedChunks:
    """Write the files, uncompressed: random letters do not get smaller."""
    return FeedChunks(folder, write_feeds(folder, feeds, pieces, text_bytes, "none"), sum(map(len, feeds)))


@dataclass(frozen=True, slots=True)
class ChunkOfElements:
    """A chunk as the merge takes it."""

    elements: pa.Table
    stables: Mapping[int, int]
    """How far each feed is stable after it, by number; those that say nothing are left out."""


class ElementReader:
    """Makes elements of the files of a chunk. It remembers how far each feed has said that it is stable."""

    def __init__(self, stream: Stream) -> None:
        self._schema = arrow_schema(stream)
        self._stable = [LOWEST] * len(stream.merged.feeds)
        self._batches = 0

    def read(self, files: Sequence[Path]) -> ChunkOfElements:
        parts = [pq.read_table(file, read_dictionary=["_op"]) for file in files]
        return self.elements(parts)

    def elements(self, parts: Sequence[pa.Table]) -> ChunkOfElements:
        """The elements of a table of rows for each feed, one feed after the other."""
        stables = {}
        found: list[pa.Table] = []
        taken = 0
        for feed, rows in enumerate(parts):
            kinds = _kinds(rows)
            own = np.where(kinds == FeedElement.STABLE, rows["at"].cast(pa.int64()).to_numpy(), LOWEST)
            own = np.maximum(np.maximum.accumulate(own), self._stable[feed]) if len(own) else own
            said = np.flatnonzero(kinds != FeedElement.STABLE)
            found.append(self._part(rows, said, feed, kinds[said], own[said], taken))
            taken += rows.num_rows
            if len(own) and own[-1] > LOWEST:
                stables[feed] = self._stable[feed] = int(own[-1])
        return ChunkOfElements(pa.concat_tables(found), stables)

    def _part(
        self, rows: pa.Table, said: np.ndarray, feed: int, kinds: np.ndarray, own: np.ndarray, taken: int
    ) -> pa.Table:
        """The elements of one feed. Files say stable elements as rows, which are left out here."""
        chosen = rows if len(said) == rows.num_rows else rows.take(pa.array(said))
        places = pa.array(said + taken)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            FEED: pa.array(np.full(len(said), feed, np.int16)),
            SEQ: places,
            ELEMENT: pa.array(kinds.astype(np.int8)),
            POS: places,
            OWN_STABLE: pa.array(own),
            OLD_END: chosen["_old_until"].cast(pa.int64()),
            GIVEN: pa.nulls(len(said), pa.string()),
        }
        for field in self._schema:
            missing = field.name not in chosen.column_names
            columns[field.name] = pa.nulls(len(said), field.type) if missing else chosen[field.name]
        return pa.table(columns)


def _kinds(rows: pa.Table) -> np.ndarray:
    """The kind of each row's element, from its operation."""
    operations = rows["_op"].combine_chunks()
    if isinstance(operations, pa.ChunkedArray):
        operations = operations.chunk(0) if operations.num_chunks else pa.array([], rows.schema.field("_op").type)
    numbers = np.array([OPERATIONS.index(each) for each in operations.dictionary.to_pylist()], np.int8)
    taken: np.ndarray = numbers[operations.indices.to_numpy()]
    return taken


class StepProgress:
    """How far the feeds and the merged stream have come, from chunk to chunk."""

    def __init__(self, stream: Stream) -> None:
        self._quorum = stream.merged.policy.quorum
        self._standings = [FeedStanding(feed.name, complete=feed.properties.complete) for feed in stream.merged.feeds]
        self.stable = LOWEST

    def after(self, stables: Mapping[int, int]) -> MergeProgress:
        progress = advance(self._standings, stables, before=self.stable, quorum=self._quorum)
        self.stable = progress.stable
        self._standings = [
            FeedStanding(each.name, reached.stable, complete=each.complete)
            for each, reached in zip(self._standings, progress.feeds, strict=True)
        ]
        return progress
