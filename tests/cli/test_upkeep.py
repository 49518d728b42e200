"""The upkeep of queries' results: vacuum, doctor, retention, and what ageing leaves for queries."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select, update

from errata.catalog import maintenance, pins
from errata.catalog import tables as t
from errata.catalog.database import open_catalog
from errata.catalog.result_archives import read_archive
from errata.cli import main
from fixtures.commands import Done, Errata

YAML = """
project: upkeep
catalog: sqlite:///errata.db
warehouse: ./warehouse
streams:
  feed:
    columns: {at: bigint, who: string, price: double}
    key: [at, who]
    order: at
    retention: 50 units
    horizon: 0 seconds
"""
DEAR, MOST, RECENT = "queries/dear.sql", "queries/most.sql", "queries/recent.sql"
TEXTS = {
    DEAR: "SELECT at, who, price FROM feed WHERE price > 10",
    MOST: "SELECT who, max(price) AS most FROM dear GROUP BY who",
    RECENT: "SELECT who, count(*) AS n FROM sliding(feed, 30) GROUP BY who",
}


TEXTS_OF = ("dear", "most", "recent")
HEX = "0123456789abcdef" * 2


def declared(**queries: str) -> str:
    return YAML + "queries:\n" + "".join(f"  {name}: {how}\n" for name, how in queries.items())


def rows(*ats: int, price: float = 20.0) -> str:
    told = [f"{at},{who},{price + at % 3}" for at in ats for who in "ab"]
    return "\n".join(["at,who,price", *told, ""])


class Place:
    """A project, and its catalog behind its back."""

    def __init__(self, folder: Path, errata: Errata) -> None:
        self.folder, self.errata = folder, errata

    def files(self) -> set[str]:
        root = self.folder / "warehouse"
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def orphan(self, path: str) -> str:
        """A file of old that no index row names."""
        file = self.folder / "warehouse" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"12345")
        os.utime(file, (0, 0))
        return path

    def damage(self, path: str | None, *, lose: bool) -> None:
        """Lose a file, or change a byte of it."""
        file = self.folder / "warehouse" / str(path)
        data = file.read_bytes()
        file.unlink()
        if not lose:
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    @contextmanager
    def pinned(self, commit_id: int) -> Iterator[None]:
        catalog = open_catalog(f"sqlite:///{self.folder}/errata.db")
        with pins.hold_pin(catalog, commit_id, "test"):
            yield
        catalog.close()

    def run(self, *names: str) -> Done:
        done = self.errata("run", *names)
        assert done.code == 0, done.err
        return done

    def results(self, query: str, *more: str) -> list[object]:
        done = self.errata("results", query, *more, "--format", "json")
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    def buckets(self, query: str, *, gone: bool = False) -> dict[str, list[tuple[int, str | None]]]:
        """By role the live ones, or those that are over, with their files."""
        found: dict[str, list[tuple[int, str | None]]] = {}
        of = select(t.buckets).join(t.streams, t.streams.c.stream_id == t.buckets.c.stream_id)
        of = of.where(t.streams.c.name == query, t.streams.c.query_id.is_not(None))
        over = t.buckets.c.removed_in
        for row in self.sql(of.where(over.is_not(None) if gone else over.is_(None)).order_by(t.buckets.c.bucket_id)):
            found.setdefault(row.role, []).append((row.bucket_id, row.path))
        return found

    def sql(self, statement: object) -> Sequence[object]:
        catalog = open_catalog(f"sqlite:///{self.folder}/errata.db")
        try:
            with catalog.writing() as connection:
                done = connection.execute(statement)
                return done.all() if done.returns_rows else []
        finally:
            catalog.close()

    def aged_to(self, query: str, commit_id: int) -> int | None:
        catalog = open_catalog(f"sqlite:///{self.folder}/errata.db")
        try:
            of = read_archive(catalog, query)
            assert of is not None
            return maintenance.results_aged_to(catalog, of, commit_id)
        finally:
            catalog.close()

    def told(self, query: str) -> dict[str, object]:
        """What a reader of all changes has in the end, by who: the result that began last."""
        held: dict[tuple[str, int], object] = {}
        for line in self.errata("changes", query, "--format", "json").out.splitlines():
            each = json.loads(line)
            place = (each["key"]["who"], each["vs"])
            if each["op"] == "delete":
                del held[place]
            else:
                held[place] = each["new"]["most"]
        return {who: held[who, vs] for who, vs in sorted(held)}

    def doctor(self, *options: str) -> list[dict[str, object]]:
        done = self.errata("doctor", *options, "--format", "json")
        return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Path]:
    """A project whose queries have been evaluated twice, with all that is kept in files."""
    folder = tmp_path_factory.mktemp("upkeep")
    (folder / "queries").mkdir()
    for file, told in TEXTS.items():
        (folder / file).write_text(told)
    queries = {"dear": f"{{sql: {DEAR}, retention: 50 units}}", "most": MOST, "recent": RECENT}
    (folder / "errata.yaml").write_text(declared(**queries))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ERRATA_PROJECT", raising=False)
        patch.setattr("errata.archive.results.MAX_INLINE_BYTES", 0)
        assert main(["apply", "--yes"]) == 0
        for file, ats in (("one", range(0, 40, 10)), ("two", range(40, 100, 10))):
            (folder / f"{file}.csv").write_text(rows(*ats))
            assert main(["ingest", "feed", f"{file}.csv"]) == 0
            assert main(["run"]) == 0
        yield folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata) -> Place:
    """A copy of it."""
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", 0)
    return Place(folder, errata)


def test_vacuum_takes_what_evaluations_have_replaced(place: Place) -> None:
    assert place.doctor() == []
    over = {query: place.buckets(query, gone=True) for query in TEXTS_OF}
    assert {query: sorted(found) for query, found in over.items()} == {
        "dear": ["tip"],
        "most": ["open"],
        "recent": ["open"],
    }
    stay = place.files()
    orphans = [place.orphan(f"recent/{kind}/all/{HEX}.parquet") for kind in ("open", "tip", "state", "feed")]
    assert {each["where"] for each in place.doctor()} == {f"recent/{kind}" for kind in ("open", "tip", "state", "feed")}
    with place.pinned(4):  # both queries had their first results by then
        place.errata("archive", "vacuum")
        assert place.buckets("recent", gone=True) == over["recent"]
        first = place.results("recent", "--at", "30")
        assert not any((place.folder / "warehouse" / each).exists() for each in orphans)
    done = place.errata("archive", "vacuum")
    assert done.code == 0
    assert not any(place.buckets(query, gone=True) for query in TEXTS_OF)
    live = {path for query in TEXTS_OF for found in place.buckets(query).values() for _, path in found}
    assert place.files() == live
    assert live < stay, "what was superseded is gone, the states of before too"
    assert place.results("recent", "--at", "30") == first
    assert place.doctor() == []


def test_what_is_left_of_a_dropped_query_is_vacuumed_with_its_state(place: Place) -> None:
    (place.folder / "errata.yaml").write_text(declared(dear=f"{{sql: {DEAR}, retention: 50 units}}", recent=RECENT))
    with place.pinned(9):
        assert place.errata("apply", "--yes").code == 0
        place.errata("archive", "vacuum")
        assert sorted(place.buckets("most", gone=True)) == ["base", "feed", "open"]
    place.errata("archive", "vacuum")
    assert not any(path.startswith("most/") for path in place.files())
    assert place.doctor() == []


@pytest.mark.parametrize(("query", "role"), [("dear", "base"), ("most", "open"), ("recent", "feed")])
@pytest.mark.parametrize("deep", [True, False])
def test_a_lost_bucket_is_told_with_how_to_come_by_it(place: Place, query: str, role: str, *, deep: bool) -> None:
    [(number, path), *_] = place.buckets(query)[role]
    place.damage(path, lose=not deep)
    [found] = place.doctor(query, "--deep" if deep else "--quick")
    assert (found["severity"], found["kind"]) == ("damage", "checksum" if deep else "missing")
    assert found["where"] == f"bucket {number}, {path}"
    how = f"errata changes {query} --since" if role == "feed" else f"errata run --anew {query}"
    assert how in str(found["how"])
    assert not found["mendable"]


def test_counts_of_results_are_mended(place: Place) -> None:
    of = t.streams.c.query_id.is_not(None) & (t.streams.c.name == "dear")
    place.sql(update(t.streams).where(of).values(rows=99, inline_bytes=7))
    [(number, _), *_] = place.buckets("dear")["base"]
    place.sql(update(t.buckets).where(t.buckets.c.bucket_id == number).values(ve_min=0, rows=1))
    found = place.doctor("dear")
    assert sorted(str(each["kind"]) for each in found) == ["counter", "counter", "figures"]
    assert {each["state"] for each in place.doctor("dear", "--fix")} == {"mended"}
    assert place.doctor() == []


def test_an_archive_without_a_query_is_ended(place: Place) -> None:
    place.sql(update(t.queries).where(t.queries.c.name == "recent").values(removed_in=9))
    [found] = place.doctor("recent", "--fix")
    assert (found["kind"], found["state"]) == ("standing", "mended")
    assert place.buckets("recent") == {}
    assert place.doctor() == []


def test_results_past_their_retention_go(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = place.results("dear", "--at", "60")
    done = place.errata("archive", "age-out", "dear")
    assert done.err == "dear: 1 bucket with 6 rows up to 20 dropped in commit 10\n"
    assert place.errata("archive", "age-out", "dear").err == "dear: nothing is past the retention\n"
    assert "query dear: 1 bucket with 6 results dropped, past the retention" in place.errata("log").out
    assert place.results("dear", "--at", "60") == before[6:]
    refused = place.errata("results", "dear", "--at", "20")
    assert refused.code == 2
    assert "earlier results had been aged out; its answers begin at 21" in refused.err
    assert [place.aged_to("dear", commit_id) for commit_id in (9, 10)] == [None, 21]
    assert place.doctor() == []
    # The next evaluation merges small buckets, and what has just gone is not among them.
    monkeypatch.setattr("errata.archive.upkeep.result_compaction.BUCKETS_PER_MERGE", 3)
    (place.folder / "three.csv").write_text(rows(100))
    assert place.errata("ingest", "feed", "three.csv").code == 0
    place.run("dear")
    assert place.results("dear", "--at", "60") == before[6:]
    assert [len(found) for found in place.buckets("dear").values()] == [2, 1]
    assert place.doctor() == []


def test_rows_stay_that_a_query_has_still_to_read(place: Place) -> None:
    (place.folder / "three.csv").write_text(rows(*range(100, 210, 10)))
    assert place.errata("ingest", "feed", "three.csv").code == 0
    done = place.errata("archive", "age-out", "feed")
    # Past the retention is what lies before 150, and both buckets of before do.
    assert done.err.splitlines() == [
        "feed: 1 bucket with 8 rows up to 30 dropped in commit 11",
        "feed: what is past the retention stays from 60 on: query recent has still to read it",
    ]
    place.run("recent", "dear")
    assert place.results("recent") == [{"who": "a", "n": 3}, {"who": "b", "n": 3}]
    assert "50 units" not in place.errata("archive", "age-out", "feed").err
    assert place.errata("archive", "age-out", "feed").err == "feed: nothing is past the retention\n"


def test_a_broken_state_is_made_anew(place: Place) -> None:
    [(_, path)] = place.buckets("recent")["state"]
    place.damage(path, lose=False)
    [found] = place.doctor("recent")
    assert (found["kind"], found["severity"], found["mendable"]) == ("checksum", "wrong", True)
    (place.folder / "three.csv").write_text(rows(100))
    assert place.errata("ingest", "feed", "three.csv").code == 0
    place.run("recent")
    assert place.results("recent") == [{"who": "a", "n": 3}, {"who": "b", "n": 3}]
    [(_, path)] = place.buckets("recent")["state"]
    place.damage(path, lose=True)
    [found] = place.doctor("recent", "--fix")
    assert found["state"] == "mended"
    assert "state" not in place.buckets("recent")
    assert place.doctor("recent") == []


def test_a_state_that_cannot_be_made_anew_and_an_archive_that_is(place: Place) -> None:
    assert place.errata("archive", "age-out", "dear").code == 0
    [(_, state)] = place.buckets("most")["state"]
    [(_, base)] = place.buckets("most")["base"]
    place.damage(state, lose=True)
    place.damage(base, lose=True)
    found = place.doctor("most")
    assert [each["mendable"] for each in found] == [False, False]
    assert any("rows of dear are known from it alone" in str(each["why"]) for each in found)
    (place.folder / "three.csv").write_text(rows(100, price=50))
    assert place.errata("ingest", "feed", "three.csv").code == 0
    done = place.errata("run", "most")
    assert done.code == 1
    assert "errata run --anew most" in done.err
    assert "name it" in place.errata("run", "--anew").err
    assert place.errata("run", "--anew", "most").code == 0
    assert place.results("most") == [{"who": "a", "most": 51.0}, {"who": "b", "most": 51.0}]
    assert place.told("most") == {"a": 51.0, "b": 51.0}
    assert "query most anew answered" in place.errata("log").out
    place.errata("archive", "vacuum")
    assert place.doctor() == []
