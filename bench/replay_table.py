"""Table 3 of the paper drawn again (replay-revisions-2008, 4.2).

A day lies in the archive and is answered, and a million rows come in batches, each taken in and answered: STP. Among
them come corrections of rows of the last 23 hours. On arrival, each is taken in and swept by itself; together, all are
taken in and swept once at the end: RTP. COM is both. RA replays all that is archived, RM what the correction touches.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes

from bench import errata_under_test as errata
from bench.archive import MIXES
from bench.corrections import Corrections
from bench.evaluate_day import all_done, frontier_of
from bench.measure import Grid, Metric, Outcome, Picture, talk
from bench.replay_day import Archives, Coming, Stretch, check_same, one_by_one, published, recomputed, swept
from bench.replay_queries import QUERIES, Asked
from bench.report import stacked
from errata.answer.runs import run
from errata.declare.site import Site
from errata.model.technique import Technique

PAPER: Mapping[str, Mapping[str, tuple[float, float, float, float]]] = {
    "Q1": {"LOW": (4.53, 4.45, 5.66, 0.26), "MOD": (4.92, 6.70, 5.82, 0.47), "HIGH": (5.80, 20.77, 6.03, 0.44)},
    "Q2": {"LOW": (5.11, 4.80, 6.49, 0.63), "MOD": (5.36, 6.73, 7.30, 0.92), "HIGH": (6.72, 20.99, 8.36, 0.89)},
    "Q3": {"LOW": (4.42, 3.87, 5.15, 0.35), "MOD": (4.77, 6.64, 5.18, 0.74), "HIGH": (5.04, 18.55, 5.37, 0.71)},
}
"""The paper's table, in minutes: RA's STP and RTP, RM's STP and RTP. Its COM is the sum of the two."""

TECHNIQUES: Mapping[str, Technique] = {"RA": Technique.ALL, "RM": Technique.MINIMAL}


@dataclass(frozen=True, slots=True)
class TableAmounts:
    """How much of everything is measured."""

    day: Stretch
    more: int
    batch: int
    rounds: int
    mixes: Mapping[str, int] = field(default_factory=lambda: MIXES)
    """Corrections among a million rows."""
    queries: Sequence[Asked] = QUERIES
    at_least: float | None = None
    """The ratio of replay-all to replay-minimal that Q1 and Q2 are to reach in every mix."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Seconds of one query, mix and technique."""

    standard: float
    revision: float

    @property
    def complete(self) -> float:
        return self.standard + self.revision


Of = tuple[str, str, str]
"""A query, a mix and a technique, by their labels."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured, medians of the rounds."""

    arriving: Mapping[Of, Cell]
    together: Mapping[Of, float]


def table_figures(amounts: TableAmounts, archives: Archives, folder: Path) -> Outcome:
    """The table, the ratios beside the paper's, and the picture."""
    coming = Coming(folder / "coming", amounts.day.end, amounts.more, amounts.batch)
    found = measured(amounts, archives, coming, folder)
    return Outcome(
        metrics(amounts, found),
        [picture(amounts, found)],
        [*(grid(asked, amounts, found) for asked in amounts.queries), ratios(amounts, found)],
    )


# Measuring


def measured(amounts: TableAmounts, archives: Archives, coming: Coming, folder: Path) -> Found:
    arriving: dict[Of, list[Cell]] = defaultdict(list)
    together: dict[Of, list[float]] = defaultdict(list)
    for number in range(amounts.rounds):
        for asked in amounts.queries:
            after = archives.copy(amounts.day)
            for file in coming.files:
                take_further(after, asked, file)
            after.catalog.close()
            for mix in amounts.mixes:
                talk.print(f"{asked.label}, {mix}, round {number + 1} …")
                some = corrections(amounts, asked, mix, folder / f"corrections-{number}" / mix)
                for of, cell in on_arrival(archives, amounts, coming, asked, some).items():
                    arriving[asked.label, mix, of].append(cell)
                for of, seconds in at_the_end(archives, after.project.root, asked, some).items():
                    together[asked.label, mix, of].append(seconds)
            archives.close(after)
    return Found(
        {
            of: Cell(median(each.standard for each in cells), median(each.revision for each in cells))
            for of, cells in arriving.items()
        },
        {of: median(seconds) for of, seconds in together.items()},
    )


def corrections(amounts: TableAmounts, asked: Asked, mix: str, folder: Path) -> list[Corrections]:
    """What is corrected in this mix, in an order that has nothing to do with time."""
    rows = amounts.day.picked(amounts.mixes[mix], seed=len(mix))
    return one_by_one(asked, rows[::-1], folder)


def take_further(site: Site, asked: Asked, file: Path) -> None:
    """A batch of standard rows taken in and answered."""
    errata.take_in(site, [file])
    all_done(run(site, [asked.name], take=False), 1)


def on_arrival(
    archives: Archives, amounts: TableAmounts, coming: Coming, asked: Asked, some: Sequence[Corrections]
) -> dict[str, Cell]:
    """By both techniques: the rows, and each correction after the batch in the course of which it comes."""
    cells, answers = {}, {}
    for label, technique in TECHNIQUES.items():
        site = archives.copy(amounts.day)
        standard = revision = 0.0
        for number, file in enumerate(coming.files):
            began = time.perf_counter()
            take_further(site, asked, file)
            rows_done = time.perf_counter()
            for each in _of_batch(some, number, len(coming.files)):
                errata.take_in_corrections(site, each.file)
                _sweep(site, asked, technique)
            standard += rows_done - began
            revision += time.perf_counter() - rows_done
        cells[label] = Cell(standard, revision)
        answers[label] = published(site, asked.name)
        if asked.decides and "right" not in answers:
            answers["right"] = recomputed(site, asked, frontier_of(site), some)
        archives.close(site)
    right = answers.pop("right", answers["RA"])
    for answer in answers.values():
        check_same(asked.name, answer, right)
    return cells


def _of_batch(some: Sequence[Corrections], number: int, batches: int) -> Sequence[Corrections]:
    """Those that come with a batch: they come at equal distances."""
    return some[number * len(some) // batches : (number + 1) * len(some) // batches]


def at_the_end(archives: Archives, after: Path, asked: Asked, some: Sequence[Corrections]) -> dict[str, float]:
    """By both techniques: all corrections in one file, swept together once all rows are answered."""
    times = [int(each.rows.time[0]) for each in some]
    file = some[0].file.with_name(f"{asked.label}-together.jsonl")
    file.write_bytes(b"".join(each.file.read_bytes() for each in some))
    if len(set(times)) != len(some):
        raise AssertionError("two corrections of a mix are of the same row")
    found = {}
    for label, technique in TECHNIQUES.items():
        site = archives.copy(after)
        began = time.perf_counter()
        errata.take_in_corrections(site, file)
        _sweep(site, asked, technique)
        found[label] = time.perf_counter() - began
        archives.close(site)
    return found


def _sweep(site: Site, asked: Asked, technique: Technique) -> None:
    swept(site, asked.name, technique, narrowed=technique is not Technique.ALL)


# What is told


def metrics(amounts: TableAmounts, found: Found) -> list[Metric]:
    """The ratio of RA's RTP to RM's in every cell."""
    told = []
    for asked in amounts.queries:
        for mix in amounts.mixes:
            held = amounts.at_least if asked.label in {"Q1", "Q2"} else None
            goal = None if held is None else f">= {held:g}"
            what = f"{asked.label}, {mix}: replay-all beside replay-minimal (the paper: {paper_ratio(asked, mix):.3g})"
            told.append(Metric(what, ratio(found, asked, mix), "times", goal))
    return told


def ratio(found: Found, asked: Asked, mix: str) -> float:
    all_of, least = (found.arriving[asked.label, mix, label].revision for label in TECHNIQUES)
    return all_of / least


def paper_ratio(asked: Asked, mix: str) -> float:
    _, all_of, _, least = PAPER[asked.label][mix]
    return all_of / least


def grid(asked: Asked, amounts: TableAmounts, found: Found) -> Grid:
    """One of the three parts of the table: here in seconds, and the paper's in its minutes."""
    columns = [f"{label} {what}" for label in TECHNIQUES for what in ("STP", "RTP", "COM")]
    rows = {}
    for mix in amounts.mixes:
        cells = [found.arriving[asked.label, mix, label] for label in TECHNIQUES]
        rows[f"{mix}, seconds"] = [
            seconds for cell in cells for seconds in (cell.standard, cell.revision, cell.complete)
        ]
        all_standard, all_of, least_standard, least = PAPER[asked.label][mix]
        theirs = [Cell(all_standard, all_of), Cell(least_standard, least)]
        rows[f"{mix}, the paper's minutes"] = [
            minutes for cell in theirs for minutes in (cell.standard, cell.revision, cell.complete)
        ]
    return Grid(f"table-3-{asked.label}", f"Table 3, {asked.label}", columns, rows)


def ratios(amounts: TableAmounts, found: Found) -> Grid:
    """How many times as long replay-all takes, on arrival and together."""
    columns = ["RA/RM", "the paper's", "together: RA, seconds", "RM, seconds", "RA/RM"]
    rows = {}
    for asked in amounts.queries:
        for mix in amounts.mixes:
            all_of, least = (found.together[asked.label, mix, label] for label in TECHNIQUES)
            on = ratio(found, asked, mix)
            rows[f"{asked.label} {mix}"] = [on, paper_ratio(asked, mix), all_of, least, all_of / least]
    return Grid("table-3-ratios", "RTP of replay-all beside replay-minimal, and swept together", columns, rows)


def picture(amounts: TableAmounts, found: Found) -> Picture:
    def draw(asked: Asked, axes: Axes) -> None:
        cells = {
            f"{mix} {label}": found.arriving[asked.label, mix, label] for mix in amounts.mixes for label in TECHNIQUES
        }
        first = asked is amounts.queries[0]
        values = {name: (cell.standard, cell.revision) for name, cell in cells.items()}
        stacked(axes, values, ("STP: rows", "RTP: corrections"), "seconds" if first else "")
        axes.set_title(asked.label, loc="left", fontsize=10)
        if first:
            axes.legend(frameon=False, fontsize=8, loc="upper left")

    title = f"{amounts.more:,} rows and their corrections after {amounts.day.rows:,} rows"
    return Picture("table-3", title, [partial(draw, asked) for asked in amounts.queries])
