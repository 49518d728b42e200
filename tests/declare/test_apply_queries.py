"""Applying queries: what is planned, recorded and refused, and what is not read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from errata.catalog import commits
from errata.catalog.database import Catalog, open_catalog
from errata.declare import apply as applying
from errata.declare import query_plans as checking
from errata.declare.apply import ApplyPlan, apply_plan, plan_apply
from errata.declare.changes import QueryChanges
from errata.declare.project import load_project
from errata.errors import ErrataError, RefusedError, UsageError
from errata.model.columns import Column, ColumnType
from errata.model.deferral import Deferral
from errata.model.query import CheckedQuery
from errata.model.results import UpdatePattern
from errata.model.stream import RevisionPolicy
from fixtures.catalog import NOW
from fixtures.clock import FixedClock
from fixtures.projects import STREAMS, Written

DEAR = "SELECT time, symbol, price FROM quotes WHERE price > 10"
HIGH = "SELECT symbol, max(price) AS high FROM dear GROUP BY symbol"
NAMED = "SELECT q.time, q.symbol, c.name FROM quotes AS q JOIN companies AS c ON q.symbol = c.symbol"
QUERIES = {"dear": DEAR, "high": HIGH, "named": NAMED}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def details(planned: ApplyPlan) -> dict[str, tuple[str, ...]]:
    return {each.after.name: each.details for each in planned.query_changes.changes}


def test_queries_are_recorded_with_what_their_plans_tell(written: Written) -> None:
    planned = plan_apply(written.write(QUERIES))
    assert [each.name for each in planned.query_changes.creates] == ["dear", "high", "named"]
    assert apply_plan(planned, clock=FixedClock(NOW)) == 1
    found = written.recorded()
    assert found == dict(planned.checked)
    high = found["high"]
    kinds = {"symbol": "string", "high": "double"}
    assert high.columns == tuple(Column(name, ColumnType.parse(kind)) for name, kind in kinds.items())
    assert (high.key, high.reads, high.pattern) == (("symbol",), ("dear",), UpdatePattern.KEYED)
    assert found["named"].reads == ("companies", "quotes")
    assert {each.on_revision for each in found.values()} == {RevisionPolicy.RESULTS}
    again = plan_apply(written.write(QUERIES))
    assert (again.nothing, apply_plan(again, clock=FixedClock(NOW))) == (True, None)


def test_what_has_not_changed_is_not_read_again(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.apply(QUERIES)
    seen: list[list[str]] = []
    read = checking.read_queries

    def counted(declared: list[checking.QueryText], *more: Any) -> object:
        seen.append(sorted(each.name for each in declared))
        return read(declared, *more)

    monkeypatch.setattr(checking, "read_queries", counted)
    assert written.apply(QUERIES) is None
    assert seen == []
    # What reads it is read again, and what it reads is needed for that; the rest is left alone.
    assert written.apply(QUERIES | {"high": f"{HIGH}, price"}) == 2
    assert seen == [["dear", "high"]]
    seen.clear()
    assert written.apply(QUERIES | {"other": "SELECT at, of FROM ticks"}) == 3
    assert seen == [["dear", "high", "other"]]
    seen.clear()
    # A stream's retention decides nothing about queries, a column of it does.
    kept = STREAMS.replace("order: time\n", "order: time\n    retention: 1 day\n")
    assert written.apply(QUERIES, streams=kept) == 4
    assert seen == []
    assert written.apply(QUERIES, streams=STREAMS.replace("price: double", "price: double, venue: string")) == 5
    assert seen == [["dear", "high", "named"]]


def test_a_change_is_told_in_words(written: Written) -> None:
    written.apply(QUERIES)
    same = plan_apply(written.write(QUERIES | {"dear": f"-- dear ones\n{DEAR}"}))
    assert details(same)["dear"] == ("text changed; it means the same",)
    assert details(same)["high"] == ("what it reads is declared anew; its results stay as they are",)
    other = plan_apply(
        written.write(QUERIES | {"dear": "SELECT time, symbol, CAST(price AS STRING) AS price FROM quotes"})
    )
    assert details(other)["dear"] == ("text changed, and what it does", "column price double -> string")
    assert details(other)["high"] == ("what it reads has changed", "column high double -> string")
    options = {"dear": "on_revision: history, retention: 7 days"}
    assert details(plan_apply(written.write(QUERIES, options))) == {
        "dear": ("on_revision results -> history", "retention for ever -> 7 days"),
        "high": ("on_revision results -> history",),
    }


def test_a_file_that_moves_is_no_other_query(written: Written) -> None:
    written.apply(QUERIES)
    (written.folder / "errata.yaml").write_text(
        (written.folder / "errata.yaml").read_text().replace("queries/dear.sql", "queries/../queries/dear.sql")
    )
    moved = plan_apply(load_project(written.folder, {}))
    assert details(moved) == {"dear": ("file queries/dear.sql -> queries/../queries/dear.sql",)}


def test_a_query_that_is_served_is_no_other_query(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.apply(QUERIES)
    before = written.recorded()
    monkeypatch.setattr(checking, "read_queries", None)
    for table, told in (("now", "table none -> now"), ("then", "table now -> then"), (None, "table then -> none")):
        options = {"dear": f"serve: {{table: {table}}}"} if table else {}
        assert details(plan_apply(written.write(QUERIES, options))) == {"dear": (told,)}
        assert written.apply(QUERIES, options) is not None
        assert written.recorded()["dear"] == replace(before["dear"], query=replace(before["dear"].query, serve=table))
        assert written.apply(QUERIES, options) is None


def test_a_query_that_is_swept_at_another_time_is_no_other_query(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.apply(QUERIES)
    before = written.recorded()
    monkeypatch.setattr(checking, "read_queries", None)
    for when, told in (
        ("queue >= 10", "sweep as in the project -> queue >= 10"),
        ("never", "sweep queue >= 10 -> never"),
        (None, "sweep never -> as in the project"),
    ):
        options = {"dear": f"sweep: {{when: {when}}}"} if when else {}
        assert details(plan_apply(written.write(QUERIES, options))) == {"dear": (told,)}
        assert written.apply(QUERIES, options) is not None
        swept = Deferral.parse(when) if when else None
        assert written.recorded()["dear"] == replace(before["dear"], query=replace(before["dear"].query, sweep=swept))
        assert written.recorded()["high"] == before["high"]
        assert written.apply(QUERIES, options) is None


def test_columns_added_dropped_and_moved(written: Written) -> None:
    written.apply({"dear": DEAR})
    changed = plan_apply(written.write({"dear": "SELECT symbol, time, price * 2 AS twice FROM quotes"}))
    assert details(changed)["dear"] == (
        "text changed, and what it does",
        "column twice double added",
        "column price dropped",
        "columns ordered symbol, time, twice",
    )


def test_an_old_commit_has_the_old_queries(written: Written) -> None:
    written.apply(QUERIES)
    before = written.recorded()
    written.apply({"dear": DEAR.replace("10", "20")})
    assert set(written.recorded()) == {"dear"}
    assert written.recorded()["dear"].query.text != DEAR
    assert written.recorded(1) == before
    written.apply(QUERIES)
    assert written.recorded(3) == before


def test_dropping_what_others_read_is_the_others_mistake(written: Written) -> None:
    written.apply(QUERIES)
    with pytest.raises(UsageError, match=r"queries/high\.sql:1:40: .*dear"):
        plan_apply(written.write({"high": HIGH, "named": NAMED}))
    planned = plan_apply(written.write({"named": NAMED}))
    assert planned.query_changes == QueryChanges(drops=("dear", "high"))


def test_a_column_that_a_stream_loses_is_the_querys_mistake(written: Written) -> None:
    written.apply(QUERIES)
    with pytest.raises(UsageError, match=r"queries/dear\.sql:1:\d+: .*price"):
        plan_apply(written.write(QUERIES, streams=STREAMS.replace(", price: double", "")))


def test_all_mistakes_are_told_at_once(written: Written) -> None:
    texts = {"a": "SELECT x FROM quotes", "b": "SELECT\n  time\nFROM nowhere", "c": DEAR, "d": "SELECT time FROM a"}
    with pytest.raises(UsageError) as raised:
        plan_apply(written.write(texts))
    told = str(raised.value)
    assert "queries/a.sql:1:8: " in told
    assert "queries/b.sql:3:6: " in told
    assert "queries/c.sql" not in told
    assert "queries/d.sql" not in told


def test_queries_that_read_each_other_in_a_circle(written: Written) -> None:
    written.apply({"a": DEAR, "b": "SELECT time FROM a"})
    with pytest.raises(UsageError, match="circle: a reads b reads a"):
        plan_apply(written.write({"a": "SELECT time FROM b", "b": "SELECT time FROM a"}))


@pytest.mark.parametrize(
    ("name", "option", "told"),
    [
        ("of_ticks", "on_revision: results", r"on_revision is results, and that of ticks, .* only history"),
        ("ticked", "on_revision: results", r"on_revision is results, and that of of_ticks, .* only ignore"),
        ("ticked", "retention: 7 days", "retention is a duration, and the query's event time is a plain number"),
        ("dear", "retention: 7 units", "retention is in units, and the query's event time is a time"),
    ],
)
def test_options_that_cannot_be(written: Written, name: str, option: str, told: str) -> None:
    texts = {"dear": DEAR, "of_ticks": "SELECT at, of FROM ticks", "ticked": "SELECT at FROM of_ticks"}
    options = {"of_ticks": "on_revision: ignore"} | {name: option}
    line = STREAMS.count("\n") + 2 + [*texts].index(name)
    with pytest.raises(UsageError, match=told) as raised:
        plan_apply(written.write(texts, options))
    key, _, _ = option.partition(":")
    assert str(raised.value).startswith(f"{written.folder}/errata.yaml:{line} (queries.{name}.{key})")


def test_a_query_may_do_less_than_its_streams(written: Written) -> None:
    texts = {"of_ticks": "SELECT at, of FROM ticks", "ticked": "SELECT at FROM of_ticks", "dear": DEAR}
    written.apply(texts, {"of_ticks": "on_revision: ignore", "dear": "on_revision: history, retention: 7 rows"})
    told = {name: each.on_revision for name, each in written.recorded().items()}
    assert told == {"of_ticks": RevisionPolicy.IGNORE, "ticked": RevisionPolicy.IGNORE, "dear": RevisionPolicy.HISTORY}


def test_early_results_are_of_windows(written: Written) -> None:
    windows = "SELECT symbol, window_start, count(*) AS n FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    written.apply({"per": windows}, {"per": "emit: early"})
    early = written.recorded()["per"]
    assert details(plan_apply(written.write({"per": windows})))["per"] == (
        "emit early -> final",
        "pattern WK -> MON",
    )
    assert early.pattern is UpdatePattern.KEYED
    with pytest.raises(UsageError, match=r"queries/dear\.sql:1:8: early results"):
        plan_apply(written.write({"dear": DEAR}, {"dear": "emit: early"}))


def test_a_refused_stream_is_told_before_what_depends_on_it(written: Written) -> None:
    written.apply(QUERIES)
    project = written.write(QUERIES)
    with pytest.raises(RefusedError, match="still declared"):
        plan_apply(project, ["quotes"]).changes.check()


def test_queries_that_came_meanwhile_are_planned_on_again(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.apply({})
    planned = plan_apply(written.write({"dear": DEAR}))
    record = applying._record_plan
    tries: list[dict[str, CheckedQuery]] = []

    def meanwhile(catalog: Catalog, current: ApplyPlan) -> int:
        if not tries:
            other = replace(current, query_changes=QueryChanges(creates=tuple(current.checked.values())))
            record(catalog, other)
        tries.append(dict(current.checked))
        return record(catalog, current)

    monkeypatch.setattr(applying, "_record_plan", meanwhile)
    assert apply_plan(planned, clock=FixedClock(NOW)) is None
    assert len(tries) == 1
    catalog = open_catalog(planned.project.catalog)
    assert commits.newest_commit(catalog) == 2
    catalog.close()


def test_a_file_that_is_missing_keeps_all_from_being_applied(written: Written) -> None:
    project = written.write(QUERIES)
    (written.folder / "queries" / "high.sql").unlink()
    with pytest.raises(
        ErrataError, match=r"errata\.yaml:\d+ \(queries\.high\.sql\): there is no file queries/high\.sql"
    ):
        plan_apply(project)


def test_a_chain_that_is_longer_than_the_stack(written: Written) -> None:
    chain = {"q0": DEAR} | {f"q{n}": f"SELECT time, symbol, price FROM q{n - 1}" for n in range(1, 300)}
    assert written.apply(chain) == 1
    assert written.apply(chain) is None
    last = f"{chain['q299']} WHERE price > 5"
    assert written.apply(chain | {"q299": last}) == 2


def test_a_file_that_cannot_be_read_hides_no_other_mistakes(written: Written) -> None:
    texts = {"lost": DEAR, "after": "SELECT x FROM lost", "last": "SELECT x FROM after", "bad": "SELECT x FROM quotes"}
    project = written.write(texts | {"good": DEAR, "latin": DEAR})
    (written.folder / "queries" / "lost.sql").unlink()
    (written.folder / "queries" / "latin.sql").write_bytes(b"SELECT '\xe9'")
    with pytest.raises(UsageError) as raised:
        plan_apply(project)
    told = str(raised.value)
    assert "there is no file queries/lost.sql" in told
    assert "queries/latin.sql is not UTF-8 at byte 8" in told
    assert "queries/bad.sql:1:8: " in told
    assert "queries/after.sql" not in told
    assert "queries/last.sql" not in told
