"""errata.yaml read into the model."""

from __future__ import annotations

import re
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
    LandedFileAction,
    LandingFolder,
    MergedFeeds,
    MergePolicy,
    StableRule,
)
from errata.model.reduction import OnReadCopies, ReducedArchives, SummaryDeclaration, SummaryTrigger
from errata.model.stream import AgeOutMode, DuplicatePolicy, RelationKind, Retention, RevisionPolicy, Stream
from errata.model.time import DAY, HOUR, SECOND, parse_instant
from fixtures.errata_yaml import Load, stream_text

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


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
