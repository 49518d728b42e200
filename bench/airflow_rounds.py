"""Rounds under an Airflow that runs: each begins when all is idle, and its way is told by Airflow's own REST API."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from deploy.services import Here

from bench.airflow_moments import Answers, Told, Way, held, moments, waits
from bench.measure import talk

PATIENCE = 180.0
"""Seconds after which something that is to happen by itself has not happened."""

CALM = 4.0
"""So long nothing must have happened before a round: a sensor that has begun is waited for by the triggerer a second or
two later."""

_UNEVEN = 0.618
"""Of the time between two looks at a folder each round begins at another point, lest all meet the same."""


class Chain(Protocol):
    """Two DAGs that a file sets going: the first sees it, and what that one does wakes the second."""

    name: str
    append: str
    revisions: str
    asset: str
    """What stands for landed files in Airflow."""

    def land(self, number: int) -> Way:
        """Let the file of a round appear, and wait until what comes of it is there."""


@dataclass
class Found:
    """What rounds have found."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Of each chain, from landed to visible."""
    moments: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)
    """How many slots were taken while all sensors waited."""

    def note(self, name: str, way: Way, when: Mapping[str, float]) -> None:
        self.seconds.setdefault(name, []).append(way.seconds)
        self.moments.setdefault(name, []).append(when)


def in_rounds(here: Here, chains: Sequence[Chain], rounds: int, *, warm_up: int, looks: float) -> Found:
    """Let a file land for each chain in turn, when all is idle; who goes first changes. `looks`: seconds between two
    looks at a landing folder."""
    found = Found()
    await_calm(here, chains)
    for number in range(warm_up + rounds):
        for chain in chains if number % 2 == 0 else reversed(chains):
            found.slots.append(slots(here))
            time.sleep(looks * (number * _UNEVEN % 1))
            way = chain.land(number)
            await_calm(here, chains)
            when = moments(way, answers(here, chain))
            talk.print(f"{chain.name}: {way.seconds:.1f} s" + (", to warm up" if number < warm_up else ""))
            if number >= warm_up:
                found.note(chain.name, way, when)
    return found


def awaited(here: Here, since: float, what: str) -> None:
    """Fail if something has ended that is to run, or if it has been waited for since then in vain."""
    here.check()
    if time.perf_counter() - since > PATIENCE:
        raise AssertionError(f"after {PATIENCE:g} seconds still not: {what}; see {here.children.logs}")


def await_calm(here: Here, chains: Iterable[Chain]) -> None:
    """Wait until nothing is left to do, and every second DAG has a run that waits."""
    some = list(chains)
    began = calm_since = time.perf_counter()
    while time.perf_counter() - calm_since < CALM:
        awaited(here, began, "all is idle")
        if not all(_waits(here, chain) for chain in some):
            calm_since = time.perf_counter()
        time.sleep(0.5)


def slots(here: Here) -> int:
    """How many slots are taken now."""
    running = here.api("GET", "/dags/~/dagRuns/~/taskInstances?state=running&state=queued&state=restarting&limit=100")
    return held(running["task_instances"], here.api("GET", "/pools")["pools"])


def answers(here: Here, chain: Chain) -> Answers:
    """What Airflow tells of the last runs."""
    events = here.api("GET", "/assets/events?order_by=-timestamp&limit=100")["asset_events"]
    return Answers(
        [each for each in events if each["name"] == chain.asset],
        _runs(here, chain.append),
        _instances(here, chain.append),
        _instances(here, chain.revisions),
    )


def _waits(here: Here, chain: Chain) -> bool:
    if any(each["state"] in ("queued", "running") for each in _runs(here, chain.append)):
        return False
    return waits(_runs(here, chain.revisions), _instances(here, chain.revisions))


def _runs(here: Here, dag_id: str) -> list[Told]:
    found: list[Told] = here.api("GET", f"/dags/{quote(dag_id)}/dagRuns?order_by=-run_after&limit=5")["dag_runs"]
    return found


def _instances(here: Here, dag_id: str) -> list[Told]:
    path = f"/dags/{quote(dag_id)}/dagRuns/~/taskInstances?order_by=-start_date&limit=50"
    found: list[Told] = here.api("GET", path)["task_instances"]
    return found
