"""Corrections through a real Airflow on PostgreSQL: after how long the result is right, how much of that is Airflow's
own, what waiting holds, and what reading the DAGs takes.

Airflow runs in processes of its own and is not imported here. Each part can be measured alone.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.services import airflow_here

from bench import airflow_noop
from bench.airflow_moments import moments_grid
from bench.airflow_noop import Noop
from bench.airflow_parsing import ParsingAmounts, parsing_figures
from bench.airflow_quotes import Corrected, Quotes
from bench.airflow_rounds import Chain, Found, await_calm, in_rounds
from bench.measure import Metric, Outcome, Scale, talk
from bench.replay_day import Stretch

SUBMIT, CONNECT, PARSING = "submit", "connect", "parsing"
PARTS = (SUBMIT, CONNECT, PARSING)

LABELS = {SUBMIT: "spark-submit", CONNECT: "Spark Connect"}
"""Where jobs run."""

LOOKS = 2
"""Seconds between two looks at a landing folder, as when nothing else is said."""

SETTINGS = {
    "ERRATA_LANDING_SECONDS": str(LOOKS),
    # What the clock starts would come in between.
    **{f"ERRATA_{name}_SCHEDULE": "none" for name in ("APPEND", "AGE_OUT", "COMPACT", "DOCTOR", "VACUUM")},
}


@dataclass(frozen=True, slots=True)
class ArrivalAmounts:
    """How much is measured of corrections that arrive."""

    stretch: Stretch
    """The quotes that are archived and answered before."""
    rounds: int
    warm_up: int = 1


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    arrival: ArrivalAmounts
    parsing: ParsingAmounts


AMOUNTS: Mapping[Scale, Amounts] = {
    Scale.SMALL: Amounts(ArrivalAmounts(Stretch(0, 200_000), rounds=5), ParsingAmounts(rounds=5)),
    Scale.PAPER: Amounts(ArrivalAmounts(Stretch(0, 1_000_000), rounds=10, warm_up=2), ParsingAmounts(rounds=15)),
}


def measure(scale: Scale, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """All figures at a scale, or only those of some parts. Whoever would disturb another comes after it."""
    amounts, parts = AMOUNTS[scale], only or PARTS
    folder.chmod(0o711)  # where root measures, PostgreSQL runs as somebody who must reach its data in there
    found = {part: arrivals(amounts.arrival, folder / part, part) for part in (SUBMIT, CONNECT) if part in parts}
    told = [arrival_outcome(found)] if found else []
    if PARSING in parts:
        told.append(parsing_figures(amounts.parsing, folder / PARSING))
    return Outcome([each for one in told for each in one.metrics], grids=[each for one in told for each in one.grids])


def arrivals(amounts: ArrivalAmounts, folder: Path, part: str) -> Found:
    """Corrections that arrive one by one, with jobs submitted or on a warm server; there the chain of tasks that do
    nothing takes turns with them."""
    connect = part == CONNECT
    quotes = Quotes(folder / "project", amounts.stretch, amounts.warm_up + amounts.rounds)
    quotes.declare()
    settings = {**SETTINGS, **(airflow_noop.settings(folder / "noop") if connect else {})}
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "ERRATA", "SPARK"))}
    talk.print(f"bringing Airflow up, jobs by {LABELS[part]} …")
    with (
        _ended_in_order(),
        airflow_here(
            folder / "airflow", project=quotes.project, connect=connect, settings=settings, environ=own, say=_say
        ) as here,
    ):
        corrected = Corrected(quotes, here)
        chains: list[Chain] = [corrected, *([Noop(folder / "noop", here)] if connect else [])]
        try:
            await_calm(here, chains)
            talk.print(f"{amounts.stretch.rows:,} quotes land …")
            corrected.begin()
            found = in_rounds(here, chains, amounts.rounds, warm_up=amounts.warm_up, looks=LOOKS)
            corrected.check_answer()
        finally:
            corrected.close()
    return found


def arrival_outcome(found: Mapping[str, Found]) -> Outcome:
    """The goals, and where the seconds go."""
    metrics: list[Metric] = []
    columns: dict[str, Sequence[Mapping[str, float]]] = {}
    for part, each in found.items():
        columns |= {LABELS[part]: each.moments[Corrected.name]}
        columns |= {name: ways for name, ways in each.moments.items() if name != Corrected.name}
        metrics += _submitted(each) if part == SUBMIT else _connected(each)
    slots = max(most for each in found.values() for most in each.slots)
    metrics.append(Metric("slots that are taken while `revisions` waits, the most seen", slots, "slots", "<= 0"))
    return Outcome(metrics, grids=[moments_grid(columns)])


def _submitted(found: Found) -> list[Metric]:
    seconds = statistics.median(found.seconds[Corrected.name])
    return [Metric("from a correction's arrival to its result, jobs by spark-submit", seconds, "s", "< 20")]


def _connected(found: Found) -> list[Metric]:
    ours, idle = (statistics.median(found.seconds[name]) for name in (Corrected.name, Noop.name))
    return [
        Metric("the same, jobs by Spark Connect, beyond a chain of tasks that do nothing", ours - idle, "s", "<= 3"),
        Metric("jobs by Spark Connect", ours, "s"),
        Metric("the chain of tasks that do nothing", idle, "s"),
    ]


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Whoever ends the benchmark ends all that it has brought up, and is not to break that off."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    talk.print(f"  {text}", markup=False)
