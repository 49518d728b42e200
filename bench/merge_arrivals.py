"""Bursts and congestion: figures 8 and 9 of the logical merge (VI-E).

Arrival is simulated, the merge is not. A source makes elements at a constant rate. On its way each goes through a
channel that passes one after the other; delays in the channel hold all that follow, which then comes in a spike as fast
as the channel can. The clock of the simulation is cut into intervals; what arrives within one is a batch of R3, and the
rate of output is the number of rows that its batches bring, by interval. How long a merge takes does not count: at this
rate it takes a small part of an interval, which is measured as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from bench.measure import Metric, Outcome, Picture, talk
from bench.merge_contenders import make_merger
from bench.merge_inputs import R3, SMALL
from bench.merge_workload import ElementReader, StepProgress
from errata.generate.feed_files import feed_rows
from errata.generate.feeds import (
    EventSpec,
    FeedElement,
    FeedFaults,
    PhysicalFeed,
    event_table,
    physical_feed,
)
from errata.model.time import SECOND, Interval

Numbers = npt.NDArray[np.int64]

RATE = 5_000
"""Elements a second of each input, as in the paper."""
CHANNEL = 20
"""Microseconds that the channel needs for an element: it can pass ten times the rate."""
FAULTS = FeedFaults(disorder=0.2, stable=0.01, delay=SECOND // 10)
EDGE = SECOND
"""At the beginning and the end, not all inputs are there; rates are of what is between."""

BURSTY, CONGESTED = 4, 3
"""Inputs of the two experiments."""
STALL_CHANCE = (0.003, 0.005)
"""The probability of a delay after an element: between these, another one for each input."""
STALL, STALL_DEVIATION = 20_000, 5_000
"""Microseconds of a delay in a burst: a normal distribution without what is below 0."""
SLOWER, SLOWER_DEVIATION = 600, 200
"""Microseconds of the delay of each element in a congestion: it passes less than a third of the rate."""

CONGESTIONS: Sequence[tuple[int, float, float]] = ((0, 0.15, 0.25), (1, 0.40, 0.50), (2, 0.70, 0.85), (0, 0.80, 0.90))
"""Input, begin and end of each congestion, as shares of the time. The last two overlap, so that two of three inputs are
congested at once."""


@dataclass(frozen=True, slots=True)
class ArrivalAmounts:
    """For how long elements come, and in which intervals rates are measured."""

    seconds: int
    burst_interval: int = SECOND // 20
    congestion_interval: int = SECOND // 4


def arrival_figures(amounts: ArrivalAmounts, folder: Path) -> Outcome:
    """Figures 8 and 9."""
    del folder
    bursts, congestions = burst_figure(amounts), congestion_figure(amounts)
    return Outcome(
        [*bursts.metrics, *congestions.metrics],
        [*bursts.pictures, *congestions.pictures],
        [*bursts.grids, *congestions.grids],
    )


def burst_figure(amounts: ArrivalAmounts) -> Outcome:
    """Figure 8: four bursty inputs, and the output."""
    talk.log("bursts")
    chances = np.linspace(*STALL_CHANCE, BURSTY)
    feeds = [
        through_channel(feed, stalls(feed, chance, number))
        for (number, feed), chance in zip(enumerate(_feeds(BURSTY, amounts.seconds)), chances, strict=True)
    ]
    rates = merged_rates(feeds, amounts.burst_interval)
    inputs = [variation(each) for each in rates.inputs]
    output = variation(rates.output)
    metrics = [
        Metric("variation of the rate of four bursty inputs, mean", float(np.mean(inputs)), "of the mean rate"),
        Metric("variation of the rate of the output", output, "of the mean rate"),
        Metric("variation of the output beside the inputs' mean", output / float(np.mean(inputs)), "times", "<= 0.25"),
        Metric("time of a merge, beside the interval whose elements it merges", rates.busy, "times", "< 1"),
    ]
    title = "Elements a second of a bursty input, and rows a second of the output"
    draw = _rate_drawing({"one of four inputs": rates.inputs[0], "output": rates.output}, rates.interval)
    return Outcome(metrics, [Picture("figure8", title, draw)])


def congestion_figure(amounts: ArrivalAmounts) -> Outcome:
    """Figure 9: three inputs that are congested at different times, two of them at once, and the output."""
    talk.log("congestion")
    feeds = _feeds(CONGESTED, amounts.seconds)
    slowed = [
        through_channel(feed, slowdowns(feed, [each[1:] for each in CONGESTIONS if each[0] == number], number))
        for number, feed in enumerate(feeds)
    ]
    rates = merged_rates(slowed, amounts.congestion_interval)
    metrics = [
        Metric(
            "lowest rate of the output, one or two of three inputs congested, beside nominal",
            float(rates.output.min()) / RATE,
            "times",
            ">= 0.9",
        ),
        Metric(
            "lowest rate of a congested input, beside nominal",
            float(min(each.min() for each in rates.inputs)) / RATE,
            "times",
        ),
    ]
    title = "Elements a second of congested inputs, and rows a second of the output"
    drawn = {f"input {number}": each for number, each in enumerate(rates.inputs, 1)} | {"output": rates.output}
    return Outcome(metrics, [Picture("figure9", title, _rate_drawing(drawn, rates.interval))])


def _feeds(count: int, seconds: int) -> list[PhysicalFeed]:
    table = event_table(EventSpec(RATE * seconds, gap=SECOND // RATE, lifetime=SECOND // 2))
    return [physical_feed(table, FAULTS, number + 1) for number in range(count)]


# The channel.


def stalls(feed: PhysicalFeed, chance: float, seed: int) -> Numbers:
    """The delay after each element of a bursty input."""
    draw = np.random.default_rng([seed, 8])
    long = np.maximum(draw.normal(STALL, STALL_DEVIATION, len(feed)), 0).astype(np.int64)
    return np.where(draw.random(len(feed)) < chance, long, 0)


def slowdowns(feed: PhysicalFeed, spans: Sequence[tuple[float, float]], seed: int) -> Numbers:
    """The delay of each element that is sent while the input is congested."""
    draw = np.random.default_rng([seed, 9])
    first, last = int(feed.arrival[0]), int(feed.arrival[-1])
    sent = (feed.arrival - first) / (last - first)
    congested = np.zeros(len(feed), bool)
    for begin, end in spans:
        congested |= (sent >= begin) & (sent < end)
    slow = np.maximum(draw.normal(SLOWER, SLOWER_DEVIATION, len(feed)), 0).astype(np.int64)
    return np.where(congested, slow, 0)


def through_channel(feed: PhysicalFeed, delays: Numbers) -> PhysicalFeed:
    """The feed behind the channel: an element waits for those before it, then takes its own time."""
    taken = CHANNEL + delays
    until = np.cumsum(taken)
    return replace(feed, arrival=until + np.maximum.accumulate(feed.arrival - (until - taken)))


# The rates.


@dataclass(frozen=True, slots=True)
class MergedRates:
    """Elements and rows a second, by interval of the clock."""

    interval: int
    inputs: Sequence[npt.NDArray[np.float64]]
    output: npt.NDArray[np.float64]
    busy: float
    """The median time of a merge, as a share of the interval."""


def merged_rates(feeds: Sequence[PhysicalFeed], interval: int) -> MergedRates:
    """Merge what arrives, interval by interval."""
    stream, merger = make_merger(R3, len(feeds))
    reader, reached = ElementReader(stream), StepProgress(stream)
    first = min(int(feed.arrival[0]) for feed in feeds)
    last = min(int(feed.arrival[-1]) for feed in feeds)
    made: list[int] = []
    came: list[list[int]] = [[] for _ in feeds]
    took: list[float] = []
    for start in range(first, last, interval):
        parts = [feed.arriving(Interval(start, start + interval)) for feed in feeds]
        chunk = reader.elements([feed_rows(part, SMALL) for part in parts])
        began = time.perf_counter()
        inserts, _ = merger.merge(chunk, reached.after(chunk.stables))
        took.append(time.perf_counter() - began)
        made.append(inserts.num_rows)
        for counts, part in zip(came, parts, strict=True):
            counts.append(int((part.kind == FeedElement.INSERT).sum()))
    edge = EDGE // interval
    per_second = SECOND / interval
    output, *inputs = (np.array(each[edge:-edge]) * per_second for each in (made, *came))
    return MergedRates(interval, inputs, output, float(np.median(took)) * SECOND / interval)


def variation(rates: npt.NDArray[np.float64]) -> float:
    """The coefficient of variation."""
    return float(rates.std() / rates.mean())


def _rate_drawing(rates: dict[str, npt.NDArray[np.float64]], interval: int) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for name, values in rates.items():
            seconds = (EDGE + np.arange(len(values)) * interval) / SECOND
            axes.plot(seconds, values, linewidth=1.6 if name == "output" else 0.7, label=name)
        axes.set_xlabel("seconds")
        axes.set_ylabel("a second")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)

    return draw
