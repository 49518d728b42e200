"""`make chaos`: ten minutes of it on PostgreSQL. `make chaos ARGS='--minutes 2 --seed 7 --sqlite'`"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.conductor import Chaos, Conductor
from fixtures.postgres import running_postgres

ROUND = 60.0
"""Seconds of work between two quiet points."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long there is work and killing")
    parser.add_argument("--seed", type=int, help="choose as an earlier run did, which printed this number")
    parser.add_argument("--every", type=float, default=4, help="seconds between two kills, on average")
    parser.add_argument("--sqlite", action="store_true", help="a catalog in a file instead of PostgreSQL")
    given = parser.parse_args()
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    rounds = max(1, round(given.minutes * 60 / ROUND))
    folder = Path(tempfile.mkdtemp(prefix="errata-chaos-"))
    say(f"chaos by seed {seed} in {folder}: {rounds} rounds of {ROUND:g} seconds")
    with database(sqlite=given.sqlite) as url:
        chaos = Chaos(folder, url, seed, rounds, min(ROUND, given.minutes * 60), given.every)
        Conductor(chaos, say).go()
    shutil.rmtree(folder)
    say("at every quiet point all was as it has to be")
    return 0


@contextmanager
def database(*, sqlite: bool) -> Iterator[str]:
    """The URL of a catalog's database."""
    if sqlite:
        yield "sqlite:///errata.db"
    else:
        with running_postgres() as url:
            yield url


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
