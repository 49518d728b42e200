"""Pairs of queries, one with a window ten times as long: with the same rows coming and the same number of results
touched, the window's length should not matter."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import errata_under_test as errata
from bench.corrections import RATE
from bench.evaluate_day import Following, Stretch, all_done, answered
from bench.measure import Grid, Metric, Outcome, interleaved, talk
from errata.answer.runs import run
from errata.declare.site import Site
from errata.model.query import EmitMode
from errata.model.time import MINUTE, SECOND

NARROW = MINUTE
"""The shorter window; the longer one is ten times as long."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two queries, one with a window ten times as long, that touch equally many results when the same rows come."""

    name: str
    template: str
    """With `{window}` for the window's length."""

    def texts(self) -> dict[str, str]:
        """Both texts by the names of the queries."""
        windows = {f"{self.name}_narrow": NARROW, f"{self.name}_wide": 10 * NARROW}
        return {
            name: self.template.replace("{window}", f"{length // SECOND} seconds") for name, length in windows.items()
        }


PAIRS: Sequence[Pair] = (
    Pair(
        "closed",
        """\
SELECT symbol, window_end, count(*) AS quotes, avg(price) AS mean, max(price) AS highest
FROM quotes
GROUP BY symbol, window(time, '{window}')
""",
    ),
    Pair(
        "group",
        """\
SELECT symbol, count(*) AS quotes, avg(price) AS mean, stddev(price) AS deviation
FROM sliding(quotes, '{window}')
GROUP BY symbol
""",
    ),
    Pair(
        "extremes",
        # The count changes with every row, whatever becomes of the extremes: so both touch as many results.
        """\
SELECT symbol, count(*) AS quotes, min(price) AS lowest, max(price) AS highest
FROM sliding(quotes, '{window}')
GROUP BY symbol
""",
    ),
    Pair("distinct", "SELECT DISTINCT symbol FROM sliding(quotes, '{window}')"),
)


@dataclass(frozen=True, slots=True)
class WindowAmounts:
    """How much of everything is measured."""

    end: int
    """The row with which the feed goes on: with it the longer windows end."""
    bucket_rows: int
    rounds: int
    batch: int = 10_000
    warm_up: int = 2

    def __post_init__(self) -> None:
        if self.end % (10 * NARROW // SECOND * RATE):
            raise ValueError(f"no window of {10 * NARROW // SECOND} seconds ends behind {self.end:,} rows of the feed")

    @property
    def stretch(self) -> Stretch:
        """Rows for three of the longer windows."""
        return Stretch(max(0, self.end - 30 * NARROW // SECOND * RATE), self.end, self.bucket_rows)


def window_figures(amounts: WindowAmounts, pairs: Sequence[Pair], folder: Path) -> Outcome:
    """Each pair, in a copy of the same archive for each round: so all rounds close the same windows."""
    texts = {name: (text, EmitMode.FINAL) for pair in pairs for name, text in pair.texts().items()}
    talk.print(f"windows of {NARROW // SECOND} seconds, and of ten times as much …")
    answered(folder / "site", amounts.stretch, texts).catalog.close()
    batch = Following(folder / "batch", amounts.end).batch(amounts.batch)
    copies = []
    for number in range(amounts.warm_up + amounts.rounds):
        copies.append(errata.copy_site(folder / "site", folder / f"copy-{number}"))
        errata.take_in(copies[-1], [batch])
    results: dict[str, int] = {}

    def contender(name: str, copies: Sequence[Site]) -> Callable[[int], None]:
        def one(number: int) -> None:
            (done,) = all_done(run(copies[number], [name], take=False), 1).evaluated
            results[name] = done.measures.rows

        return one

    times = interleaved(amounts.rounds, warm_up=amounts.warm_up, **{name: contender(name, copies) for name in texts})
    for site in copies:
        site.catalog.close()
    shutil.rmtree(folder)
    metrics, lines = [], {}
    for pair in pairs:
        narrow, wide = pair.texts()
        metrics.append(
            Metric(f"{pair.name}: ten times the window", times.ratio(wide, narrow), "times as long", "<= 1.3")
        )
        for name in (narrow, wide):
            lines[name.replace("_", " ")] = [1_000 * times.median(name), float(results[name])]
    return Outcome(metrics, grids=[Grid("windows", "Windows and ten times as long ones", ["run ms", "results"], lines)])
