"""Registered queries: the experiments of PSoup drawn again (psoup-2002, section 5), with the goals of this house. Each
part can be measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Outcome, Scale
from bench.psoup_archive import make_archive
from bench.psoup_arrival import ArrivalAmounts, arrival_figures
from bench.psoup_http import LoadAmounts, http_figures
from bench.psoup_invocation import InvocationAmounts, invocation_figures
from bench.psoup_registration import RegistrationAmounts, registration_figures


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    arrival: ArrivalAmounts
    archive: Mapping[str, int]
    """Rows of each stream that is asked."""
    invocation: InvocationAmounts
    registration: RegistrationAmounts
    load: LoadAmounts


AMOUNTS = {
    Scale.SMALL: Amounts(
        ArrivalAmounts(batches=(1, 100, 10_000), queries=(128, 1_024, 4_096, 16_384), rounds=5),
        {"r": 1 << 18, "s": 1 << 17},
        InvocationAmounts(
            windows=(1 << 7, 1 << 12, 1 << 16),
            join_windows=(128, 512, 1_024),
            aggregate_windows=(1 << 10, 1 << 16),
            questions=8,
            rounds=4,
            probes=(500, 2_000),
        ),
        RegistrationAmounts(rows=1 << 20, together=1_000, rounds=3),
        LoadAmounts(seconds=10.0),
    ),
    Scale.PAPER: Amounts(
        ArrivalAmounts(
            batches=(1, 10, 100, 1_000, 10_000, 100_000),
            queries=(128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384),
            rounds=15,
        ),
        {"r": 1 << 21, "s": 1 << 18},
        InvocationAmounts(
            windows=tuple(1 << power for power in range(7, 21)),
            join_windows=(64, 128, 256, 512, 1_024, 2_048),
            aggregate_windows=(1 << 10, 1 << 20),
            questions=20,
            rounds=8,
            probes=(500, 1_000, 2_000, 4_000, 8_000),
        ),
        RegistrationAmounts(rows=1 << 23, together=1_000, rounds=5),
        LoadAmounts(seconds=60.0),
    ),
}


def measure(scale: Scale, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """The figures of the parts that are asked for; without `only`, of all."""
    amounts = AMOUNTS[scale]
    wanted = {name: part for name, part in _parts(amounts, folder).items() if not only or name in only}
    found = [figures() for figures in wanted.values()]
    return Outcome(
        [metric for part in found for metric in part.metrics],
        [picture for part in found for picture in part.pictures],
        [grid for part in found for grid in part.grids],
    )


def _parts(amounts: Amounts, folder: Path) -> Mapping[str, Callable[[], Outcome]]:
    return {
        "arrival": lambda: arrival_figures(amounts.arrival),
        "invocation": lambda: invocation_figures(
            amounts.invocation, make_archive(folder / "invocation", amounts.archive)
        ),
        "http": lambda: http_figures(folder / "http", amounts.load),
        "registration": lambda: Outcome(
            registration_figures(
                amounts.registration, make_archive(folder / "registration", {"r": amounts.registration.rows})
            )
        ),
    }
