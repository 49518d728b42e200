"""Figures 9 and 11: inserting the stream with each storage mechanism, predicted and measured.

Every round each mechanism ingests the same files as one batch into a stream of its own; ratios are of the same round.
Bytes written are those of all versions in the bucket index.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, Timings, interleaved, talk
from bench.reduction_costs import PAPER_INSERT_SECONDS, Costs, Mechanism
from bench.reduction_scan import stored_bytes
from bench.reduction_workload import (
    COPIES,
    METHODS,
    ON_READ,
    RANDOMISED,
    STRAWMAN,
    StorageMethod,
    make_site,
    take_in,
    write_feed,
)
from bench.report import bars
from errata.declare.site import Site

GOALS: Mapping[StorageMethod, str] = {COPIES: "<= 2", ON_READ: "<= 1.02", RANDOMISED: "<= 1.1"}
"""The time to insert beside the strawman's, at most."""


@dataclass(frozen=True, slots=True)
class InsertionAmounts:
    """How much of everything is measured."""

    rows: int
    rounds: int
    warm_up: int = 1
    methods: Sequence[StorageMethod] = METHODS


def mechanism_of(method: StorageMethod) -> Mechanism:
    """The row of table 1 that says what a method's insertion costs."""
    named = {STRAWMAN: Mechanism.STRAWMAN, COPIES: Mechanism.COPIES, ON_READ: Mechanism.FIRST_READ}
    return named.get(method, Mechanism.RANDOMISED)


def insertion_figures(amounts: InsertionAmounts, folder: Path) -> Outcome:
    """The time to insert, and the bytes that are written."""
    files = write_feed(folder / "feed", amounts.rows)
    turns = range(amounts.warm_up + amounts.rounds)
    sites = {
        method: [make_site(folder / f"{method.name}-{number}", method) for number in turns]
        for method in amounts.methods
    }

    def inserting(method: StorageMethod) -> Callable[[int], None]:
        def insert(number: int) -> None:
            talk.print(f"inserting {amounts.rows:,} rows: {method.name}, round {number} …")
            take_in(sites[method][number], files)

        return insert

    times = interleaved(
        amounts.rounds,
        warm_up=amounts.warm_up,
        **{method.name: inserting(method) for method in amounts.methods},
    )
    written = {method.name: stored_bytes(some[-1]) for method, some in sites.items()}
    close_all([site for some in sites.values() for site in some])
    shutil.rmtree(folder)
    return outcome(amounts, times, written)


def close_all(sites: Sequence[Site]) -> None:
    """Let go of the catalogs."""
    for site in sites:
        site.catalog.close()


def outcome(amounts: InsertionAmounts, times: Timings, written: Mapping[str, int]) -> Outcome:
    """What was measured beside what table 1 predicts of the strawman's time and bytes."""
    strawman = STRAWMAN.name
    costs = Costs(1.0)
    metrics = [Metric(f"insertion of {amounts.rows:,} rows: {strawman}", times.median(strawman), "s")]
    rows: dict[str, list[float]] = {}
    for method in amounts.methods:
        name, predicted = method.name, costs.writes(mechanism_of(method))
        ratio = times.ratio(name, strawman)
        if method is not STRAWMAN:
            metrics.append(Metric(f"insertion: {name}, beside the strawman", ratio, "times", GOALS.get(method)))
        rows[name] = [
            predicted * PAPER_INSERT_SECONDS,
            predicted,
            ratio,
            written[name] / written[strawman],
            times.median(name),
            written[name] / 1e6,
        ]

    def draw(axes: Axes) -> None:
        bars(axes, {name: times.median(name) for name in rows}, "seconds, median")

    columns = ["predicted s", "predicted times", "measured times", "bytes, times", "measured s", "MB"]
    title = "Insertion, predicted by table 1 (in seconds of the paper's machine) and measured (figures 9 and 11)"
    return Outcome(
        metrics,
        [Picture("figure11", f"Inserting {amounts.rows:,} rows (oscar-archives-2004, figure 11)", draw)],
        [Grid("figure11", title, columns, rows)],
    )
