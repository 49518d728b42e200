"""Memory and throughput by number of inputs: figures 2 and 3 over ordered feeds that only insert, and figure 7 over
feeds half of which are out of order and a third of whose elements are adjustments, where order can be enforced before a
simple merge instead (logical merge, VI-C and VI-D)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, Timings, talk
from bench.merge_contenders import held_bytes, timed_merges
from bench.merge_workload import FeedChunks, made_feeds, write_chunks
from errata.generate.feeds import EventSpec, FeedFaults, event_table
from errata.model.feed import MergeAlgorithm
from errata.model.time import SECOND

R0, R1, R2, R3, R4 = (each.value for each in MergeAlgorithm)
ALL = (R0, R1, R2, R3, R4)
UNORDERED = (R3, R4)

LARGE, SMALL = 1_000, 16
"""Bytes of an event's text: the paper's, and about as many as a row of numbers has."""
GAP = 200
"""Microseconds between two events, on average."""
CHUNK_EVENTS = 20_000
"""Events of a batch of the merge, about."""
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
class Measured:
    """What was measured of each contender, by number of inputs."""

    inputs: Sequence[int]
    held: Mapping[str, Sequence[float]]
    """MiB."""
    rates: Mapping[str, Sequence[float]]
    """Million elements a second."""
    timings: Sequence[Timings]


def input_figures(amounts: InputAmounts, folder: Path) -> Outcome:
    """Figures 2 and 3."""
    found = _measured("ordered feeds", ALL, IN_ORDER, amounts, folder)
    metrics = [
        Metric(
            f"throughput of {name}, ordered feeds, least of all numbers of inputs", min(rates), "M/s", GOALS.get(name)
        )
        for name, rates in found.rates.items()
    ]
    most = found.inputs[-1]
    growth = [
        Metric(
            f"memory of {name}, ordered feeds, {most} inputs beside {found.inputs[0]}",
            found.held[name][-1] / found.held[name][0],
            "times",
            "<= 1.5" if name == R3 else None,
        )
        for name in (R3, R4)
    ]
    return Outcome([*growth, *metrics], *_drawn(found, ("figure2", "figure3"), "ordered feeds"))


def enforced_figures(amounts: InputAmounts, folder: Path) -> Outcome:
    """Figure 7."""
    found = _measured("unordered feeds", UNORDERED, ENFORCED, amounts, folder)
    most, held = found.inputs[-1], found.held
    metrics = [
        Metric(
            f"memory of {name}, unordered feeds, {most} inputs beside {found.inputs[0]}",
            held[name][-1] / held[name][0],
            "times",
            "<= 1.5" if name == R3 else None,
        )
        for name in UNORDERED
    ]
    metrics.append(Metric("throughput of R3, unordered feeds, least", min(found.rates[R3]), "M/s", GOALS[R3]))
    return Outcome(metrics, *_drawn(found, ("figure7-memory", "figure7"), "unordered feeds"))


def _measured(what: str, names: Sequence[str], faults: FeedFaults, amounts: InputAmounts, folder: Path) -> Measured:
    held: dict[str, list[float]] = {name: [] for name in names}
    rates: dict[str, list[float]] = {name: [] for name in names}
    timings = []
    for inputs in amounts.inputs:
        talk.log(f"{what}: {inputs} inputs")
        large = _chunks(folder / f"large-{inputs}", inputs, faults, amounts.held_events, amounts.active, LARGE)
        for name in names:
            held[name].append(held_bytes(name, large, folder / "out").most / MEBIBYTE)
        small = _chunks(folder / f"small-{inputs}", inputs, faults, amounts.timed_events, amounts.active, SMALL)
        timings.append(timed_merges(names, small, folder / "out", amounts.rounds))
        for name in names:
            rates[name].append(small.elements / timings[-1].median(name) / 1_000_000)
        large.remove()
        small.remove()
    return Measured(amounts.inputs, held, rates, timings)


def _chunks(folder: Path, inputs: int, faults: FeedFaults, events: int, active: int, text_bytes: int) -> FeedChunks:
    """Files of so many inputs. Their events last as long as so many of them are active."""
    table = event_table(EventSpec(events, gap=GAP, lifetime=active * GAP))
    return write_chunks(folder, made_feeds(table, [faults] * inputs), max(2, events // CHUNK_EVENTS), text_bytes)


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
