"""`errata leases`: who is at work on what, and what `status` tells of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from errata.catalog import leases
from errata.catalog.database import Catalog, open_catalog
from fixtures.commands import YAML, Errata, lines
from fixtures.lease_cases import left_elsewhere

OWNER = "append/scheduled__1/answer/1"


@pytest.fixture
def catalog(errata: Errata, project: Path) -> Iterator[Catalog]:
    """The catalog of a project with a query that is behind."""
    (project / "dear.sql").write_text("SELECT symbol, price, time FROM quotes WHERE price > 111")
    (project / "errata.yaml").write_text(f"{YAML}queries: {{dear: dear.sql}}\n")
    (project / "one.csv").write_text(lines(range(60)))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "one.csv").code == 0
    found = open_catalog(f"sqlite:///{project / 'errata.db'}")
    yield found
    found.close()


def test_nobody_at_work(errata: Errata, catalog: Catalog) -> None:
    done = errata("leases")
    assert (done.code, done.out, done.err) == (0, "", "no leases: nobody is at work on a query\n")
    assert errata("leases", "--format", "json").out == ""


def test_who_is_at_work_on_what(errata: Errata, catalog: Catalog) -> None:
    with leases.hold_lease(catalog, "query dear", OWNER):
        (record,) = map(json.loads, errata("leases", "--format", "json").out.splitlines())
        assert (record["lease"], record["owner"], record["life"]) == ("query dear", OWNER, "living")
        assert record["process"].startswith(f"process {os.getpid()} of ")
        header, row = errata("leases", "--format", "csv").out.splitlines()
        assert header == "lease,owner,process,since,until,life"
        assert row.startswith(f"query dear,{OWNER},process {os.getpid()} ")
        assert "living" in errata("leases").out


def test_a_lease_is_released_by_its_querys_name_and_only_when_confirmed(errata: Errata, catalog: Catalog) -> None:
    left_elsewhere(catalog, "query dear", OWNER)
    refused = errata("leases", "release", "dear")
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert leases.living_lease_names(catalog) == {"query dear"}
    done = errata("leases", "release", "dear", "--yes")
    assert done.code == 0
    assert done.err.startswith(f"query dear: released; it was held by {OWNER} (process 4711 of ")
    assert leases.living_lease_names(catalog) == set()


def test_what_cannot_be_released_is_told_with_what_there_is(errata: Errata, catalog: Catalog) -> None:
    left_elsewhere(catalog, "query dear")
    unknown = errata("leases", "release", "deer", "--yes")
    assert unknown.code == 2
    assert "unknown lease 'deer'" in unknown.err
    assert "query dear" in unknown.err
    for words in (("release",), ("drop", "dear"), ("drop",)):
        assert errata("leases", *words).code == 2


def test_a_query_that_waits_for_a_silent_holder_is_told_by_status(errata: Errata, catalog: Catalog) -> None:
    left_elsewhere(catalog, "query dear", OWNER, lasts=leases.LEASE_MICROS // 3)
    done = errata("status")
    assert f"query dear waits for {OWNER} (process 4711 of " in done.err
    assert "(unknown): errata leases release dear" in done.err
    (record,) = map(json.loads, errata("status", "--queries", "--format", "json").out.splitlines())
    assert (record["lease"]["owner"], record["lease"]["life"]) == (OWNER, "unknown")


def test_a_query_that_somebody_works_on_is_told_and_no_reason_to_look(errata: Errata, catalog: Catalog) -> None:
    with leases.hold_lease(catalog, "query dear", OWNER):
        done = errata("status", "--queries")
        assert OWNER in done.out.replace("\n", "").replace(" ", "")
        assert "waits for" not in done.err
