"""Figures 13 to 18: the stream is inserted while N readers count over N other streams, each again and again.

Figures 13 and 14 have the time to insert by N, figures 15 and 16 the counts that were completed meanwhile, at a
reduction of 25 and of 75%; figures 17 and 18 the counts in 1,000 seconds by reduction, at two numbers of readers.
Readers are processes of their own. A stream that is read was inserted before; modify on read is measured before and
after vacuum. In the paper's analysis insertion slows down in proportion to what the readers read.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, talk
from bench.reduction_reader import counting_readers
from bench.reduction_scan import count_sample
from bench.reduction_workload import (
    COPIES,
    ON_READ,
    RANDOMISED,
    STRAWMAN,
    STREAM,
    StorageMethod,
    make_site,
    open_copy,
    take_in,
    write_feed,
)
from bench.report import BLUE, GREEN, INK, ORANGE
from errata.reduce.copies import vacuum_copies

VACUUMED = f"{ON_READ.name}, after vacuum"
COLOURS = {STRAWMAN.name: INK, COPIES.name: ORANGE, VACUUMED: BLUE, RANDOMISED.name: GREEN}


@dataclass(frozen=True, slots=True)
class BesideAmounts:
    """How much of everything is measured."""

    rows: int
    readers: Sequence[int]
    """Numbers of readers at once, ascending."""
    reductions: Sequence[float]
    methods: Sequence[StorageMethod]


@dataclass(frozen=True, slots=True)
class Stretch:
    """An insertion, and what readers did meanwhile."""

    seconds: float
    counts: int

    @property
    def per_1000(self) -> float:
        """Counts in 1,000 seconds."""
        return 1_000 * self.counts / self.seconds


Measured = Mapping[tuple[str, float, int], Stretch]
"""By name of the contender, reduction, and number of readers."""


def beside_figures(amounts: BesideAmounts, folder: Path) -> Outcome:
    """Insertion times, and counts completed meanwhile."""
    files = write_feed(folder / "feed", amounts.rows)
    found: dict[tuple[str, float, int], Stretch] = {}
    for method in amounts.methods:
        kept = folder / method.name
        site = make_site(kept, method)
        take_in(site, files)
        site.catalog.close()
        # Without readers there is no reduction.
        alone = _stretch(folder / "stretch", method, files, [], 0.0) if 0 in amounts.readers else None
        for reduction in amounts.reductions:
            names = {method.name: kept}
            if method is ON_READ:
                names[VACUUMED] = _vacuumed(kept, folder / "vacuumed", reduction)
            for name, project in names.items():
                if alone is not None:
                    found[name, reduction, 0] = alone
                for readers in filter(None, amounts.readers):
                    talk.print(f"insertion beside {readers} readers at {reduction:.0%}: {name} …")
                    projects = _copies(project, folder / "read", readers)
                    found[name, reduction, readers] = _stretch(folder / "stretch", method, files, projects, reduction)
                    shutil.rmtree(folder / "read")
            shutil.rmtree(folder / "vacuumed", ignore_errors=True)
    shutil.rmtree(folder)
    return outcome(amounts, found)


def _vacuumed(kept: Path, to: Path, reduction: float) -> Path:
    site = open_copy(kept, to)
    count_sample(site, reduction)
    vacuum_copies(site, STREAM)
    site.catalog.close()
    return to


def _copies(project: Path, to: Path, readers: int) -> list[Path]:
    """A stream for each reader."""
    made = [to / str(number) for number in range(readers)]
    for each in made:
        open_copy(project, each).catalog.close()
    return made


def _stretch(
    folder: Path, method: StorageMethod, files: Sequence[Path], projects: Sequence[Path], reduction: float
) -> Stretch:
    """Insert while readers count."""
    site = make_site(folder / "site", method)
    with counting_readers(folder / "readers", projects, STREAM, reduction) as readers:
        began = time.monotonic()
        take_in(site, files)
        ended = time.monotonic()
    site.catalog.close()
    counts = readers.completed(began, ended)
    shutil.rmtree(folder)
    return Stretch(ended - began, counts)


# What is told


def outcome(amounts: BesideAmounts, found: Measured) -> Outcome:
    """The figures, and how many more counts than the strawman's are completed at the greatest reduction."""
    names = list(dict.fromkeys(name for name, _, _ in found))
    columns = [f"{readers} readers" for readers in amounts.readers]
    grids, pictures = [], []
    for reduction, insertion, completed in zip((0.25, 0.75), (13, 14), (15, 16), strict=True):
        if reduction not in amounts.reductions:
            continue
        at = f"at {reduction:.0%} reduction"
        seconds = {name: [found[name, reduction, each].seconds for each in amounts.readers] for name in names}
        counts = {name: [float(found[name, reduction, each].counts) for each in amounts.readers] for name in names}
        grids.append(Grid(f"figure{insertion}", f"Seconds to insert by number of readers, {at}", columns, seconds))
        grids.append(Grid(f"figure{completed}", f"Counts completed meanwhile, {at}", columns, counts))
    some = [each for each in amounts.readers if each > 0]
    for readers, figure in zip(dict.fromkeys((some[0], some[-1])), (17, 18), strict=False):
        rates = {name: [found[name, each, readers].per_1000 for each in amounts.reductions] for name in names}
        title = f"Counts in 1,000 seconds beside an insertion, {readers} readers"
        by = [f"{each:.0%}" for each in amounts.reductions]
        grids.append(Grid(f"figure{figure}", f"{title}, by reduction", by, rates))
        pictures.append(_picture(f"figure{figure}", title, amounts.reductions, rates))
    return Outcome(_metrics(amounts, found, names, some[-1]), pictures, grids)


def _metrics(amounts: BesideAmounts, found: Measured, names: Sequence[str], readers: int) -> list[Metric]:
    most = max(amounts.reductions)
    strawman = found[STRAWMAN.name, most, readers]
    return [
        Metric(
            f"counts beside an insertion, {readers} readers at {most:.0%}: {name}, beside the strawman's",
            found[name, most, readers].per_1000 / max(strawman.per_1000, 1.0),
            "times",
        )
        for name in names
        if name != STRAWMAN.name
    ]


def _picture(name: str, title: str, reductions: Sequence[float], rates: Mapping[str, Sequence[float]]) -> Picture:
    def draw(axes: Axes) -> None:
        for contender, colour in COLOURS.items():
            if contender in rates:
                places = [100 * each for each in reductions]
                axes.plot(places, rates[contender], "o-", color=colour, label=contender)
        axes.set_yscale("symlog")
        axes.set_xlabel("reduction, %")
        axes.set_ylabel("counts in 1,000 s")
        axes.legend(frameon=False, fontsize=8)

    return Picture(name, title, draw)
