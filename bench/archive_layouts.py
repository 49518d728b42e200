"""The paper's comparison of archive representations (replay-revisions-2008, 4.1): figures 6 and 7 drawn again.

A day lies in the archive, and more rows come in batches of k. Before a correction the batch is closed early, so that
what is replayed for it sees all rows before it. STP is the time that the rows take, RTP the time of the corrections
(age out, apply, and replay a window of one symbol), COM both together.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from bench import errata_under_test as errata
from bench.corrections import FEED, RATE, Corrections, write_corrections
from bench.measure import Grid, Metric, Outcome, Picture, talk
from bench.report import stacked
from errata.declare.site import Site
from errata.generate.quotes import DEFAULT_START, QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.bucket import Layout
from errata.model.time import SECOND, Interval

LAYOUTS = (Layout.PLAIN, Layout.CLUSTERED, Layout.BUCKETS, Layout.GROUPED)
"""Those that figure 6 compares, in the paper's order: UT, IT, B and IB."""

SIZED = frozenset({Layout.BUCKETS, Layout.GROUPED})
"""Those that figure 7 compares at several bucket sizes."""


@dataclass(frozen=True, slots=True)
class LayoutAmounts:
    """How much of everything is measured."""

    day: int
    more: int
    """Rows that come after the day."""
    sizes: Sequence[int]
    """Bucket sizes, which are the batches' as well; the first is figure 6's, the last the default."""
    mixes: Mapping[str, int]
    """Corrections among the rows that come."""
    window: int
    """Seconds that are replayed for each correction."""
    rounds: int
    warm_up: int = 1
    layouts: Sequence[Layout] = LAYOUTS


@dataclass(frozen=True, slots=True)
class Kind:
    """A representation of the archive."""

    layout: Layout
    bucket_rows: int

    @property
    def label(self) -> str:
        size = f"{self.bucket_rows // 1_000}k" if self.bucket_rows % 1_000 == 0 else f"{self.bucket_rows}"
        return f"{self.layout} {size}"


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that a stretch of rows and corrections took."""

    standard: float
    revision: float

    @property
    def complete(self) -> float:
        return self.standard + self.revision


@dataclass(frozen=True, slots=True)
class Step:
    """What arrives next: a batch of rows, or a correction."""

    rows: Path | None = None
    correction: Corrections | None = None


Found = Mapping[tuple[Kind, str], Spent]
"""For each representation and mix, the median of the rounds."""


def layout_figures(amounts: LayoutAmounts, folder: Path) -> Outcome:
    """Figures 6 and 7, and which representation does the work in the least time."""
    sixth = [Kind(layout, amounts.sizes[0]) for layout in amounts.layouts]
    seventh = [Kind(layout, size) for layout in amounts.layouts if layout in SIZED for size in amounts.sizes]
    kinds = list(dict.fromkeys([*sixth, *seventh]))
    take_days_in(amounts, kinds, folder)
    steps = {
        (mix, size): arriving(amounts, mix, size, folder / "arriving" / f"{mix}-{size}")
        for mix in amounts.mixes
        for size in amounts.sizes
    }
    found = measured(amounts, kinds, steps, folder)
    return outcome(amounts, sixth, seventh, found)


# What arrives


def arriving(amounts: LayoutAmounts, mix: str, batch: int, folder: Path) -> list[Step]:
    """The rows after the day in files of a batch each, and between them the corrections of the mix. Where corrections
    come and what they say depends on the mix alone."""
    steps = []
    done = 0
    for number, (place, row) in enumerate([*placed(amounts, mix), (amounts.more, None)]):
        while done < place:
            rows = min(batch, place - done)
            spec = QuoteSpec(rows, after=amounts.day + done, format=FileFormat.PARQUET, rows_per_file=rows)
            steps.append(Step(rows=generate_quotes(spec, folder).files[0]))
            done += rows
        if row is not None:
            steps.append(Step(correction=write_corrections(np.array([row]), folder / f"correction-{number}.jsonl")))
    return steps


def placed(amounts: LayoutAmounts, mix: str) -> list[tuple[int, int]]:
    """Behind how many new rows each correction comes, and the number of the row that it corrects: one of the last 23
    hours of 24 (the paper, 4), all of whose window has arrived and is still there."""
    count, luck = amounts.mixes[mix], random.Random(mix)
    each = amounts.more // count
    margin = (amounts.window + 1) * RATE
    found = []
    for number in range(count):
        place = number * each + luck.randrange(1, each)
        oldest = place + max(amounts.day // 24, margin)
        found.append((place, luck.randrange(oldest, amounts.day + place - margin)))
    return found


# Measuring


def take_days_in(amounts: LayoutAmounts, kinds: Sequence[Kind], folder: Path) -> None:
    """The same day in every representation, each left closed."""
    files = generate_quotes(QuoteSpec(rows=amounts.day, format=FileFormat.PARQUET), folder / "files").files
    for kind in kinds:
        talk.print(f"a day of {amounts.day:,} quotes in {kind.label} …")
        declared = {"layout": kind.layout.value, "retention": f"{amounts.day // RATE} seconds", "age_out": "lazy"}
        site = errata.make_site(folder / kind.label, kind.bucket_rows, declared)
        errata.take_in(site, files)
        site.catalog.close()
    shutil.rmtree(folder / "files")


def measured(
    amounts: LayoutAmounts, kinds: Sequence[Kind], steps: Mapping[tuple[str, int], Sequence[Step]], folder: Path
) -> Found:
    """Each representation with each mix, from the same day; who goes first changes from round to round."""
    spent: dict[tuple[Kind, str], list[Spent]] = {(kind, mix): [] for kind in kinds for mix in amounts.mixes}
    for number in range(amounts.warm_up + amounts.rounds):
        for kind, mix in turns(list(spent), number, amounts):
            talk.print(f"{kind.label}, {mix} …")
            result = one_run(amounts, folder, kind, steps[mix, kind.bucket_rows])
            if number >= amounts.warm_up:
                spent[kind, mix].append(result)
    return {of: median(results) for of, results in spent.items()}


def turns(everything: list[tuple[Kind, str]], number: int, amounts: LayoutAmounts) -> Iterator[tuple[Kind, str]]:
    """Who is measured in a round. To warm up, one will do: all do the same work."""
    if number < amounts.warm_up:
        yield everything[-1]
        return
    yield from everything if number % 2 == 0 else reversed(everything)


def one_run(amounts: LayoutAmounts, folder: Path, kind: Kind, steps: Sequence[Step]) -> Spent:
    """What arrives is taken in and worked off, in a copy of the day."""
    site = errata.copy_site(folder / kind.label, folder / "run")
    standard = revision = 0.0
    for step in steps:
        began = time.perf_counter()
        if step.rows is not None:
            errata.take_in(site, [step.rows])
            standard += time.perf_counter() - began
        elif step.correction is not None:
            errata.correct(site, step.correction.file)
            replay(site, amounts, step.correction)
            revision += time.perf_counter() - began
    site.catalog.close()
    shutil.rmtree(folder / "run")
    return Spent(standard, revision)


def replay(site: Site, amounts: LayoutAmounts, correction: Corrections) -> None:
    """Read the rows of the corrected row's symbol in its window; applying the correction has aged the archive."""
    moment, symbol = int(correction.rows.time[0]), FEED.names[int(correction.rows.symbol[0])]
    start = moment - (moment - DEFAULT_START) % (amounts.window * SECOND)
    rows = errata.scanned(site, Interval(start, start + amounts.window * SECOND), symbol).toArrow()
    if rows.num_rows != amounts.window:
        raise AssertionError(f"a symbol has {amounts.window} quotes in as many seconds, found {rows.num_rows}")
    if int(correction.rows.cents[0]) / 100 not in rows["price"].to_pylist():
        raise AssertionError("what is replayed does not show the correction")


def median(results: Sequence[Spent]) -> Spent:
    return Spent(
        statistics.median(each.standard for each in results), statistics.median(each.revision for each in results)
    )


# What is told


def outcome(amounts: LayoutAmounts, sixth: Sequence[Kind], seventh: Sequence[Kind], found: Found) -> Outcome:
    size = f"{amounts.sizes[0]:,}"
    titles = {
        "figure-6": (f"Archive representations, batches and buckets of {size} rows", sixth),
        "figure-7": ("Bucket sizes, which are the batches' as well", seventh),
    }
    return Outcome(
        least_metrics(amounts, list(dict.fromkeys([*sixth, *seventh])), found),
        [picture(name, title, kinds, amounts, found) for name, (title, kinds) in titles.items()],
        [grid(name, title, kinds, amounts, found) for name, (title, kinds) in titles.items()],
    )


def least_metrics(amounts: LayoutAmounts, kinds: Sequence[Kind], found: Found) -> list[Metric]:
    """The representation with the least completion time at each frequency, and what the default takes beside it."""
    default = Kind(Layout.BUCKETS, amounts.sizes[-1])
    metrics = []
    for mix in amounts.mixes:
        best = min(kinds, key=lambda kind: found[kind, mix].complete)
        least = found[best, mix].complete
        beside = found[default, mix].complete / least
        metrics += [
            Metric(f"least completion time at {mix}: {best.label}", least, "s"),
            Metric(f"{default.label} beside it", beside, "times"),
        ]
    return metrics


def grid(name: str, title: str, kinds: Sequence[Kind], amounts: LayoutAmounts, found: Found) -> Grid:
    columns = [f"{mix} {what}" for mix in amounts.mixes for what in ("STP", "RTP", "COM")]
    rows = {
        kind.label: [
            seconds
            for spent in (found[kind, mix] for mix in amounts.mixes)
            for seconds in (spent.standard, spent.revision, spent.complete)
        ]
        for kind in kinds
    }
    return Grid(name, f"{title}: seconds for {amounts.more:,} rows", columns, rows)


def picture(name: str, title: str, kinds: Sequence[Kind], amounts: LayoutAmounts, found: Found) -> Picture:
    def draw(mix: str, axes: Axes) -> None:
        values = {kind.label: (found[kind, mix].standard, found[kind, mix].revision) for kind in kinds}
        first = mix == next(iter(amounts.mixes))
        stacked(axes, values, ("STP: rows", "RTP: corrections"), "seconds" if first else "")
        count = amounts.mixes[mix]
        axes.set_title(f"{mix}: {count} correction{'s' if count > 1 else ''}", loc="left", fontsize=10)
        if first:
            axes.legend(frameon=False, fontsize=8, loc="upper left")

    return Picture(name, f"{title}: {amounts.more:,} rows more", [partial(draw, mix) for mix in amounts.mixes])
