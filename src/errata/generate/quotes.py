"""The stock quotes of the paper's experiments (4): the specification of a feed, and its generation as files to
ingest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from errata.errors import UsageError
from errata.generate.faults import ExtraLine, FeedMistake, RevisionKind, choose_late_rows, make_mistakes, make_revisions
from errata.generate.feed import MAX_SYMBOLS, IntArray, QuoteFeed, QuoteRows
from errata.generate.files import QuoteFile, open_quote_file, quote_file_name
from errata.model.batch import FileFormat
from errata.model.time import SECOND

DEFAULT_START = 1_794_960_000_000_000
"""2026-11-18T00:00:00."""


@dataclass(frozen=True, slots=True)
class QuoteSpec:
    """The specification of a feed. The same specification always gives the same bytes.

    Every symbol reports a price every second, so 200 symbols are the paper's 200 rows a second. With `after` the feed
    continues where as many rows have been generated before, from the same seed, symbols and start.
    """

    rows: int
    seed: int = 1
    symbols: int = 200
    start: int = DEFAULT_START
    format: FileFormat = FileFormat.CSV
    gzip: bool = False
    rows_per_file: int = 1_000_000
    disorder: float = 0.0
    """The share of rows that arrive after rows of a later time, in the same file."""
    disorder_span: int = 2 * SECOND
    late: int = 0
    """Rows of a file's first half that arrive only at the end of the next file."""
    revisions: RevisionKind = RevisionKind.NONE
    mistakes: int = 0
    after: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or self.rows_per_file < 1 or min(self.late, self.mistakes, self.after) < 0:
            raise UsageError("a feed and each of its files have a row or more; late, mistakes and after are 0 or more")
        if not 1 <= self.symbols <= MAX_SYMBOLS:
            raise UsageError(f"{self.symbols} symbols cannot be generated", how=f"give 1 to {MAX_SYMBOLS}")
        if not 0 <= self.disorder <= 1 or self.disorder_span < SECOND:
            raise UsageError("the disorder is a share from 0 to 1, spread over a second or more")
        if self.gzip and self.format is FileFormat.PARQUET:
            raise UsageError("Parquet is not gzipped", why="it compresses its own pages", how="leave out gzip")
        if self.late > (room := sum(max(0, (end - first) // 2) for first, end in self.spans()[:-1])):
            raise UsageError(
                f"{self.late} late rows do not fit, there is room for {room}",
                why="a late row is of the first half of a file and comes at the end of the file that follows",
                how="give a smaller rows_per_file, so that there are more files, or fewer late rows",
            )

    def spans(self) -> list[tuple[int, int]]:
        """For each file the number of its first row, and of the first row that is no longer in it."""
        end = self.after + self.rows
        return [(first, min(first + self.rows_per_file, end)) for first in range(self.after, end, self.rows_per_file)]


@dataclass(frozen=True, slots=True)
class RecordedMistake:
    """A bad row that was written on purpose, and its place."""

    kind: FeedMistake
    file: Path
    line: int


@dataclass(frozen=True, slots=True)
class GeneratedFeed:
    """The files and counts of a generated feed."""

    files: tuple[Path, ...]
    rows: int
    """Standard rows: quotes that are neither corrections nor mistakes."""
    revisions: int
    late: int
    disordered: int
    """Rows after a row of a later time, without the late ones."""
    mistakes: tuple[RecordedMistake, ...] = ()


def generate_quotes(spec: QuoteSpec, out: Path, progress: Callable[[int], None] | None = None) -> GeneratedFeed:
    """Write the feed's files into a folder. `progress` is called repeatedly with the number of rows written since."""
    out.mkdir(parents=True, exist_ok=True)
    feed, spans = QuoteFeed(spec.seed, spec.symbols, spec.start), spec.spans()
    end = spec.after + spec.rows
    late = choose_late_rows(feed, spec.late, spans)
    delay = spec.disorder_span if spec.disorder else 0
    absent = frozenset(int(row) for rows in late for row in rows)
    extras = make_mistakes(feed, spec.mistakes, spec.after, end, spec.format)
    extras += make_revisions(feed, spec.revisions, spec.after, end, delay, absent)
    extras.sort(key=lambda extra: extra.ordinal)
    tally = _FeedWriter(progress or _no_progress)
    files, come_late = [], QuoteRows.empty()
    for (first, stop), held_back in zip(spans, late, strict=True):
        path = out / quote_file_name(first, spec.format, spec.gzip)
        writing = path.with_name(f"_{path.name}.tmp")
        file = open_quote_file(writing, feed, spec.format, spec.revisions is not RevisionKind.NONE, spec.gzip)
        try:
            # Held-back rows leave the file shorter than its span: extras that would come after its end are written at
            # its end.
            last = stop - first - len(held_back)
            ours = [(min(extra.ordinal - first + 1, last), extra) for extra in extras if first <= extra.ordinal < stop]
            for rows in _arrival_chunks(feed, spec, first, stop, held_back):
                ours = tally.write(file, path, rows, ours)
            if len(come_late):
                tally.write(file, path, come_late, [], late=True)
        finally:
            file.close()
        writing.replace(path)
        files.append(path)
        come_late = feed.rows_at(held_back) if len(held_back) else QuoteRows.empty()
    return GeneratedFeed(
        tuple(files),
        spec.rows,
        sum(extra.mistake is None for extra in extras),
        spec.late,
        tally.disordered,
        tuple(tally.mistakes),
    )


@dataclass(slots=True)
class _FeedWriter:
    """Writes blocks of rows and counts what was written."""

    progress: Callable[[int], None]
    disordered: int = 0
    mistakes: list[RecordedMistake] = field(default_factory=list)
    newest: int = 0

    def write(
        self, file: QuoteFile, path: Path, rows: QuoteRows, extras: list[tuple[int, ExtraLine]], late: bool = False
    ) -> list[tuple[int, ExtraLine]]:
        """Write rows, and the extras that come among them; returns the other extras, with positions counted from
        here."""
        count = len(rows)
        here = [(behind, extra.beside_row(rows[behind - 1 : behind])) for behind, extra in extras if behind <= count]
        lines = file.write(rows, here)
        for line, (_, extra) in zip(lines, here, strict=True):
            if extra.mistake is not None:
                self.mistakes.append(RecordedMistake(extra.mistake, path, line))
        if not late:
            ran = np.maximum.accumulate(np.maximum(rows.time, self.newest))
            self.disordered += int(np.count_nonzero(rows.time < ran))
            self.newest = int(ran[-1])
        self.progress(count)
        return [(behind - count, extra) for behind, extra in extras if behind > count]


def _no_progress(_: int) -> None:
    """No progress is reported."""


def _arrival_chunks(feed: QuoteFeed, spec: QuoteSpec, first: int, end: int, held_back: IntArray) -> Iterator[QuoteRows]:
    """A file's rows in the order of their arrival, some hundred thousand at a time."""
    waiting, due = QuoteRows.empty(), np.empty(0, np.int64)
    while first < end:
        stop = min(end, (first // feed.chunk + 1) * feed.chunk)
        row = np.arange(first, stop)
        there = ~np.isin(row, held_back) if len(held_back) else np.ones(len(row), np.bool_)
        rows, row = feed.rows_between(first, stop)[there], row[there]
        first = stop
        if spec.disorder:
            rows = waiting.append(rows)
            arrival = np.concatenate((due, rows.time[len(waiting) :] + _arrival_delays(feed, spec, row)))
            order = np.argsort(arrival, kind="stable")
            horizon = spec.start + stop // spec.symbols * SECOND if stop < end else int(arrival.max(initial=0)) + 1
            here = arrival[order] < horizon
            waiting, due = rows[order[~here]], arrival[order[~here]]
            rows = rows[order[here]]
        if len(rows):
            yield rows


def _arrival_delays(feed: QuoteFeed, spec: QuoteSpec, row: IntArray) -> IntArray:
    """The delay of each row; at least two quotes' room, so that another overtakes it."""
    luck = feed.hashes("disorder", row)
    delayed = (luck >> np.uint64(11)).astype(np.float64) < spec.disorder * 2.0**53
    least = min(2 * feed.slot, spec.disorder_span)
    length = feed.hashes("delay", row) % np.uint64(spec.disorder_span - least + 1)
    return np.where(delayed, least + length.astype(np.int64), 0)
