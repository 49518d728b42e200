"""Corrections that reach the answers: the paper's table 3 and figure 8 (replay-revisions-2008, 4.2 and 4.3) drawn
again, and replay beside plain Spark, DuckDB and delta-rs. Each part can be measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import Outcome, Scale, talk
from bench.replay_day import DAY, Archives, Stretch
from bench.replay_direct import DirectAmounts, direct_figures
from bench.replay_one import ManyAmounts, OneAmounts, many_figures, one_figures
from bench.replay_overhead import OverheadAmounts, overhead_figures
from bench.replay_peers import PeerAmounts, peer_figures
from bench.replay_table import TableAmounts, table_figures
from bench.report import figure
from errata.engine.session import open_session


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    bucket_rows: int
    table: TableAmounts
    overhead: OverheadAmounts
    one: OneAmounts
    many: ManyAmounts
    peers: PeerAmounts
    direct: DirectAmounts
    memory: str = "2g"
    """How much Spark has, whoever uses it."""


def _amounts(day: Stretch, bucket_rows: int, more: int, batch: int, rounds: int, many: int) -> Amounts:
    return Amounts(
        bucket_rows,
        TableAmounts(day, more, batch, rounds=1),
        OverheadAmounts(day, more, batch, rounds),
        OneAmounts(day, day.last(day.rows // 10), rounds),
        ManyAmounts(day, many, rounds),
        PeerAmounts([day.last(day.rows // 10), day], corrections=10, rounds=rounds),
        DirectAmounts(day, rounds=3 * rounds),
    )


def _paper() -> Amounts:
    day = Stretch(0, DAY)
    found = _amounts(day, bucket_rows=500_000, more=1_000_000, batch=100_000, rounds=5, many=10_000)
    return replace(
        found,
        overhead=replace(found.overhead, batch=500_000),
        peers=replace(found.peers, stretches=[day.last(1_000_000), day]),
    )


def _ten() -> Amounts:
    days = Stretch(0, 10 * DAY)
    found = _amounts(days, bucket_rows=500_000, more=1_000_000, batch=100_000, rounds=3, many=10_000)
    stretches = [days.last(1_000_000), days.last(DAY), days]
    return replace(
        found,
        table=replace(found.table, at_least=20),
        overhead=replace(found.overhead, batch=500_000),
        peers=replace(found.peers, stretches=stretches, ahead=True),
        memory="6g",
    )


AMOUNTS: Mapping[Scale, Amounts] = {
    Scale.SMALL: _amounts(
        Stretch(0, DAY // 10), bucket_rows=150_000, more=200_000, batch=100_000, rounds=3, many=1_000
    ),
    Scale.PAPER: _paper(),
    Scale.TEN: _ten(),
}

PARTS: Mapping[str, Callable[[Amounts, Archives, Path], Outcome]] = {
    "table3": lambda amounts, archives, folder: table_figures(amounts.table, archives, folder),
    "overhead": lambda amounts, archives, folder: overhead_figures(amounts.overhead, archives, folder),
    "one": lambda amounts, archives, folder: one_figures(amounts.one, archives, folder),
    "many": lambda amounts, archives, folder: many_figures(amounts.many, archives, folder),
    "peers": lambda amounts, archives, folder: peer_figures(amounts.peers, archives, folder),
    "direct": lambda amounts, archives, folder: direct_figures(amounts.direct, archives, folder),
}


def measure(scale: Scale, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """All figures at a scale, or only those of some parts."""
    found = figures(AMOUNTS[scale], folder, only or tuple(PARTS))
    open_session(None, None, {}, "bench").stop()
    return found


def figures(amounts: Amounts, folder: Path, parts: Sequence[str]) -> Outcome:
    """The figures of these parts in these amounts; the session stays open."""
    archives = Archives(folder / "archives", amounts.bucket_rows, amounts.memory)
    found = []
    for name in parts:
        found.append(PARTS[name](amounts, archives, folder / name))
        for metric in found[-1].metrics:  # the other parts may take long
            talk.print(f"  {metric.metric}: {figure(metric.value)} {metric.unit}")
    return Outcome(
        [metric for part in found for metric in part.metrics],
        [picture for part in found for picture in part.pictures],
        [grid for part in found for grid in part.grids],
    )
