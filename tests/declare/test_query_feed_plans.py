"""`errata apply` refuses feeds whose queries do not fit their stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from errata.declare.apply import apply_plan, plan_apply
from errata.declare.feed_guarantees import stream_guarantees, with_derived
from errata.declare.project import load_project
from errata.declare.query_plans import stream_sources
from errata.declare.site import open_site
from errata.errors import UsageError
from errata.language.queries import QueryText, read_queries
from errata.merge.choice import choose_algorithm
from errata.model.columns import Column, ColumnType
from errata.model.feed import EmitPolicy, Feed, FeedOrder, FeedProperties, MergeAlgorithm, MergedFeeds, MergePolicy
from errata.model.stream import RevisionPolicy, Stream
from errata.read.feed_explanation import explain_feeds

COLUMNS = (Column("at", ColumnType.parse("timestamp")), Column("symbol", ColumnType.parse("string")))
FIRM = Feed("a", properties=FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True))

YAML = """
project: p
streams:
  ticks: {columns: {at: timestamp, symbol: string, price: double}, key: [symbol, at], order: at}
  best:
    columns: {at: timestamp, symbol: string, total: TYPE}
    key: [symbol, at]
    order: at
    feeds: {old: {query: old_plan}, new: {query: new_plan}}
queries: {old_plan: old.sql, new_plan: new.sql}
"""


def write_project(folder: Path, kind: str, *, firm: bool = False) -> None:
    """`firm`: the stream takes no corrections."""
    text = YAML.replace("TYPE", kind)
    (folder / "errata.yaml").write_text(text.replace("order: at}", "order: at, on_revision: ignore}") if firm else text)
    for name, value in (("old", "price"), ("new", "price * 2")):
        (folder / f"{name}.sql").write_text(f"SELECT at, symbol, {value} AS total FROM ticks\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_queries_that_fit_are_planned(here: Path) -> None:
    write_project(here, "double")
    planned = plan_apply(load_project(here, {}))
    assert [each.stream.name for each in planned.changes.creates] == ["best", "ticks"]
    assert sorted(planned.checked) == ["new_plan", "old_plan"]


def test_each_feed_that_does_not_fit_is_told(here: Path) -> None:
    write_project(here, "bigint")
    with pytest.raises(UsageError) as raised:
        plan_apply(load_project(here, {}))
    told = str(raised.value)
    assert told.startswith(
        "errata.yaml has 2 mistakes\nerrata.yaml: feed old of stream best: column total of the query"
    )
    assert "errata.yaml: feed new of stream best: column total of the query is a double" in told
    assert told.count("how to mend: ") == 2


def test_what_follows_from_a_plan_is_recorded_and_decides_about_the_algorithm(here: Path) -> None:
    write_project(here, "double", firm=True)
    assert apply_plan(plan_apply(load_project(here, {}))) == 1
    with open_site(here) as site:
        stream = site.declared("best")
        assert explain_feeds(site.project, stream).splitlines()[2].startswith("algorithm R2: ")
    derived = FeedProperties(FeedOrder.ORDERED, adjusts=False, complete=True)
    assert [each.derived for each in stream.merged.feeds] == [derived, derived]
    assert choose_algorithm(stream).algorithm is MergeAlgorithm.R2
    assert plan_apply(load_project(here, {})).nothing
    write_project(here, "double")
    planned = plan_apply(load_project(here, {}))
    assert {each.after.name: each.details for each in planned.changes.changes} == {
        "best": tuple(f"feed {name}: the plan of query {name}_plan guarantees nothing" for name in ("old", "new")),
        "ticks": ("on_revision ignore -> results",),
    }
    assert apply_plan(planned) == 2
    with open_site(here) as site:
        assert choose_algorithm(site.declared("best")).algorithm is MergeAlgorithm.R3
        told = explain_feeds(site.project, site.declared("best"))
    assert "from the plan of query old_plan: no guarantees" in told


def test_it_is_told_whether_a_query_can_skip_what_nobody_needs(here: Path) -> None:
    write_project(here, "double")
    declared = (here / "errata.yaml").read_text().replace("{query: old_plan}", "{query: old_plan, feedback: yes}")
    (here / "errata.yaml").write_text(declared)

    def told() -> str:
        project = load_project(here, {})
        return explain_feeds(project, project.streams["best"])

    assert "  its query skips results that best has from other feeds already\n" in told()
    assert told().count("skips") == 1
    (here / "old.sql").write_text("SELECT symbol, max(at) AS at, sum(price) AS total FROM ticks GROUP BY symbol\n")
    assert "  its query skips nothing: its results may end, or depend on earlier ones" in told()


def test_a_feed_that_skips_what_nobody_needs_is_not_complete() -> None:
    feed = Feed("old", query="old_plan", feedback=True)
    ticks = Stream("ticks", COLUMNS, ("symbol", "at"), "at", on_revision=RevisionPolicy.IGNORE)
    best = Stream("best", COLUMNS, ("symbol", "at"), "at", merged=MergedFeeds((feed, Feed("new", query="old_plan"))))
    plans = read_queries(
        [QueryText("old_plan", "SELECT at, symbol FROM ticks", "old.sql")], stream_sources([ticks]), []
    )
    found = with_derived({"ticks": ticks, "best": best}, plans)["best"]
    assert [each.derived and each.derived.complete for each in found.merged.feeds] == [False, True]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True)),
        ({"policy": MergePolicy(EmitPolicy.EVERY)}, FeedProperties()),
        ({"feeds": (FIRM, Feed("b"))}, FeedProperties()),
        (
            {"feeds": (FIRM, replace(FIRM, name="b", properties=replace(FIRM.properties, complete=False)))},
            FeedProperties(),
        ),
    ],
)
def test_a_merged_stream_guarantees_what_all_its_feeds_do(changed: dict[str, Any], expected: FeedProperties) -> None:
    merged = replace(MergedFeeds((FIRM, replace(FIRM, name="b"))), **changed)
    assert stream_guarantees(Stream("best", COLUMNS, ("symbol", "at"), "at", merged=merged)) == expected
