"""What it takes to answer a registered query when it is invoked: the paper's figures 7 and 8 and its table 2, beside
Spark and DuckDB over the same files; and its figure 11, the probes of a join with and without composite tuples.

A reader is invoked as a server's is: it is warm, no two invocations in a row are of one query, and each asks for
another time, so that the window has moved. The first invocation of a query, which reads its rows, is told by itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, talk
from bench.psoup_archive import (
    Contender,
    Question,
    RegisteredArchive,
    aggregate_question,
    contenders,
    equality_join,
    equality_question,
    inequality_join,
    interval_question,
)
from bench.psoup_probes import ProbeTimes, measure_probes
from bench.psoup_workload import SEED, VALUES
from bench.report import COLOURS
from errata.model.registered import Comparison, RegisteredQuery, ResultStrategy
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, unregister

GOAL_WINDOW = 1 << 16
MOST_ROWS = 1_000
JOIN_WINDOW = 1 << 14
STRATEGIES = {
    ResultStrategy.NONE: "none (NoMat)",
    ResultStrategy.PARTIAL: "partial (PSoup-P)",
    ResultStrategy.COMPLETE: "complete (PSoup-C)",
}


@dataclass(frozen=True, slots=True)
class InvocationAmounts:
    """How much is measured."""

    windows: Sequence[int]
    join_windows: Sequence[int]
    aggregate_windows: tuple[int, int]
    questions: int
    """Queries of a kind."""
    rounds: int
    """Invocations of each, and answers of the others."""
    probes: Sequence[int]
    """Rows of each stream in figure 11."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A registered query, and the question that it answers."""

    question: Question
    window: int
    query: RegisteredQuery


def invocation_figures(amounts: InvocationAmounts, archive: RegisteredArchive) -> Outcome:
    """All figures about invocation."""
    parts = [_figure7(amounts, archive), _figure8(amounts, archive), _table2(amounts, archive)]
    with contenders(archive) as others:
        parts.append(_beside_others(amounts, archive, others))
    parts += [_aggregates(amounts, archive), _figure11(amounts)]
    return Outcome(
        [metric for part in parts for metric in part.metrics],
        [picture for part in parts for picture in part.pictures],
        [grid for part in parts for grid in part.grids],
    )


def registered(
    archive: RegisteredArchive, questions: Sequence[Question], window: int, strategy: ResultStrategy
) -> list[_Asked]:
    """Register the questions, and match what is there."""
    texts = [each.registered(window) for each in questions]
    queries = register(archive.site, texts, owner="bench", strategy=strategy)
    materialise(archive.site)
    return [_Asked(question, window, query) for question, query in zip(questions, queries, strict=True)]


def forgotten(archive: RegisteredArchive, asked: Sequence[_Asked]) -> None:
    for each in asked:
        unregister(archive.site, each.query.handle)


def moments(archive: RegisteredArchive, sources: Sequence[str]) -> Iterator[int]:
    """Times to ask for, each later than the one before."""
    newest = min(archive.rows[stream] for stream in sources) - 1
    yield from (newest - 50 * step for step in reversed(range(50)))


def seconds_of(archive: RegisteredArchive, asked: Sequence[_Asked], rounds: int) -> list[float]:
    """The seconds of each invocation by a warm reader, round by round. A complete answer is of the present alone."""
    found = []
    with RegisteredReader(archive.site) as reader:
        reader.maintain()
        at = {each.query.handle: moments(archive, list(each.question.sources.values())) for each in asked}
        for number in range(rounds + 1):
            for each in asked:
                present = each.query.strategy is ResultStrategy.COMPLETE and len(each.question.sources) == 1
                now = None if present else next(at[each.query.handle])
                begun = time.perf_counter()
                reader.invoke(each.query.handle, at=now)
                if number:
                    found.append(time.perf_counter() - begun)
    return found


def _by_strategy(
    amounts: InvocationAmounts, archive: RegisteredArchive, kind: Callable[[Random], Question], window: int
) -> list[float]:
    """The median milliseconds of an invocation, by strategy."""
    draw = Random(SEED)
    questions = [kind(draw) for _ in range(amounts.questions)]
    medians = []
    for strategy in STRATEGIES:
        asked = registered(archive, questions, window, strategy)
        medians.append(statistics.median(seconds_of(archive, asked, amounts.rounds)) * 1e3)
        forgotten(archive, asked)
    return medians


def _some(kind: Callable[[Random, int], Question], draw: Random) -> Question:
    """A question over one to four attributes."""
    return kind(draw, draw.randint(1, 4))


def _figure7(amounts: InvocationAmounts, archive: RegisteredArchive) -> Outcome:
    kinds = {"equality": partial(_some, equality_question), "interval": partial(_some, interval_question)}
    grids, pictures = [], []
    for letter, (name, kind) in zip("ab", kinds.items(), strict=True):
        table = {}
        for window in amounts.windows:
            talk.print(f"figure 7({letter}): window {window:,}")
            table[window] = _by_strategy(amounts, archive, kind, window)
        title = f"Response time of {name} queries (psoup-2002, figure 7{letter})"
        grids.append(_grid(f"figure7{letter}", f"{title}, median ms", table))
        pictures.append(_picture(f"figure7{letter}", title, table))
    return Outcome([], pictures, grids)


def _figure8(amounts: InvocationAmounts, archive: RegisteredArchive) -> Outcome:
    table = {}
    for window in amounts.join_windows:
        talk.print(f"figure 8: window {window:,}")
        table[window] = _by_strategy(amounts, archive, inequality_join, window)
    title = "Response time of joins by an inequality (psoup-2002, figure 8)"
    return Outcome([], [_picture("figure8", title, table)], [_grid("figure8", f"{title}, median ms", table)])


def _table2(amounts: InvocationAmounts, archive: RegisteredArchive) -> Outcome:
    window = min(1 << 15, amounts.windows[-1])
    table = {}
    for count in (1, 2, 4):
        talk.print(f"table 2: {count} intervals")
        table[f"{count} intervals"] = _by_strategy(
            amounts, archive, lambda draw, count=count: interval_question(draw, count), window
        )
    title = f"Response time by intervals of a query, window {window:,} (psoup-2002, table 2), median ms"
    return Outcome([], [], [Grid("table2", title, list(STRATEGIES.values()), table)])


def _grid(name: str, title: str, table: Mapping[int, Sequence[float]]) -> Grid:
    return Grid(name, title, list(STRATEGIES.values()), {f"{window:,} rows": each for window, each in table.items()})


def _picture(name: str, title: str, table: Mapping[int, Sequence[float]]) -> Picture:
    def draw(axes: Axes) -> None:
        for number, label in enumerate(STRATEGIES.values()):
            axes.plot(list(table), [each[number] for each in table.values()], "o-", color=COLOURS[number], label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("rows of the window")
        axes.set_ylabel("ms")
        axes.legend(frameon=False)

    return Picture(name, title, draw)


def _beside_others(amounts: InvocationAmounts, archive: RegisteredArchive, others: Mapping[str, Contender]) -> Outcome:
    """A selection of at most 1,000 rows and a join, beside computing them when they are asked for."""
    draw = Random(SEED)
    selections = [interval_question(draw, 4, 80) for _ in range(amounts.questions)]
    joins = [equality_join(draw) for _ in range(amounts.questions)]
    window = min(GOAL_WINDOW, amounts.windows[-1])
    table: dict[str, list[float]] = {}
    for name, questions, size in (("selection", selections, window), ("join", joins, JOIN_WINDOW)):
        talk.print(f"{name} beside Spark and DuckDB")
        asked = registered(archive, questions, size, ResultStrategy.PARTIAL)
        first = _first_seconds(archive, asked)
        ours = statistics.median(seconds_of(archive, asked, amounts.rounds)) * 1e3
        theirs = [statistics.median(_compared(archive, asked, each, amounts.rounds)) * 1e3 for each in others.values()]
        table[f"{name}, window {size:,}"] = [ours, first * 1e3, *theirs]
        forgotten(archive, asked)
    (selected, _, far, near, duck), (joined, _, far_join, near_join, _) = table.values()
    return Outcome(
        [
            Metric(f"invocation of a selection, window {window:,}, median", selected, "ms", "<= 5"),
            Metric("Spark (far) at invocation, beside it", far / selected, "times", ">= 100"),
            Metric("Sail (near) at invocation, beside it", near / selected, "times"),
            Metric("DuckDB at invocation, beside it", duck / selected, "times", ">= 10"),
            Metric(f"invocation of a join, window {JOIN_WINDOW:,}, median", joined, "ms"),
            Metric("Spark (far) at invocation, beside it", far_join / joined, "times", ">= 50"),
            Metric("Sail (near) at invocation, beside it", near_join / joined, "times"),
        ],
        grids=[
            Grid(
                "beside",
                "Median milliseconds of an answer",
                ["errata", "the first time", *others],
                table,
            )
        ],
    )


def _first_seconds(archive: RegisteredArchive, asked: Sequence[_Asked]) -> float:
    """The median seconds of a query's first invocation by a new reader."""
    found = []
    for each in asked[:5]:
        with RegisteredReader(archive.site) as reader:
            begun = time.perf_counter()
            reader.invoke(each.query.handle)
            found.append(time.perf_counter() - begun)
    return statistics.median(found)


def _compared(archive: RegisteredArchive, asked: Sequence[_Asked], other: Contender, rounds: int) -> list[float]:
    """The seconds that another takes for the same answers, which must be as large as ours."""
    found = []
    with RegisteredReader(archive.site) as reader:
        for each in asked[: max(3, rounds)]:
            now = next(moments(archive, list(each.question.sources.values())))
            text = each.question.plain(each.window, now)
            ours = reader.invoke(each.query.handle, at=now).rows.num_rows
            other(text)
            begun = time.perf_counter()
            theirs = other(text).num_rows
            found.append(time.perf_counter() - begun)
            if ours != theirs or ours > MOST_ROWS:
                raise RuntimeError(f"{ours} rows of {each.query.text} where {theirs} are right")
    return found


def _aggregates(amounts: InvocationAmounts, archive: RegisteredArchive) -> Outcome:
    """Aggregates over a small and a large window."""
    medians = []
    for window in amounts.aggregate_windows:
        talk.print(f"aggregates: window {window:,}")
        draw = Random(SEED)
        questions = [aggregate_question(draw) for _ in range(amounts.questions)]
        asked = registered(archive, questions, window, ResultStrategy.PARTIAL)
        medians.append(statistics.median(seconds_of(archive, asked, amounts.rounds)) * 1e3)
        forgotten(archive, asked)
    small, large = amounts.aggregate_windows
    return Outcome(
        [
            Metric(f"aggregates, window {small:,}, median", medians[0], "ms"),
            Metric(f"the same, window {large:,}, beside it", medians[1] / medians[0], "times", "<= 2"),
        ]
    )


def _figure11(amounts: InvocationAmounts) -> Outcome:
    """Seconds to probe S with all hybrids of a query: one by one, and as a composite tuple."""
    draw = np.random.default_rng(SEED)
    workloads = {
        "Eq/Ineq": (Comparison.LESS, Comparison.EQUAL),
        "Ineq/Eq": (Comparison.EQUAL, Comparison.LESS),
        "Ineq/Ineq": (Comparison.LESS, Comparison.LESS),
    }
    table: dict[str, list[float]] = {}
    for count in amounts.probes:
        values, probed = draw.integers(0, VALUES, count), draw.integers(0, VALUES, count)
        row: list[float] = []
        for relation, shared in workloads.values():
            told: ProbeTimes = measure_probes(values, probed, relation, shared, VALUES // 2)
            row += [told.separate_seconds * 1e3, told.composite_seconds * 1e3]
        table[f"{count:,} rows"] = row

    def drawing(axes: Axes) -> None:
        for number, name in enumerate(workloads):
            for line, (offset, how) in zip(("o--", "s-"), enumerate(("separate", "composite")), strict=True):
                column = [each[2 * number + offset] for each in table.values()]
                axes.plot(list(amounts.probes), column, line, color=COLOURS[number], label=f"{name}, {how}")
        axes.set_yscale("log")
        axes.set_xlabel("rows of each stream")
        axes.set_ylabel("ms")
        axes.legend(frameon=False, fontsize=7)

    title = "Probe times with and without composite tuples (psoup-2002, figure 11)"
    columns = [f"{name} {how}" for name in workloads for how in ("separate", "composite")]
    return Outcome([], [Picture("figure11", title, drawing)], [Grid("figure11", f"{title}, ms", columns, table)])
