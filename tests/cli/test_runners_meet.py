"""Commands that meet others at work, or a catalog that goes away: processes of their own, and a real PostgreSQL."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from errata.catalog import leases
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.processes import Liveness
from fixtures.commands import YAML, Errata, lines
from fixtures.postgres import FreshDatabase
from fixtures.processes import database_away, errata_beside, until

SUMS = "SELECT symbol, sum(price) AS total FROM sliding(quotes, '9 seconds') GROUP BY symbol"


@dataclass
class Place:
    """A project whose catalog is in PostgreSQL, and in which a run is due."""

    url: str
    catalog: Catalog

    def at_work(self) -> bool:
        return bool(leases.list_holders(self.catalog))


@pytest.fixture
def place(errata: Errata, project: Path, fresh_database: FreshDatabase) -> Iterator[Place]:
    url = fresh_database("postgresql")
    (project / "sums.sql").write_text(SUMS)
    declared = YAML.replace("catalog: sqlite:///errata.db", f"catalog: {url}")
    (project / "errata.yaml").write_text(f"{declared}queries: {{sums: sums.sql}}\n")
    (project / "one.csv").write_text(lines(range(60)))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "one.csv").code == 0
    catalog = open_catalog(url)
    yield Place(url, catalog)
    catalog.close()


def answered(errata: Errata) -> bool:
    (record,) = map(json.loads, errata("status", "--queries", "--format", "json").out.splitlines())
    return bool(record["state"] == "current")


def test_a_run_that_was_killed_keeps_the_next_one_waiting_for_nothing(errata: Errata, place: Place) -> None:
    with errata_beside("run") as first:
        assert until(place.at_work)
        first.process.send_signal(signal.SIGKILL)
        assert first.end() == -signal.SIGKILL
        (left,) = leases.list_holders(place.catalog)
        assert left.life is Liveness.DEAD
    done = errata("run")
    assert (done.code, "another runner" in done.err) == (0, False)
    assert answered(errata)
    assert leases.list_holders(place.catalog) == []


def test_a_run_beside_one_that_lives_says_by_whom_and_since_when(errata: Errata, place: Place) -> None:
    with leases.hold_lease(place.catalog, "query sums", "append/scheduled__1/answer/1"):
        done = errata("run")
    assert done.code == 0
    assert "query sums is being evaluated by another runner: append/scheduled__1/answer/1 (process " in done.err
    assert ", since 20" in done.err


def test_a_replay_waits_for_another_one_and_then_does_its_part(errata: Errata, place: Place) -> None:
    assert errata("run").code == 0
    range_ = ("replay", "--query", "sums", "--from", "2026-11-18T02:00:10", "--to", "2026-11-18T02:00:20")
    with leases.hold_lease(place.catalog, "query sums", "replay/backfill__1/replay/1"):
        refused = errata(*range_, "--no-wait")
        assert (refused.code, "by another runner" in refused.err) == (1, True)
        assert "it is replay/backfill__1/replay/1 (process " in refused.err
        with errata_beside(*range_) as waiting:
            waiting.await_words("query sums: waiting for replay/backfill__1/replay/1 (process ")
            assert waiting.process.poll() is None
            leases.release_owned(place.catalog, "replay/backfill__1/replay/1")
            assert waiting.end() == 0
    assert any("verified" in line for line in waiting.said)


def test_two_replays_at_once_are_both_done(errata: Errata, place: Place) -> None:
    assert errata("run").code == 0
    range_ = ("replay", "--query", "sums", "--from", "2026-11-18T02:00:10", "--to")
    with (
        errata_beside(*range_, "2026-11-18T02:00:20") as one,
        errata_beside(*range_, "2026-11-18T02:00:30") as other,
    ):
        assert [each.end() for each in (one, other)] == [0, 0], (one.said, other.said)
    for each in (one, other):
        assert any("verified" in line for line in each.said)


def test_a_catalog_that_is_away_while_a_run_works_ends_it_in_words_and_the_next_one_goes_on(
    errata: Errata, place: Place
) -> None:
    with errata_beside("run") as first:
        assert until(place.at_work)
        with database_away(place.url):
            # It gives its lease back until that has run out by itself.
            code = first.end()
    assert code == 1
    assert "the catalog's database does not answer as it should" in "\n".join(first.said)
    assert not [line for line in first.said if "Traceback" in line]
    assert errata("run").code == 0
    assert answered(errata)
    assert leases.list_holders(place.catalog) == []
