"""A little of the chaos, so that it is ready when it is wanted: `make chaos` is ten minutes of it."""

from __future__ import annotations

import random
from pathlib import Path

from chaos.conductor import TEXTS, Chaos, Conductor


def test_after_kills_all_is_as_it_has_to_be(tmp_path: Path, chance: random.Random) -> None:
    told: list[str] = []
    seed = chance.randrange(10**9)
    chaos = Chaos(tmp_path, "sqlite:///errata.db", seed, rounds=1, seconds=15, every=4, least=5)
    conductor = Conductor(chaos, told.append)
    conductor.go()
    counts = conductor.tally.counts
    assert counts["deliveries"] >= 5
    assert counts["workers killed"] + counts["engines killed"] > 0
    assert counts["answers compared"] > len(TEXTS)
    assert told[0].startswith("round 1 of 1: ")
