"""Archives at reduced resolution: figures 9 to 18 and table 1 of the paper (oscar-archives-2004) drawn again, predicted
beside measured, with the goals of this house; and others beside it. Each part can be measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Outcome, Scale
from bench.reduction_beside import BesideAmounts, beside_figures
from bench.reduction_costs import PAPER_ROWS
from bench.reduction_insertion import InsertionAmounts, insertion_figures
from bench.reduction_peers import PeerAmounts, peer_figures
from bench.reduction_reads import ReadAmounts, read_figures
from bench.reduction_workload import COPIES, METHODS, ON_READ, RANDOMISED, STRAWMAN
from errata.engine.session import open_session


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    insertion: InsertionAmounts
    reads: ReadAmounts
    beside: BesideAmounts
    peers: PeerAmounts


AMOUNTS = {
    Scale.SMALL: Amounts(
        InsertionAmounts(rows=1_000_000, rounds=3),
        ReadAmounts(rows=2_000_000, rounds=3),
        BesideAmounts(
            rows=1_000_000,
            readers=(0, 1, 2),
            reductions=(0.25, 0.75),
            methods=(STRAWMAN, COPIES, ON_READ, RANDOMISED),
        ),
        PeerAmounts(rows=2_000_000, rounds=5, reductions=(0.9, 0.99)),
    ),
    Scale.PAPER: Amounts(
        InsertionAmounts(rows=PAPER_ROWS, rounds=5),
        ReadAmounts(rows=PAPER_ROWS, rounds=7),
        BesideAmounts(rows=PAPER_ROWS, readers=(0, 1, 3), reductions=(0.0, 0.25, 0.5, 0.75, 0.99), methods=METHODS),
        PeerAmounts(rows=PAPER_ROWS, rounds=7, reductions=(0.5, 0.75, 0.9, 0.99)),
    ),
}


def measure(scale: Scale, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """The figures of the parts that are asked for; without `only`, of all."""
    wanted = {name: part for name, part in parts(AMOUNTS[scale], folder).items() if not only or name in only}
    found = [figures() for figures in wanted.values()]
    open_session(None, None, {}, "bench").stop()
    return Outcome(
        [metric for part in found for metric in part.metrics],
        [picture for part in found for picture in part.pictures],
        [grid for part in found for grid in part.grids],
    )


def parts(amounts: Amounts, folder: Path) -> Mapping[str, Callable[[], Outcome]]:
    """The parts, in the order of the paper."""
    return {
        "insertion": lambda: insertion_figures(amounts.insertion, folder / "insertion"),
        "reads": lambda: read_figures(amounts.reads, folder / "reads"),
        "beside": lambda: beside_figures(amounts.beside, folder / "beside"),
        "peers": lambda: peer_figures(amounts.peers, folder / "peers"),
    }
