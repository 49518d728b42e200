"""The conductor: lets four workers work and kills them, calls for quiet, and has everything checked."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.checks import Follower, check, check_left
from chaos.sources import LAND, SLACK, Delivery, Source, Tide, all_held
from chaos.workers import KILLED, Worker
from fixtures.runs import QUERIES

DECLARED = """\
project: chaos
catalog: {catalog}
warehouse: ./warehouse
spark: {{conf: {{spark.driver.memory: 1g}}}}
streams:
  quotes:
    columns: {{at: bigint, of: string, price: int}}
    key: [at, of]
    order: at
    slack: {slack}
    bucket_rows: 200
    horizon: 6 minutes
    landing: {{path: ./landing/quotes, settle: 0 seconds, then: move}}
  ticks:
    columns: {{at: bigint, of: string}}
    key: [at, of]
    order: at
    slack: {slack}
    bucket_rows: 200
    horizon: 6 minutes
    landing: {{path: ./landing/ticks, settle: 0 seconds, then: move}}
queries:
"""
TEXTS = {name: QUERIES[name] for name in QUERIES if name != "named"}
DONE, QUARANTINED = 0, 3
PATIENCE = 40
"""A delivery is tried so often before something is wrong."""

Say = Callable[[str], None]


class WrongError(Exception):
    """Something that must not be."""


@dataclass(frozen=True)
class Chaos:
    """How much of it."""

    folder: Path
    catalog: str
    seed: int
    rounds: int
    seconds: float
    """How long a round lasts before quiet is called for."""
    every: float
    """How many seconds lie between two kills, on average."""
    least: int = 0
    """A round goes on until so many batches have been delivered and something has been killed, however slow it goes."""


@dataclass
class Tally:
    """What has happened so far."""

    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str, count: int = 1) -> None:
        with self.lock:
            self.counts[what] += count

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))


class Conductor:
    """Everything that is at work, and when it is to stop."""

    def __init__(self, chaos: Chaos, say: Say) -> None:
        self.chaos, self.say, self.tally = chaos, say, Tally()
        self.project = chaos.folder / "project"
        self.workers = [Worker(self.project, chaos.folder / f"worker-{number}.log") for number in range(4)]
        tide, deliveries = Tide(), chaos.folder / "deliveries"
        self.sources = [
            Source(name, groups, begins, deliveries, tide, self._chance(f"source {name}"))
            for name, groups, begins in (("first", "abc", "quotes"), ("second", "xyz", "ticks"))
        ]
        self._quiet = threading.Event()
        self._wrong: list[BaseException] = []
        self._follower = Follower(tuple(TEXTS))

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.chaos.seed} {name}")

    def go(self) -> None:
        """All rounds, each ended by a check."""
        self._declare()
        checks = self._chance("checks")
        try:
            for number in range(1, self.chaos.rounds + 1):
                self._work()
                self._settle()
                check_left(self.project)  # at once: a pin of a killed reader may expire at any time
                compared = check(self.project, TEXTS, all_held(self.sources), self._follower, checks)
                self.tally.add("answers compared", compared)
                self.say(f"round {number} of {self.chaos.rounds}: {self.tally}")
        finally:
            for worker in self.workers:
                worker.end()

    def _declare(self) -> None:
        for each in (self.project / "queries", self.chaos.folder / "deliveries"):
            each.mkdir(parents=True)
        for stream in ("quotes", "ticks"):
            (self.project / "landing" / stream).mkdir(parents=True)
        lines = [DECLARED.format(catalog=self.chaos.catalog, slack=SLACK)]
        for name, text in TEXTS.items():
            (self.project / "queries" / f"{name}.sql").write_text(text)
            lines.append(f"  {name}: {{sql: queries/{name}.sql}}\n")
        (self.project / "errata.yaml").write_text("".join(lines))
        if self.workers[0].do("apply", "--yes") != DONE:
            raise WrongError("the project could not be applied")
        self._deliver(self.workers[0], self.sources[0])
        self._deliver(self.workers[0], self.sources[1])

    def _work(self) -> None:
        """One round: all work, and one after the other is killed."""
        self._quiet.clear()
        tasks: list[Callable[[Worker, random.Random], None]] = [
            lambda worker, _: self._deliver(worker, self.sources[0]),
            lambda worker, _: self._deliver(worker, self.sources[1]),
            self._answer,
            self._upkeep,
        ]
        threads = [
            threading.Thread(target=self._loop, args=(worker, task, number), name=f"worker {number}")
            for number, (worker, task) in enumerate(zip(self.workers, tasks, strict=True))
        ]
        for each in threads:
            each.start()
        self._kill_until(time.monotonic() + self.chaos.seconds)
        self._quiet.set()
        for each in threads:
            each.join()
        if self._wrong:
            raise self._wrong[0]

    def _loop(self, worker: Worker, task: Callable[[Worker, random.Random], None], number: int) -> None:
        chance = self._chance(f"worker {number} {self.tally.counts['commands']}")
        try:
            while not self._quiet.is_set():
                task(worker, chance)
        except BaseException as error:  # noqa: BLE001 - told where all threads come together
            self._wrong.append(error)
            self._quiet.set()

    def _kill_until(self, end: float) -> None:
        chance = self._chance(f"kills {end}")
        while not self._quiet.is_set() and not self._enough(end):
            pause = min(chance.expovariate(1 / self.chaos.every), 2 * self.chaos.every)
            left = end - time.monotonic()
            self._quiet.wait(pause if left <= 0 else min(left, pause))
            only_engine, worker = chance.random() < 0.4, chance.choice(self.workers)
            if self._enough(end):
                return
            if only_engine and worker.kill(only_engine=True):
                self.tally.add("engines killed")
            elif worker.kill(only_engine=False):
                self.tally.add("workers killed")

    def _enough(self, end: float) -> bool:
        """Whether a round may end."""
        counts = self.tally.counts
        killed = counts["workers killed"] + counts["engines killed"]
        return (
            time.monotonic() >= end
            and counts["deliveries"] >= self.chaos.least
            and (killed > 0 or self.chaos.least == 0)
        )

    def _do(self, worker: Worker, *command: str) -> int:
        self.tally.add("commands")
        code = worker.do(*command)
        if code == KILLED:
            self.tally.add("commands broken off")
        return code

    def _deliver(self, worker: Worker, source: Source) -> None:
        """Deliver one batch, until it is taken in."""
        delivery = source.next()
        attempt = self._land if delivery.way == LAND else self._hand
        for _ in range(PATIENCE):
            if attempt(worker, delivery):
                self.tally.add("deliveries")
                return
        raise WrongError(f"{delivery.path.name} could not be delivered ({delivery.way}) in {PATIENCE} tries")

    def _hand(self, worker: Worker, delivery: Delivery) -> bool:
        command = (delivery.way, delivery.stream, str(delivery.path), "--batch-id", delivery.name)
        return self._do(worker, *command) == DONE

    def _land(self, worker: Worker, delivery: Delivery) -> bool:
        """A landed file is moved away when it has been taken in, by whoever does so."""
        folder = self.project / "landing" / delivery.stream
        lands, taken = folder / delivery.path.name, folder / "taken" / delivery.path.name
        if not taken.exists() and not lands.exists():
            coming = folder / f"{delivery.path.name}.tmp"
            coming.write_bytes(delivery.path.read_bytes())
            coming.rename(lands)
        return self._do(worker, "ingest", delivery.stream, "--landed") in (DONE, QUARANTINED) and not lands.exists()

    def _answer(self, worker: Worker, chance: random.Random) -> None:
        query = chance.choice(sorted(TEXTS))
        now = max(2, self.sources[0].tide.now)
        since = chance.randrange(1, now)
        command = chance.choice(
            (
                ("run",),
                ("run", "--no-take"),
                ("run", query),
                ("sweep",),
                ("sweep", "--technique", chance.choice(("all", "minimal", "direct"))),
                ("sweep", query, "--plan"),
                ("replay", "--query", query, "--from", str(since), "--to", str(since + 20)),
                ("results", query),
                ("changes", query, "--since", "1"),
                ("status",),
            )
        )
        self._do(worker, *command)

    def _upkeep(self, worker: Worker, chance: random.Random) -> None:
        command = chance.choice(
            (
                ("archive", "compact"),
                ("archive", "compact", "--all"),
                ("archive", "compact", "--all"),
                ("archive", "vacuum"),
                ("run",),
                ("doctor", "--quick"),
            )
        )
        self._do(worker, *command)

    def _settle(self) -> None:
        """Do all that is left to do, with nobody else at work."""
        for command in (("run",), ("sweep",), ("run",), ("archive", "vacuum")):
            if self._do(self.workers[2], *command) != DONE:
                raise WrongError(f"in the quiet, `errata {' '.join(command)}` failed: see worker-2.log")
