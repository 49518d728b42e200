"""Figures 10 and 12: a count over the stream at several reductions with each storage mechanism, predicted and measured.

    strawman          all blocks are read, and the executor samples
    copies on write   the next finer of the copies at 80, 60, 40 and 20%
    modify on read    a first and a second reader before vacuum, and readers after it; for each reduction a stream of
                      its own, since vacuum makes the copy that its readers asked for
    randomise ...     with buckets as they are by default, and as long as runs of 10, 100 and 500 blocks

The ideal share of a reduction is that part of the bytes that the strawman reads.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, interleaved, talk
from bench.reduction_costs import COPY_RATES, Costs, Mechanism, next_finer
from bench.reduction_scan import RunningReads, count_sample, needed_bytes
from bench.reduction_workload import (
    COPIES,
    ON_READ,
    RANDOMISED,
    RUNS,
    STRAWMAN,
    STREAM,
    StorageMethod,
    make_site,
    open_copy,
    open_project,
    take_in,
    write_feed,
)
from bench.report import BLUE, GREEN, INK, ORANGE
from errata.declare.site import Site
from errata.reduce.copies import vacuum_copies

REDUCTIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99)
GOAL_REDUCTIONS = (0.5, 0.75, 0.9, 0.99)
FIRST, SECOND, VACUUMED = Mechanism.FIRST_READ, Mechanism.SECOND_READ, Mechanism.VACUUMED


@dataclass(frozen=True, slots=True)
class ReadAmounts:
    """How much of everything is measured."""

    rows: int
    rounds: int
    warm_up: int = 1
    reductions: Sequence[float] = REDUCTIONS
    runs: Sequence[int] = tuple(RUNS)


@dataclass(slots=True)
class Found:
    """Medians of what was measured: seconds and bytes, by name of the contender and reduction."""

    seconds: dict[str, dict[float, float]] = field(default_factory=dict)
    needed: dict[str, dict[float, int]] = field(default_factory=dict)
    read: dict[str, dict[float, int]] = field(default_factory=dict)
    ratios: dict[str, dict[float, float]] = field(default_factory=dict)
    """Times beside the strawman's, of the same round."""
    vacuum: dict[float, float] = field(default_factory=dict)
    """Seconds of the vacuum that makes the copies."""


def read_figures(amounts: ReadAmounts, folder: Path) -> Outcome:
    """Seconds and bytes of counts, and what is built for them."""
    methods = [STRAWMAN, COPIES, RANDOMISED, *(RUNS[run] for run in amounts.runs)]
    prepare_archives(amounts.rows, [*methods, ON_READ], folder)
    sites = {method.name: open_project(folder / method.name) for method in methods}
    found = Found()
    for reduction in amounts.reductions:
        talk.print(f"counts at a reduction of {reduction:.0%} …")
        vacuumed = _before_and_after_vacuum(amounts, reduction, folder, found)
        _in_turns(amounts, reduction, {**sites, VACUUMED: vacuumed}, found)
        vacuumed.catalog.close()
    for site in sites.values():
        site.catalog.close()
    shutil.rmtree(folder)
    return outcome(amounts, found)


def prepare_archives(rows: int, methods: Sequence[StorageMethod], folder: Path) -> None:
    """The same rows with every method, each left closed in a folder of its name."""
    files = write_feed(folder / "feed", rows)
    for method in methods:
        talk.print(f"{rows:,} rows: {method.name} …")
        site = make_site(folder / method.name, method)
        take_in(site, files)
        site.catalog.close()


def _before_and_after_vacuum(amounts: ReadAmounts, reduction: float, folder: Path, found: Found) -> Site:
    """Time a first and a second reader of streams that nobody has read yet; a stream after vacuum."""
    seconds: dict[str, list[float]] = {FIRST: [], SECOND: []}
    for number in range(amounts.warm_up + amounts.rounds):
        copied = folder / "on read" / f"{reduction}-{number}"
        site = open_copy(folder / ON_READ.name, copied)
        for reader in (FIRST, SECOND):
            taken = _timed_count(site, reduction)
            if number >= amounts.warm_up:
                seconds[reader].append(taken)
        if number + 1 < amounts.warm_up + amounts.rounds:
            site.catalog.close()
            shutil.rmtree(copied)
    for name, each in seconds.items():
        found.seconds.setdefault(name, {})[reduction] = statistics.median(each)
        found.needed.setdefault(name, {})[reduction] = needed_bytes(site, reduction)
    began = time.perf_counter()
    vacuum_copies(site, STREAM)
    found.vacuum[reduction] = time.perf_counter() - began
    return site


def _timed_count(site: Site, reduction: float) -> float:
    began = time.perf_counter()
    count_sample(site, reduction)
    return time.perf_counter() - began


def _in_turns(amounts: ReadAmounts, reduction: float, sites: Mapping[str, Site], found: Found) -> None:
    """All other contenders in turns; all of them count the same sample."""
    counts = {name: count_sample(site, reduction) for name, site in sites.items()}
    if len(set(counts.values())) != 1:
        raise AssertionError(f"samples at a reduction of {reduction:.0%} differ: {counts}")
    times = interleaved(
        amounts.rounds,
        warm_up=amounts.warm_up,
        **{name: lambda _, site=site: count_sample(site, reduction) for name, site in sites.items()},
    )
    for name, site in sites.items():
        found.seconds.setdefault(name, {})[reduction] = times.median(name)
        found.ratios.setdefault(name, {})[reduction] = times.ratio(name, STRAWMAN.name)
        found.needed.setdefault(name, {})[reduction] = needed_bytes(site, reduction)
        reads = RunningReads()
        count_sample(site, reduction)
        found.read.setdefault(name, {})[reduction] = reads.size()


# What is told


def mechanism_of(name: str) -> Mechanism:
    """The row of table 1 for a contender."""
    if name in list(Mechanism):
        return Mechanism(name)
    return Mechanism.RANDOMISED


def costs_of(name: str, blocks: float) -> Costs:
    """Table 1 for a contender: with its run length, or with runs as long as buckets."""
    run = next((run for run, method in RUNS.items() if method.name == name), 10_000)
    return Costs(blocks, run=run)


def outcome(amounts: ReadAmounts, found: Found) -> Outcome:
    """The goals, and predictions beside measurements."""
    exact = found.needed[STRAWMAN.name][0.0]
    metrics = [*byte_metrics(amounts, found, exact), *time_metrics(amounts, found)]
    columns = [f"{reduction:.0%}" for reduction in amounts.reductions]
    shares: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    # Where nothing is sampled, a count needs no column; the paper's reads all blocks at any reduction.
    strawman = statistics.median(found.seconds[STRAWMAN.name][each] for each in amounts.reductions if each)
    for name, needed in found.needed.items():
        costs, mechanism = costs_of(name, 1.0), mechanism_of(name)
        shares[f"{name}: predicted"] = [costs.reads(mechanism, each) for each in amounts.reductions]
        shares[f"{name}: measured"] = [needed[each] / exact for each in amounts.reductions]
        if name in found.read:
            shares[f"{name}: read by processes"] = [found.read[name][each] / exact for each in amounts.reductions]
        seconds[f"{name}: predicted"] = [costs.read_seconds(mechanism, each, strawman) for each in amounts.reductions]
        seconds[f"{name}: measured"] = [found.seconds[name][each] for each in amounts.reductions]
    seconds["vacuum that makes the copies"] = [found.vacuum[each] for each in amounts.reductions]
    paper = {
        name: [costs_of(name, 108_000).read_seconds(mechanism_of(name), each) for each in amounts.reductions]
        for name in found.needed
    }
    return Outcome(
        metrics,
        [picture(amounts, found)],
        [
            Grid("figure10", "Seconds of a count by reduction, predicted for the paper's machine", columns, paper),
            Grid("figure12-bytes", "Bytes read by reduction, beside an exact count of the strawman's", columns, shares),
            Grid("figure12", "Seconds of a count by reduction; predicted from the strawman's", columns, seconds),
        ],
    )


def byte_metrics(amounts: ReadAmounts, found: Found, exact: int) -> list[Metric]:
    """Bytes beside the ideal share, and for copies on write beside that of the next finer copy."""
    metrics = []
    for reduction in GOAL_REDUCTIONS:
        if reduction not in amounts.reductions:
            continue
        kept = round(1 - reduction, 9)
        for name in (RANDOMISED.name, VACUUMED):
            beside = found.needed[name][reduction] / (kept * exact)
            metrics.append(
                Metric(f"bytes at {reduction:.0%}: {name}, beside the ideal share", beside, "times", "<= 1.15")
            )
        own = found.needed[RANDOMISED.name][reduction] / (kept * found.needed[RANDOMISED.name][0.0])
        metrics.append(Metric("the same, of an exact read of the randomised stream", own, "times"))
        finer = found.needed[COPIES.name][reduction] / (next_finer(COPY_RATES, kept) * exact)
        metrics.append(
            Metric(f"bytes at {reduction:.0%}: {COPIES.name}, beside the next finer copy's", finer, "times", "<= 1.15")
        )
    return metrics


def time_metrics(amounts: ReadAmounts, found: Found) -> list[Metric]:
    """The time of a count at the greatest reduction beside the strawman's."""
    most = max(amounts.reductions)
    goal = "<= 0.125" if amounts.rows >= 20_000_000 else None
    return [
        Metric(f"count at {most:.0%}: {STRAWMAN.name}", found.seconds[STRAWMAN.name][most], "s"),
        *(
            Metric(f"count at {most:.0%}: {name}, beside the strawman", found.ratios[name][most], "times", goal)
            for name in (RANDOMISED.name, VACUUMED)
        ),
        Metric(f"count at {most:.0%}: {COPIES.name}, beside the strawman", found.ratios[COPIES.name][most], "times"),
    ]


def picture(amounts: ReadAmounts, found: Found) -> Picture:
    """Figure 12: seconds by reduction."""

    def draw(axes: Axes) -> None:
        drawn = [STRAWMAN.name, COPIES.name, FIRST, VACUUMED, RANDOMISED.name]
        styles = [(INK, "-"), (ORANGE, "-"), (BLUE, ":"), (BLUE, "-"), (GREEN, "-")]
        for name, (colour, line) in zip(drawn, styles, strict=True):
            places = [100 * each for each in amounts.reductions]
            axes.plot(
                places, [found.seconds[name][each] for each in amounts.reductions], line, color=colour, label=name
            )
        axes.set_xlabel("reduction, %")
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)

    return Picture("figure12", f"Counting {amounts.rows:,} rows (oscar-archives-2004, figure 12)", draw)
