"""What is compared: the algorithms of the merge, the naive one with an index for each feed, and cleansing in front of
R1; run over the same files, from Parquet to Parquet."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Timings
from bench.merge_naive import CleansingMerger, NaiveMerger
from bench.merge_workload import ChunkOfElements, ElementReader, FeedChunks, StepProgress, merged_stream
from errata.merge.merging import merge_by
from errata.merge.state import empty_state
from errata.merge.step import MergeProgress, MergeState, MergeStep
from errata.model.feed import MergeAlgorithm, MergePolicy
from errata.model.stream import Stream

AfterChunk = Callable[[], None]


NAIVE, CLEANSE = "naive R3", "cleanse, then R1"


class Merger(Protocol):
    """Merges batch after batch and remembers what it has to."""

    def merge(self, chunk: ChunkOfElements, progress: MergeProgress) -> list[pa.Table]:
        """What comes out: tables of new rows, and of corrections."""


class AlgorithmMerger:
    """One of R0 to R4."""

    def __init__(self, stream: Stream, algorithm: MergeAlgorithm) -> None:
        self._stream, self._algorithm = stream, algorithm
        self.state: MergeState = empty_state(stream)

    def merge(self, chunk: ChunkOfElements, progress: MergeProgress) -> list[pa.Table]:
        step: MergeStep = merge_by(self._stream, self._algorithm, self.state, chunk.elements, progress)
        if step.broken or step.refused.num_rows:
            raise AssertionError(f"feeds without mistakes are merged whole: {step.broken} {step.refused.to_pylist()}")
        self.state = step.state
        return [step.inserts, step.corrections]


def make_merger(name: str, feeds: int, policy: MergePolicy | None = None) -> tuple[Stream, Merger]:
    """A contender by its name, and the stream that it merges."""
    if name in (NAIVE, CLEANSE):
        stream = merged_stream(feeds, MergeAlgorithm.R3)
        return stream, NaiveMerger(stream) if name == NAIVE else CleansingMerger(stream)
    algorithm = MergeAlgorithm(name)
    stream = merged_stream(feeds, algorithm, policy)
    return stream, AlgorithmMerger(stream, algorithm)


@dataclass(frozen=True, slots=True)
class MergedOutput:
    """What came out of a merge."""

    inserts: int
    corrections: int
    merging: float
    """Seconds of processor time of the merge alone, without reading and writing files."""


def merge_files(
    name: str, chunks: FeedChunks, out: Path, policy: MergePolicy | None = None, after_chunk: AfterChunk | None = None
) -> MergedOutput:
    """Merge all chunks into Parquet files in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    stream, merger = make_merger(name, chunks.feeds, policy)
    reader, reached = ElementReader(stream), StepProgress(stream)
    inserts = corrections = 0
    merging = 0.0
    for number, files in enumerate(chunks.files):
        new, changed, took = _merge_one(merger, reader, reached, files)
        pq.write_table(new, out / f"rows-{number:05}.parquet", compression="none", use_dictionary=False)
        pq.write_table(changed, out / f"corrections-{number:05}.parquet", compression="none", use_dictionary=False)
        inserts, corrections = inserts + new.num_rows, corrections + changed.num_rows
        merging += took
        del new, changed
        if after_chunk is not None:
            after_chunk()
    return MergedOutput(inserts, corrections, merging)


def _merge_one(
    merger: Merger, reader: ElementReader, reached: StepProgress, files: Sequence[Path]
) -> tuple[pa.Table, pa.Table, float]:
    """What a chunk brings, and how long the merge took. When it is written, nothing is left but what the merger
    remembers."""
    chunk = reader.read(files)
    progress = reached.after(chunk.stables)
    began = time.process_time()
    new, changed = merger.merge(chunk, progress)
    return new, changed, time.process_time() - began


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a merge remembers between chunks: Arrow's pool and numpy's arrays, all that is still allocated."""

    most: int
    last: int


def held_bytes(name: str, chunks: FeedChunks, out: Path) -> Held:
    """How much a contender remembers, at the end of each chunk."""
    found: list[int] = []
    gc.collect()
    gc.freeze()  # what is there already need not be looked at after each chunk
    tracemalloc.start()
    try:
        before = _allocated()
        merge_files(name, chunks, out, after_chunk=lambda: found.append(_allocated() - before))
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return Held(max(found), found[-1])


def _allocated() -> int:
    gc.collect()
    return int(pa.total_allocated_bytes()) + tracemalloc.get_traced_memory()[0]


@dataclass(frozen=True, slots=True)
class MergeTimings:
    """What contenders took over the same files, from files to files."""

    elapsed: Timings
    processor: Timings
    """Of all threads: what other work on the machine does not change."""

    def rate(self, name: str, chunks: FeedChunks) -> float:
        """Million elements a second."""
        return chunks.elements / self.elapsed.median(name) / 1_000_000

    def processor_rate(self, name: str, chunks: FeedChunks) -> float:
        """Million elements a second of processor time."""
        return chunks.elements / self.processor.median(name) / 1_000_000


def timed_merges(names: Sequence[str], chunks: FeedChunks, out: Path, rounds: int) -> MergeTimings:
    """The seconds of each contender, in turn. The first round does not count."""
    elapsed: dict[str, list[float]] = {name: [] for name in names}
    processor: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1 + rounds):
        for name in names if number % 2 == 0 else reversed(names):
            began, worked = time.perf_counter(), time.process_time()
            merge_files(name, chunks, out / name.replace(" ", "-"))
            if number > 0:
                elapsed[name].append(time.perf_counter() - began)
                processor[name].append(time.process_time() - worked)
    return MergeTimings(Timings(elapsed), Timings(processor))


def merging_times(names: Sequence[str], chunks: FeedChunks, out: Path, rounds: int) -> Timings:
    """The seconds of processor time of the merge alone, in turn. The first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1 + rounds):
        for name in names if number % 2 == 0 else reversed(names):
            took = merge_files(name, chunks, out / name.replace(" ", "-")).merging
            if number > 0:
                seconds[name].append(took)
    return Timings(seconds)
