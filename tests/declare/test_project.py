"""errata.yaml read into the model, and what is said of its mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from errata.declare.project import NearMode, NearSettings, Project, SparkSettings, load_project
from errata.errors import UsageError
from errata.model.columns import Column, ColumnType
from errata.model.feed import (
    DisagreementPolicy,
    EmitPolicy,
    Feed,
    FeedOrder,
    FeedProperties,
    MergedFeeds,
    MergePolicy,
    StableRule,
)
from errata.model.landing import LandedFileAction, LandingFolder
from errata.model.reduction import OnReadCopies, ReducedArchives, SummaryDeclaration, SummaryTrigger
from errata.model.stream import AgeOutMode, DuplicatePolicy, RelationKind, Retention, RevisionPolicy, Stream
from errata.model.time import DAY, HOUR, SECOND, parse_instant

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
GOLDEN = Path(__file__).with_name("mistakes.txt")

Load = Callable[..., Project]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write errata.yaml into an empty folder, go there and load it."""
    monkeypatch.chdir(tmp_path)

    def loaded(text: str, **environ: str) -> Project:
        (tmp_path / "errata.yaml").write_text(text, encoding="utf-8")
        return load_project(environ=environ)

    return loaded


def stream_text(**keys: str) -> str:
    declared = {"columns": "{time: timestamp, symbol: string, price: double}", "key": "[time, symbol]", "order": "time"}
    lines = [f"    {key}: {value}" for key, value in (declared | keys).items() if value]
    return "\n".join(["project: p", "streams:", "  quotes:", *lines, ""])


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.parse(kind)) for name, kind in types.items())


def page_example() -> str:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


class TestCompleteExample:
    def test_it_loads(self, load: Load, tmp_path: Path) -> None:
        project = load(page_example())
        assert (project.name, project.root) == ("quotes", tmp_path)
        assert project.catalog == f"sqlite:///{tmp_path}/errata.db"
        assert project.warehouse == f"{tmp_path}/warehouse"
        near = NearSettings(NearMode.AUTO, 2_000_000, 256 * 1024 * 1024)
        assert project.spark == SparkSettings("local[*]", None, {"spark.driver.memory": "2g"}, near)
        assert list(project.streams) == ["quotes", "readings", "notes", "trades", "companies"]
        assert project.streams["companies"].relation is RelationKind.NRR
        assert list(project.queries) == ["avg_5m", "named", "trades_v1"]
        assert project.streams["quotes"] == Stream(
            name="quotes",
            columns=columns(time="timestamp", symbol="string", price="double"),
            key=("time", "symbol"),
            order="time",
            group=("symbol",),
            bucket_rows=500_000,
            retention=Retention(span=24 * HOUR),
            age_out=AgeOutMode.SCHEDULED,
            slack=5 * SECOND,
            max_ahead=DAY,
            on_revision=RevisionPolicy.RESULTS,
            on_duplicate=DuplicatePolicy.QUARANTINE,
            horizon=7 * DAY,
            landing=LandingFolder(f"{tmp_path}/landing/quotes", 10 * SECOND, LandedFileAction.MOVE),
        )
        assert project.streams["readings"] == Stream(
            name="readings",
            columns=columns(sensor="string", counter="bigint", value="decimal(10,2)", day="date", sound="boolean"),
            key=("sensor", "counter"),
            order="counter",
            retention=Retention(span=1_000_000),
            slack=100,
            max_ahead=None,
        )
        assert project.streams["trades"] == Stream(
            name="trades",
            columns=columns(
                symbol="string", at="timestamp", n="bigint", price="double", version="bigint", until="timestamp"
            ),
            key=("symbol", "at", "n"),
            order="at",
            merged=MergedFeeds(
                (
                    Feed(
                        "nyse",
                        LandingFolder(f"{tmp_path}/landing/nyse", 10 * SECOND, LandedFileAction.MOVE),
                        properties=FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True),
                        stable=StableRule.MARKS,
                    ),
                    Feed(
                        "mirror",
                        LandingFolder(f"{tmp_path}/landing/mirror", 5 * SECOND, LandedFileAction.MOVE),
                        joins_at=parse_instant("2026-11-01"),
                    ),
                    Feed("old_plan", query="trades_v1", feedback=True),
                ),
                MergePolicy(EmitPolicy.FRACTION, 0.5, DisagreementPolicy.LATEST, "version", 2),
                end="until",
                occurrence="n",
            ),
        )
        assert project.streams["notes"] == Stream(
            name="notes",
            columns=columns(id="string", text="string", arrived="timestamp"),
            key=("id",),
            order="arrived",
            retention=Retention(rows=100_000),
            age_out=AgeOutMode.LAZY,
            on_revision=RevisionPolicy.HISTORY,
            on_duplicate=DuplicatePolicy.REPLACE,
            landing=LandingFolder(f"{tmp_path}/landing/notes", 10 * SECOND, LandedFileAction.KEEP),
        )

    def test_its_variables_are_filled_in(self, load: Load) -> None:
        project = load(
            page_example().replace('  master: "local[*]"\n', ""),
            ERRATA_CATALOG="postgresql://me:secret@db:5432/errata",
            ERRATA_WAREHOUSE="s3a://bucket/warehouse",
            ERRATA_SPARK_REMOTE="sc://spark:15002",
        )
        assert project.catalog == "postgresql+psycopg2://me:secret@db:5432/errata"
        assert project.warehouse == "s3a://bucket/warehouse"
        assert project.spark.remote == "sc://spark:15002"

    def test_the_page_explains_every_key(self) -> None:
        explained = set(re.findall(r"^\| `([a-z_.]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
        assert explained >= set(Stream.__dataclass_fields__) - {"name", "landing", "relation", "reduced", "merged"}
        assert explained >= {"kind", "relations", "queries", "sql", "emit"}
        assert {
            "landing.path",
            "landing.settle",
            "landing.then",
            "reduce.copies",
            "reduce.on_read",
            "reduce.summaries",
            "feeds",
            "merge.emit",
            "merge.disagreement",
            "merge.quorum",
            *(each.name for each in fields(MergedFeeds) if each.name not in ("feeds", "policy")),
            *("query", "order", "ties", "adjusts", "complete", "stable", "from"),
            "spark.master",
            "spark.remote",
            "spark.conf",
            "spark.near",
            "spark.near.rows",
            "spark.near.bytes",
        } < explained


class TestDefaults:
    def test_a_project_needs_only_a_name(self, load: Load, tmp_path: Path) -> None:
        project = load("project: p\nstreams:\n")
        assert project == Project(
            "p", f"sqlite:///{tmp_path}/errata.db", f"{tmp_path}/warehouse", SparkSettings(), {}, tmp_path
        )

    def test_a_stream_needs_only_columns_and_key(self, load: Load) -> None:
        read = load("project: p\nstreams:\n  s:\n    columns: {id: int}\n    key: [id]\n").streams["s"]
        assert read == Stream("s", columns(id="int", arrived="timestamp"), ("id",), "arrived")

    def test_a_bigint_order_has_no_max_ahead(self, load: Load) -> None:
        text = stream_text(columns="{time: bigint, symbol: string}")
        assert load(text).streams["quotes"].max_ahead is None
        assert load(text + "    max_ahead: none\n").streams["quotes"].max_ahead is None


class TestValues:
    @pytest.mark.parametrize(
        ("written", "kind", "expected"),
        [
            ("24 hours", "timestamp", Retention(span=24 * HOUR)),
            ("500000", "timestamp", Retention(rows=500_000)),
            ("500_000 rows", "timestamp", Retention(rows=500_000)),
            ("1 row", "bigint", Retention(rows=1)),
            ("1000 units", "bigint", Retention(span=1000)),
        ],
    )
    def test_retention(self, load: Load, written: str, kind: str, expected: Retention) -> None:
        text = stream_text(columns=f"{{time: {kind}, symbol: string}}", retention=written)
        assert load(text).streams["quotes"].retention == expected

    @pytest.mark.parametrize(
        ("written", "kind", "expected"), [("0 seconds", "timestamp", 0), ("0", "bigint", 0), ("7 units", "bigint", 7)]
    )
    def test_slack(self, load: Load, written: str, kind: str, expected: int) -> None:
        text = stream_text(columns=f"{{time: {kind}, symbol: string}}", slack=written)
        assert load(text).streams["quotes"].slack == expected

    def test_max_ahead_can_be_switched_off(self, load: Load) -> None:
        assert load(stream_text(max_ahead="none")).streams["quotes"].max_ahead is None
        assert load(stream_text(max_ahead="2 days")).streams["quotes"].max_ahead == 2 * DAY

    def test_a_horizon_and_a_settling_time_can_be_nothing(self, load: Load) -> None:
        read = load(stream_text(horizon="0 seconds", landing="{path: in, settle: 0 seconds}")).streams["quotes"]
        assert read.landing is not None
        assert (read.horizon, read.landing.settle) == (0, 0)

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ("sqlite:///state/errata.db", "sqlite:///{root}/state/errata.db"),
            ("sqlite:////var/errata.db?timeout=9", "sqlite:////var/errata.db?timeout=9"),
            ("postgres://h/d", "postgresql+psycopg2://h/d"),
            ("postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d"),
        ],
    )
    def test_catalog(self, load: Load, tmp_path: Path, written: str, expected: str) -> None:
        assert load(f"project: p\ncatalog: {written}\n").catalog == expected.format(root=tmp_path)

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ("../data", "{parent}/data"),
            ("/data/x", "/data/x"),
            ("file:///data", "/data"),
            ("hdfs://n/data", "hdfs://n/data"),
        ],
    )
    def test_warehouse(self, load: Load, tmp_path: Path, written: str, expected: str) -> None:
        assert load(f"project: p\nwarehouse: {written}\n").warehouse == expected.format(parent=tmp_path.parent)

    def test_what_ends_up_empty_is_absent(self, load: Load) -> None:
        empty = dict.fromkeys(("retention", "max_ahead", "horizon", "bucket_rows", "on_revision"), "${NOTHING:-}")
        assert load(stream_text(**empty)).streams == load(stream_text()).streams

    def test_anchors_serve_several_streams(self, load: Load) -> None:
        text = stream_text().replace("quotes:", "quotes: &q") + "  trades:\n    <<: *q\n    slack: 1 second\n"
        streams = load(text).streams
        assert streams["trades"].key == streams["quotes"].key
        assert (streams["quotes"].slack, streams["trades"].slack) == (0, SECOND)


class TestFinding:
    def test_the_nearest_file_above_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        below = tmp_path / "a" / "b"
        below.mkdir(parents=True)
        (tmp_path / "errata.yaml").write_text("project: far\n")
        monkeypatch.chdir(below)
        assert load_project(environ={}).name == "far"
        (tmp_path / "a" / "errata.yaml").write_text("project: near\n")
        near = load_project(environ={})
        assert (near.name, near.root, near.warehouse) == ("near", tmp_path / "a", f"{tmp_path}/a/warehouse")

    def test_a_file_or_folder_can_be_named(self, tmp_path: Path) -> None:
        (tmp_path / "other.yaml").write_text("project: other\n")
        (tmp_path / "errata.yaml").write_text("project: usual\n")
        assert load_project(tmp_path / "other.yaml", {}).name == "other"
        assert load_project(tmp_path, {}).name == "usual"
        assert load_project(environ={"ERRATA_PROJECT": str(tmp_path / "other.yaml")}).name == "other"
        assert load_project(tmp_path, {"ERRATA_PROJECT": "/nowhere"}).name == "usual"

    def test_the_environment_of_the_process_is_the_default(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        load("project: ${ERRATA_TEST_NAME:-x}\n")
        monkeypatch.delenv("ERRATA_PROJECT", raising=False)
        monkeypatch.setenv("ERRATA_TEST_NAME", "from here")
        assert load_project().name == "from here"

    def test_no_file_says_how_to_make_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UsageError, match=r"there is no errata.yaml in .* or a folder above it") as raised:
            load_project(environ={})
        assert "`errata init`" in str(raised.value)
        with pytest.raises(UsageError, match="there is no file /nowhere") as raised:
            load_project(environ={"ERRATA_PROJECT": "/nowhere"})
        assert "ERRATA_PROJECT says /nowhere" in str(raised.value)

    def test_a_file_elsewhere_is_told_with_its_path(self, tmp_path: Path) -> None:
        (tmp_path / "errata.yaml").write_text("projct: p\n")
        with pytest.raises(UsageError, match=re.escape(f"{tmp_path}/errata.yaml:1 (projct): unknown key")):
            load_project(tmp_path, {})

    def test_a_byte_order_mark_is_no_part_of_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "errata.yaml").write_bytes(b"\xef\xbb\xbfproject: p\n")
        assert load_project(tmp_path, {}).name == "p"

    def test_a_file_that_is_not_text(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "errata.yaml").write_bytes(b"project: caf\xe9\n")
        with pytest.raises(UsageError, match="not UTF-8 at byte 12"):
            load_project(environ={})


MISTAKES = {
    "an unknown key": stream_text(colums="{a: int}"),
    "a missing name": "streams: {}\n",
    "not a mapping": "- a\n",
    "a key twice": stream_text() + "    key: [time]\n",
    "a key that is no list": stream_text(key="time"),
    "a list in place of a value": stream_text(order="[time]"),
    "a value that is not there": stream_text(order="~"),
    "an unknown type": stream_text(columns="{time: timestmp, symbol: string}"),
    "a decimal that cannot be": stream_text(columns="{time: timestamp, symbol: 'decimal(50,2)'}"),
    "an unknown column in key": stream_text(key="[time, symbl]"),
    "an unknown column in group": stream_text(group="[sector]"),
    "an unknown column in order": stream_text(order="tme"),
    "an order of text": stream_text(order="symbol"),
    "a key of doubles": stream_text(key="[time, price]"),
    "a group that names a column twice": stream_text(group="[symbol, symbol]"),
    "an empty key": stream_text(key="[]"),
    "columns that differ in case": stream_text(columns="{time: timestamp, symbol: string, Time: int}"),
    "a column that Errata adds itself": stream_text(columns="{Arrived: timestamp, time: timestamp, symbol: string}"),
    "a column with a bad name": stream_text(columns="{time: timestamp, symbol: string, _op: string}"),
    "a stream with a bad name": stream_text().replace("quotes", "my-quotes"),
    "streams that differ in case": stream_text() + "  Quotes: {columns: {id: int}, key: [id]}\n",
    "no columns and no key": "project: p\nstreams:\n  s:\n",
    "a duration without a unit": stream_text(slack="5"),
    "a retention of nothing": stream_text(retention="0 hours"),
    "a retention in words": stream_text(retention="a day"),
    "a bigint and a duration": stream_text(
        columns="{time: bigint, symbol: string}", retention="24 hours", slack="5 seconds"
    ),
    "a bigint and a plain number": stream_text(columns="{time: bigint, symbol: string}", retention="1000"),
    "a bigint and the wall clock": stream_text(columns="{time: bigint, symbol: string}", max_ahead="1 day"),
    "a slack without an order": stream_text(order="", key="[symbol]", slack="5 seconds"),
    "buckets of nothing": stream_text(bucket_rows="0"),
    "an unknown choice": stream_text(on_revision="result"),
    "a landing without a path": stream_text(landing="{settle: 1 second, then: burn}"),
    "a landing that is a path": stream_text(landing="./landing"),
    "copies of everything and twice": stream_text(reduce="{copies: [50%, 0.5, 100%, 0%, 200%, some]}"),
    "too many copies": stream_text(reduce=f"{{copies: [{', '.join(f'{each}%' for each in range(1, 20))}]}}"),
    "copies on some reads": stream_text(reduce="{on_read: sometimes}"),
    "copies on read that drop": stream_text(reduce="{on_read: {drop_above: 150%, purge_after: 30, keep: 1}}"),
    "a summary of nothing": stream_text(reduce="{summaries: {hourly: {window: 0 hours, group: [symbl], when: now}}}"),
    "a summary without a window": stream_text(reduce="{summaries: {hourly: {select: {n: count(*), _m: max(price)}}}}"),
    "a summary with the name of its stream": stream_text(
        reduce="{summaries: {Quotes: {window: 1 hour, select: {n: count(*)}}}}"
    ),
    "summaries of one name": stream_text(
        reduce="{summaries: {a: {window: 1 hour, select: {n: count(*)}}, A: {window: 1 hour, select: {n: count(*)}}}}"
    ),
    "a relation at reduced resolution": (
        "project: p\nrelations:\n  c: {kind: nrr, columns: {id: int, at: timestamp}, key: [id], order: at,"
        " reduce: {copies: [10%]}}\n"
    ),
    "a relation in blocks": (
        "project: p\nrelations:\n  c: {kind: nrr, columns: {id: int, at: timestamp}, key: [id], order: at,"
        " layout: randomized}\n"
    ),
    "feeds that are not declared": stream_text(merge="{emit: first}", end="until", occurrence="n"),
    "feeds without a feed": stream_text(feeds="{}"),
    "feeds that differ in case": stream_text(feeds="{a: {}, A: {}}"),
    "a feed with a bad name": stream_text(feeds="{my-feed: {}}"),
    "a feed that is a path": stream_text(feeds="{a: landing/a}"),
    "a feed with every mistake": stream_text(
        feeds="{a: {landing: {settle: 5}, query: q, order: weak, ties: some, adjusts: maybe, complete: 1, stable: on,"
        " from: soon, slack: 5}}"
    ),
    "a feed from a folder and a query": stream_text(feeds="{a: {landing: in, query: q}, b: {}}"),
    "a feed with feedback and no query": stream_text(feeds="{a: {feedback: yes}}"),
    "a feed that is complete and skips": stream_text(feeds="{a: {query: q, complete: yes, feedback: yes}}"),
    "a feed with fixed ties and no order": stream_text(feeds="{a: {ties: fixed}}"),
    "a feed from a query that is not there": stream_text(feeds="{a: {query: quots}}") + "queries: {quotas: q.sql}\n",
    "a feed of a bigint from a date": stream_text(
        columns="{time: bigint, symbol: string}", feeds="{a: {from: 2026-01-01}}"
    ),
    "a merge with every mistake": stream_text(
        feeds="{a: {}, b: {}}", merge="{emit: last, disagreement: newest, quorum: 0, order: none}"
    ),
    "a merge that says too much": stream_text(
        feeds="{a: {}, b: {}}", merge="{emit: first 0.5, disagreement: leader version}"
    ),
    "a merge that says too little": stream_text(
        feeds="{a: {}, b: {}}", merge="{emit: fraction most, disagreement: latest}"
    ),
    "a quorum of more than there are": stream_text(feeds="{a: {}, b: {}}", merge="{quorum: 3}"),
    "feeds beside a landing folder": stream_text(feeds="{a: {}}", landing="{path: in}"),
    "feeds ordered by arrival": stream_text(feeds="{a: {}}", order=""),
    "feeds whose corrections are ignored": stream_text(feeds="{a: {}}", on_revision="ignore"),
    "a version that is not a column": stream_text(feeds="{a: {}}", merge="{disagreement: latest prise}"),
    "a version in the key": stream_text(feeds="{a: {}}", merge="{disagreement: latest symbol}"),
    "an end that is not a column": stream_text(feeds="{a: {}}", end="until"),
    "an end of another type": stream_text(feeds="{a: {}}", end="price"),
    "an end that is the order": stream_text(feeds="{a: {}}", end="time"),
    "an occurrence outside of the key": stream_text(feeds="{a: {}}", occurrence="price"),
    "an occurrence of text": stream_text(feeds="{a: {}}", occurrence="symbol"),
    "a relation with feeds": (
        "project: p\nrelations:\n  c: {kind: nrr, columns: {id: int, at: timestamp}, key: [id], order: at,"
        " feeds: {a: {}}, merge: {quorum: 1}}\n"
    ),
    "a variable that is not set": "project: p\ncatalog: ${ERRATA_CATALOG}\n",
    "a variable that leaves nothing": "project: ${NAME:-}\n",
    "a broken variable": "project: ${p\n",
    "a catalog of another kind": "project: p\ncatalog: mysql://me:secret@host/db\n",
    "a catalog in memory": "project: p\ncatalog: 'sqlite:///:memory:'\n",
    "master and remote": "project: p\nspark: {master: local, remote: 'sc://h'}\n",
    "near at times": "project: p\nspark: {near: sometimes}\n",
    "near with limits of nothing": "project: p\nspark: {near: {rows: 0, bytes: lots, size: 3}}\n",
    "not YAML": "project: p\nstreams: {a: b\n",
    "several at once": stream_text(colums="{a: int}", order="tme", slack="5", on_revision="all").replace(
        "project", "projct"
    ),
}


def test_reduction_is_read_whole(load: Load) -> None:
    text = """
      copies: [10%, 0.5, 2.5 percent]
      on_read: {drop_above: 40%, purge_after: 30 days}
      summaries:
        hourly: {window: 1 hour, group: [symbol], select: {n: count(*), total: sum(price)}}
        daily: {window: 1 day, select: {top: max(price)}, when: read}
"""
    hourly = SummaryDeclaration("hourly", HOUR, ("symbol",), {"n": "count(*)", "total": "sum(price)"})
    daily = SummaryDeclaration("daily", DAY, (), {"top": "max(price)"}, SummaryTrigger.READ)
    reduced = load(stream_text(reduce=text)).streams["quotes"].reduced
    assert reduced == ReducedArchives((0.5, 0.1, 0.025), OnReadCopies(0.4, 30 * DAY), (hourly, daily))
    assert load(stream_text(reduce="{on_read: true}")).streams["quotes"].reduced.on_read == OnReadCopies()
    assert load(stream_text(reduce="{on_read: false}")).streams["quotes"].reduced.is_empty
    assert load(stream_text()).streams["quotes"].reduced.is_empty


def test_mistakes_are_told_in_these_words(load: Load) -> None:
    """Compared with mistakes.txt beside this file; ERRATA_GOLDEN=write rewrites that."""
    told = []
    for name, text in MISTAKES.items():
        with pytest.raises(UsageError) as raised:
            load(text)
        told.append(f"# {name}\n{raised.value}\n")
    words = "\n".join(told)
    if os.environ.get("ERRATA_GOLDEN") == "write":
        GOLDEN.write_text(words, encoding="utf-8")
    assert words == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_has_a_line_and_a_way_to_mend_it(load: Load, name: str) -> None:
    with pytest.raises(UsageError, match=r"errata\.yaml:\d+") as raised:
        load(MISTAKES[name])
    assert "how to mend: " in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("written", "said", "expected"),
    [
        ("", "", NearSettings()),
        ("spark: {near: auto}", "", NearSettings()),
        ("spark: {near: off}", "", NearSettings(NearMode.OFF)),
        ("spark: {near: off}", "auto", NearSettings()),
        ("spark: {master: local}", "off", NearSettings(NearMode.OFF)),
        ("spark: {near: {rows: 5_000}}", "off", NearSettings(NearMode.OFF, 5_000)),
        ("spark: {near: {bytes: 7}}", "", NearSettings(size=7)),
        ("spark: {near: {bytes: 3 KB, rows: 1}}", "", NearSettings(rows=1, size=3 * 1024)),
        ("spark: {near: {bytes: 2GB}}", "", NearSettings(size=2 * 1024**3)),
    ],
)
def test_near_is_as_declared_unless_the_environment_says_otherwise(
    load: Load, written: str, said: str, expected: NearSettings
) -> None:
    assert load(f"project: p\n{written}\n", ERRATA_NEAR=said).spark.near == expected


def test_the_environment_names_one_of_the_choices(load: Load) -> None:
    with pytest.raises(UsageError, match="ERRATA_NEAR=on is not a choice"):
        load("project: p\n", ERRATA_NEAR="on")
