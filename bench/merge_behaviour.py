"""How the merge behaves as feeds change: output size by disorder (figure 4), throughput by lag (figure 5), memory and
throughput by the frequency of stable elements (figure 6), and what is remembered of ten times the elements (logical
merge, VI-C)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.measure import Grid, Metric, Outcome, Picture, talk
from bench.merge_contenders import held_bytes, merge_files, timed_merges
from bench.merge_inputs import GAP, LARGE, MEBIBYTE, R0, R1, R2, R3, R4, SMALL, line_drawing
from bench.merge_workload import made_feeds, write_chunks
from errata.generate.feeds import EventSpec, FeedElement, FeedFaults, event_table
from errata.model.feed import EmitPolicy, MergePolicy
from errata.model.time import SECOND

DISORDERED = FeedFaults(disorder=0.2, stable=0.01)
INPUTS = 3


@dataclass(frozen=True, slots=True)
class BehaviourAmounts:
    """How much is merged."""

    disorder_events: int
    lag_events: int
    stable_events: int
    growth_events: int
    """Of the smaller archive; the other has ten times as many."""
    output_chunks: int = 60
    """Batches of which the output is counted: within one, adjustments of the same row are one."""
    rounds: int = 3
    disorders: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    lags: Sequence[float] = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    """In seconds of the simulated clock."""
    frequencies: Sequence[float] = (0.00001, 0.0001, 0.001, 0.01)


def behaviour_figures(amounts: BehaviourAmounts, folder: Path) -> Outcome:
    """Figures 4, 5 and 6, and the growth of the state."""
    found = [
        part(amounts, folder / part.__name__) for part in (output_sizes, lag_rates, stable_frequencies, state_growth)
    ]
    return Outcome(
        [metric for each in found for metric in each.metrics],
        [picture for each in found for picture in each.pictures],
        [grid for each in found for grid in each.grids],
    )


POLICIES = (
    EmitPolicy.FIRST,
    EmitPolicy.EVERY,
    EmitPolicy.LEADER,
    EmitPolicy.HALF_FROZEN,
    EmitPolicy.FRACTION,
)


def output_sizes(amounts: BehaviourAmounts, folder: Path) -> Outcome:
    """Figure 4: adjustments that come out, by disorder. Each event that comes out of order adjusts another one."""
    rows: dict[str, list[float]] = {"one feed, without a merge": []}
    rows |= {f"merged, emit {each}": [] for each in POLICIES}
    most = 0.0
    table = event_table(EventSpec(amounts.disorder_events, gap=GAP, lifetime=SECOND))
    for disorder in amounts.disorders:
        talk.log(f"output size: disorder {disorder:.0%}")
        feeds = made_feeds(table, [replace(DISORDERED, disorder=disorder, speculative=True)] * INPUTS)
        chunks = write_chunks(folder / f"{disorder}", feeds, amounts.output_chunks, SMALL)
        rows["one feed, without a merge"].append(float((feeds[0].kind == FeedElement.ADJUST).sum()))
        for emit in POLICIES:
            merged = merge_files(R3, chunks, folder / "out", MergePolicy(emit))
            rows[f"merged, emit {emit}"].append(merged.corrections)
            if emit is EmitPolicy.FIRST:
                inserted = sum(int((feed.kind == FeedElement.INSERT).sum()) for feed in feeds)
                most = max(most, (merged.inserts + merged.corrections) / inserted)
        chunks.remove()
    places = [100 * each for each in amounts.disorders]
    title = "Adjustments that come out, by disorder"
    return Outcome(
        [
            Metric("rows and adjustments out of R3, beside rows in (theorem 1)", most, "times", "<= 1"),
            Metric(
                f"adjustments out of R3, beside those of one feed, disorder {amounts.disorders[-1]:.0%}",
                rows[f"merged, emit {EmitPolicy.FIRST}"][-1] / rows["one feed, without a merge"][-1],
                "times",
            ),
        ],
        [Picture("figure4", title, line_drawing(places, rows, "% out of order", "adjustments"))],
        [Grid("figure4", title, [f"{each:.0%}" for each in amounts.disorders], rows)],
    )


def lag_rates(amounts: BehaviourAmounts, folder: Path) -> Outcome:
    """Figure 5: throughput as one or two of three inputs lag behind."""
    rows: dict[str, list[float]] = {"one lags": [], "two lag": []}
    table = event_table(EventSpec(amounts.lag_events, gap=GAP, lifetime=SECOND // 5))
    pieces = max(2, amounts.lag_events // 5_000)
    for lag in amounts.lags:
        talk.log(f"lag of {lag:g} s")
        for lagging, rates in enumerate(rows.values(), 1):
            faults = [
                replace(DISORDERED, stable=0.001, lag=int(lag * SECOND) if number < lagging else 0)
                for number in range(INPUTS)
            ]
            chunks = write_chunks(folder / f"{lag}-{lagging}", made_feeds(table, faults), pieces, SMALL)
            timings = timed_merges((R3,), chunks, folder / "out", amounts.rounds)
            rates.append(timings.processor_rate(R3, chunks))
            chunks.remove()
    title = "Million elements a second of processor time of R3, by lag, three inputs"
    return Outcome(
        [
            Metric(f"throughput of R3, {name} by {amounts.lags[-1]:g} s, beside no lag", rates[-1] / rates[0], "times")
            for name, rates in rows.items()
        ],
        [Picture("figure5", title, line_drawing(amounts.lags, rows, "seconds", "million elements a second"))],
        [Grid("figure5", title, [f"{each:g} s" for each in amounts.lags], rows)],
    )


def stable_frequencies(amounts: BehaviourAmounts, folder: Path) -> Outcome:
    """Figure 6: memory and throughput, as stable elements become more frequent."""
    ordered, unordered = (R0, R1, R2), (R3, R4)
    held: dict[str, list[float]] = {name: [] for name in unordered}
    rates: dict[str, list[float]] = {name: [] for name in (*ordered, *unordered)}
    table = event_table(EventSpec(amounts.stable_events, gap=GAP, lifetime=SECOND // 5))
    pieces = max(2, amounts.stable_events // 10_000)
    for frequency in amounts.frequencies:
        talk.log(f"stable elements: {frequency:.3%}")
        for names, faults in (
            (ordered, FeedFaults(stable=frequency)),
            (unordered, replace(DISORDERED, stable=frequency)),
        ):
            chunks = write_chunks(
                folder / f"{frequency}-{names[0]}", made_feeds(table, [faults] * INPUTS), pieces, SMALL
            )
            timings = timed_merges(names, chunks, folder / "out", amounts.rounds)
            for name in names:
                rates[name].append(timings.processor_rate(name, chunks))
            for name in names:
                if name in held:
                    held[name].append(held_bytes(name, chunks, folder / "out").most / MEBIBYTE)
            chunks.remove()
    places = np.log10(np.array(amounts.frequencies) * 100).tolist()
    across = "log10 of the frequency of stable elements in %"
    columns = [f"{100 * each:g}%" for each in amounts.frequencies]
    titles = (
        "MiB remembered, by frequency of stable elements",
        "Million elements a second of processor time, by frequency of stable elements",
    )
    return Outcome(
        [
            Metric(
                f"memory of {name}, {columns[0]} stable elements, beside {columns[-1]}",
                held[name][0] / held[name][-1],
                "times",
            )
            for name in unordered
        ],
        [
            Picture("figure6-memory", titles[0], line_drawing(places, held, across, "MiB")),
            Picture("figure6", titles[1], line_drawing(places, rates, across, "million elements a second")),
        ],
        [Grid("figure6-memory", titles[0], columns, held), Grid("figure6", titles[1], columns, rates)],
    )


TENFOLD = 10


def state_growth(amounts: BehaviourAmounts, folder: Path) -> Outcome:
    """What is remembered of ten times the elements, as many of which are not frozen at any time."""
    faults = replace(DISORDERED, adjusted=0.1)
    held = []
    for times in (1, TENFOLD):
        talk.log(f"growth: {times} times the elements")
        events = amounts.growth_events * times
        table = event_table(EventSpec(events, gap=GAP, lifetime=SECOND))
        pieces = max(2, events // 5_000)
        chunks = write_chunks(folder / f"{times}", made_feeds(table, [faults] * INPUTS), pieces, LARGE)
        held.append(held_bytes(R3, chunks, folder / "out").most)
        chunks.remove()
    return Outcome(
        [
            Metric(
                "memory of R3, ten times the elements with the same unfrozen set", held[1] / held[0], "times", "<= 1.1"
            ),
            Metric("memory of R3 beside ten times the elements", held[1] / MEBIBYTE, "MiB"),
        ]
    )
