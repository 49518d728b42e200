"""Merging physical feeds: figures 2 to 10 of the paper (logical-merge-2012) drawn again, with the goals of this house.
Each part can be measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Outcome, Scale
from bench.merge_arrivals import ArrivalAmounts, arrival_figures
from bench.merge_behaviour import BehaviourAmounts, behaviour_figures
from bench.merge_inputs import EnforcedAmounts, InputAmounts, enforced_figures, input_figures
from bench.merge_switching import SwitchingAmounts, switching_figures


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    inputs: InputAmounts
    enforced: EnforcedAmounts
    behaviour: BehaviourAmounts
    arrivals: ArrivalAmounts
    switching: SwitchingAmounts


AMOUNTS = {
    Scale.SMALL: Amounts(
        InputAmounts(held_events=10_000, active=2_000, timed_events=60_000, inputs=(2, 6, 10)),
        EnforcedAmounts(
            events=12_000, active=5_000, timed_events=60_000, inputs=(2, 6, 10), batches=(1_000, 4_000), rounds=2
        ),
        BehaviourAmounts(
            disorder_events=20_000,
            lag_events=100_000,
            stable_events=100_000,
            growth_events=10_000,
            disorders=(0.0, 0.2, 0.5),
            lags=(0.0, 2.0, 5.0),
        ),
        ArrivalAmounts(seconds=10),
        SwitchingAmounts(stretches=2, batches=14, rows=2_000, cost=6),
    ),
    Scale.PAPER: Amounts(
        InputAmounts(held_events=50_000, active=10_000, timed_events=200_000),
        EnforcedAmounts(events=60_000, active=10_000, timed_events=200_000),
        BehaviourAmounts(
            disorder_events=200_000,
            output_chunks=200,
            lag_events=400_000,
            stable_events=400_000,
            growth_events=50_000,
            rounds=5,
        ),
        ArrivalAmounts(seconds=30),
        SwitchingAmounts(stretches=10, batches=10, rows=2_000, cost=6),
    ),
}


def measure(scale: Scale, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """The figures of the parts that are asked for; without `only`, of all."""
    found = [figures() for name, figures in parts(AMOUNTS[scale], folder).items() if not only or name in only]
    return Outcome(
        [metric for part in found for metric in part.metrics],
        [picture for part in found for picture in part.pictures],
        [grid for part in found for grid in part.grids],
    )


def parts(amounts: Amounts, folder: Path) -> Mapping[str, Callable[[], Outcome]]:
    """The parts, in the order of the paper."""
    return {
        "inputs": lambda: input_figures(amounts.inputs, folder / "inputs"),
        "behaviour": lambda: behaviour_figures(amounts.behaviour, folder / "behaviour"),
        "enforced": lambda: enforced_figures(amounts.enforced, folder / "enforced"),
        "arrivals": lambda: arrival_figures(amounts.arrivals, folder / "arrivals"),
        "switching": lambda: switching_figures(amounts.switching, folder / "switching"),
    }
