"""Memory and throughput by number of inputs: figures 2 and 3 over ordered feeds that only insert, and figure 7 over
feeds half of which are out of order and a third of whose elements are adjustments, where order can be enforced before a
simple merge instead (logical merge, VI-C and VI-D)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, talk
from bench.merge_contenders import CLEANSE, NAIVE, held_bytes, merging_times, timed_merges
from bench.merge_workload import FeedChunks, made_feeds, write_chunks
from errata.generate.feeds import EventSpec, FeedFaults, event_table
from errata.model.feed import MergeAlgorithm
from errata.model.time import SECOND

R0, R1, R2, R3, R4 = (each.value for each in MergeAlgorithm)
ALL = (R0, R1, R2, R3, R4, NAIVE)
UNORDERED = (R3, NAIVE, CLEANSE)

LARGE, SMALL = 1_000, 16
"""Bytes of an event's text: the paper's, and about as many as a row of numbers has."""
GAP = 200
"""Microseconds between two events, on average."""
CHUNK_EVENTS = 20_000
"""Events of a batch of the merge, about, where throughput from files to files is measured."""
MEBIBYTE = 1 << 20

GOALS = {R0: ">= 2", R1: ">= 2", R2: ">= 2", R3: ">= 1", R4: ">= 0.5"}
"""Million elements a second, of all inputs together."""

IN_ORDER = FeedFaults(stable=0.01)
ENFORCED = FeedFaults(disorder=0.5, delay=SECOND // 10, speculative=True, adjusted=0.06, stable=0.001)
"""Half out of order, 36% of the elements adjustments, one in a thousand stable (VI-D)."""


@dataclass(frozen=True, slots=True)
class InputAmounts:
    """How much is merged."""

    held_events: int
    """Events with large texts, of which the memory is measured."""
    active: int
    """How many events last at the same time."""
    timed_events: int
    """Events with small texts, which are timed."""
    inputs: Sequence[int] = (2, 4, 6, 8, 10)
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class EnforcedAmounts:
    """How much is merged of feeds out of order."""

    events: int
    """Events with large texts."""
    active: int
    timed_events: int
    """Events with small texts, which go from files to files."""
    inputs: Sequence[int] = (2, 4, 6, 8, 10)
    batches: Sequence[int] = (1_000, 5_000, 20_000)
    """Events of a batch. The paper merges element by element: the first is nearest to it."""
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of each contender, by number of inputs."""

    inputs: Sequence[int]
    held: Mapping[str, list[float]]
    """MiB."""
    rates: Mapping[str, list[float]]
    """Million elements a second."""

    @classmethod
    def nothing(cls, names: Sequence[str], inputs: Sequence[int]) -> Measured:
        return cls(inputs, {name: [] for name in names}, {name: [] for name in names})

    def memory_growth(self, names: Sequence[str], what: str) -> list[Metric]:
        """How much more is remembered of the most inputs than of the fewest."""
        title = f"{what}, {self.inputs[-1]} inputs beside {self.inputs[0]}"
        return [
            Metric(
                f"memory of {name}, {title}",
                self.held[name][-1] / self.held[name][0],
                "times",
                "<= 1.5" if name == R3 else None,
            )
            for name in names
        ]


def input_figures(amounts: InputAmounts, folder: Path) -> Outcome:
    """Figures 2 and 3."""
    found = Measured.nothing(ALL, amounts.inputs)
    worked: dict[str, list[float]] = {name: [] for name in ALL}
    held, timed = (
        EventSpec(events, gap=GAP, lifetime=amounts.active * GAP)
        for events in (amounts.held_events, amounts.timed_events)
    )
    for inputs in amounts.inputs:
        talk.log(f"ordered feeds: {inputs} inputs")
        small = _chunks(folder / "small", inputs, IN_ORDER, timed, SMALL)
        timings = timed_merges(ALL, small, folder / "out", amounts.rounds)
        for name in ALL:
            found.rates[name].append(timings.rate(name, small))
            worked[name].append(timings.processor_rate(name, small))
        small.remove()
        large = _chunks(folder / "large", inputs, IN_ORDER, held, LARGE)
        for name in ALL:
            found.held[name].append(held_bytes(name, large, folder / "out").most / MEBIBYTE)
        large.remove()
    least = "least of all numbers of inputs"
    metrics = [
        Metric(f"throughput of {name}, ordered feeds, {least}", min(rates), "M/s", GOALS.get(name))
        for name, rates in found.rates.items()
    ]
    grown = found.memory_growth((R3, NAIVE), "ordered feeds")
    pictures, grids = _drawn(found, ("figure2", "figure3"), "ordered feeds")
    title = "Million elements a second of processor time, ordered feeds, by inputs"
    grids.append(Grid("figure3-processor", title, [f"{number} inputs" for number in amounts.inputs], worked))
    return Outcome([*grown, *metrics], pictures, grids)


def enforced_figures(amounts: EnforcedAmounts, folder: Path) -> Outcome:
    """Figure 7: memory, and throughput of the merge alone."""
    found = Measured.nothing(UNORDERED, amounts.inputs)
    spec = EventSpec(amounts.events, gap=GAP, lifetime=amounts.active * GAP)
    by_batch: dict[str, list[float]] = {name: [] for name in UNORDERED}
    for inputs in amounts.inputs:
        talk.log(f"unordered feeds: {inputs} inputs")
        chunks = _chunks(folder / "large", inputs, ENFORCED, spec, LARGE, amounts.batches[0])
        for name in UNORDERED:
            found.held[name].append(held_bytes(name, chunks, folder / "out").most / MEBIBYTE)
        timings = merging_times(UNORDERED, chunks, folder / "out", amounts.rounds)
        for name in UNORDERED:
            found.rates[name].append(chunks.elements / timings.median(name) / 1_000_000)
        chunks.remove()
    most = amounts.inputs[-1]
    for name in UNORDERED:
        by_batch[name].append(found.rates[name][-1])
    for batch in amounts.batches[1:]:
        talk.log(f"unordered feeds: {most} inputs, batches of {batch:,} events")
        chunks = _chunks(folder / "large", most, ENFORCED, spec, LARGE, batch)
        others = merging_times(UNORDERED, chunks, folder / "out", amounts.rounds)
        for name in UNORDERED:
            by_batch[name].append(chunks.elements / others.median(name) / 1_000_000)
        chunks.remove()
    held = found.held
    metrics = found.memory_growth(UNORDERED, "unordered feeds")
    metrics += [
        Metric(f"memory of {name} beside R3, {most} inputs", held[name][-1] / held[R3][-1], "times")
        for name in (NAIVE, CLEANSE)
    ]
    metrics += [
        Metric(f"throughput of R3 beside {name}, {most} inputs", timings.ratio(name, R3), "times", goal)
        for name, goal in ((NAIVE, ">= 2"), (CLEANSE, ">= 3"))
    ]
    metrics.append(_end_to_end(amounts, folder))
    pictures, grids = _drawn(found, ("figure7-memory", "figure7"), "unordered feeds")
    title = f"Million elements a second of the merge alone, {most} unordered feeds, by events in a batch"
    grids.append(Grid("figure7-batches", title, [f"{batch:,}" for batch in amounts.batches], by_batch))
    return Outcome(metrics, pictures, grids)


def _end_to_end(amounts: EnforcedAmounts, folder: Path) -> Metric:
    """Unordered feeds with small texts, from files to files."""
    spec = EventSpec(amounts.timed_events, gap=GAP, lifetime=amounts.active * GAP)
    chunks = _chunks(folder / "small", amounts.inputs[-1], ENFORCED, spec, SMALL)
    rate = timed_merges((R3,), chunks, folder / "out", amounts.rounds).rate(R3, chunks)
    chunks.remove()
    what = f"throughput of R3, {amounts.inputs[-1]} unordered feeds, from files to files"
    return Metric(what, rate, "M/s", GOALS[R3])


def _chunks(
    folder: Path, inputs: int, faults: FeedFaults, spec: EventSpec, text_bytes: int, batch: int = CHUNK_EVENTS
) -> FeedChunks:
    """Files of so many inputs, in batches of about so many events."""
    feeds = made_feeds(event_table(spec), [faults] * inputs)
    return write_chunks(folder, feeds, max(2, spec.events // batch), text_bytes)


def _drawn(found: Measured, names: tuple[str, str], what: str) -> tuple[list[Picture], list[Grid]]:
    """The two figures, as pictures and as tables."""
    units = ("MiB remembered", "million elements a second")
    pictures, grids = [], []
    for name, unit, values in zip(names, units, (found.held, found.rates), strict=True):
        title = f"{unit[0].upper()}{unit[1:]}, {what}, by inputs"
        pictures.append(Picture(name, title, line_drawing(found.inputs, values, "inputs", unit)))
        grids.append(Grid(name, title, [f"{number} inputs" for number in found.inputs], values))
    return pictures, grids


MARKERS = "osD^vx"


def line_drawing(
    places: Sequence[float], values: Mapping[str, Sequence[float]], across: str, up: str
) -> Callable[[Axes], None]:
    """A line for each name, told apart by its marker as well."""

    def draw(axes: Axes) -> None:
        for (name, heights), marker in zip(values.items(), MARKERS, strict=False):
            axes.plot(places, heights, marker=marker, markersize=4, linewidth=1.2, label=name)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)

    return draw
