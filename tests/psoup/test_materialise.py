"""Match segments: nothing is matched twice, kills lose work and nothing else, and vacuum removes what nobody needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import event, func, select, update

from errata.archive.upkeep.vacuum import plan_vacuum, run_vacuum
from errata.catalog import match_segments
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.match_segments import bucket_key
from errata.catalog.registered_tables import conjunctions
from errata.catalog.registered_tables import match_segments as segments_table
from errata.catalog.tables import buckets as buckets_table
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.errors import ErrataError
from errata.model.time import DAY
from errata.psoup import materialise as matching
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, registered_queries, unregister
from errata.psoup.segments import with_costs
from errata.psoup.snapshot import SnapshotCache, stream_snapshot
from fixtures.registered.archives import CLOCK, DECLARED, History

WINDOW = "BEGIN ('2026-11-18T02:00:00') END (NOW)"
TEXTS = [f"SELECT sym, no, bid FROM quotes WHERE bid >= {bound} {WINDOW}" for bound in ("-3", "0.5", "1", "2", "50")]
EVERY = f"SELECT sym, no FROM quotes {WINDOW}"


@pytest.fixture
def history(tmp_path: Path, chance: Random) -> Iterator[History]:
    made = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", chance)
    for _ in range(4):
        made.arrive("quotes")
    made.note()
    yield made
    made.house.site.catalog.close()


def counted(catalog: Catalog) -> int:
    with catalog.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(segments_table)).scalar_one())


def check_answers(history: History, site: Site) -> None:
    history.note()
    moment = history.at[history.commit]
    reader = RegisteredReader(site)
    for each in registered_queries(site):
        stable = moment.stable["quotes"]
        assert stable is not None
        assert moment.is_answered_by(reader.invoke(each.handle).rows, each.plan, stable), each.text


def test_what_has_been_matched_is_not_matched_again(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    site = history.house.site
    register(site, TEXTS, owner="me")
    (first,) = materialise(site)
    assert (first.rows, first.conjunctions) == (len(history.live["quotes"]), len(TEXTS))
    assert [each.buckets for each in materialise(site)] == [0]
    register(site, [*TEXTS, EVERY], owner="me")
    (queries,) = materialise(site)
    assert (queries.buckets, queries.conjunctions) == (first.buckets, 1), "equal conditions are one conjunction"
    history.revise("quotes")
    (rows,) = materialise(site)
    assert 0 < rows.rows < 10, "only what the correction brought"
    read = _counting(monkeypatch, "errata.psoup.selection.PredicateIndex.match")
    check_answers(history, site)
    assert read == [], "answers are of what is stored"


def _counting(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(name, lambda *_: calls.append(name))
    return calls


def test_many_segments_of_a_bucket_become_one(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    site = history.house.site
    monkeypatch.setattr(matching, "INLINE_BYTES", 60)
    before = len(site.warehouse.entries("quotes"))
    for bound in range(matching.MAX_SEGMENTS + 2):
        register(site, [TEXTS[0].replace("-3", str(bound))], owner="me")
        materialise(site)
    with site.catalog.reading() as connection:
        found = connection.execute(select(segments_table)).all()
    last = {row.bucket_id: row for row in sorted(found, key=lambda row: row.first_conjunction)}
    assert len(found) == 2 * len(last), "one for the first nine, and the tenth"
    assert {row.last_conjunction for row in last.values()} == {matching.MAX_SEGMENTS + 2}
    assert any(row.path is not None for row in found)
    assert len(site.warehouse.entries("quotes")) == before + 1, "a folder for matches"
    check_answers(history, site)
    run_vacuum(site, grace=0)
    named = {row.path for row in found if row.path is not None}
    assert _match_files(site) == named, "those that were merged are gone, those in use are not"
    check_answers(history, site)


def _match_files(site: Site) -> set[str]:
    days = [day for day in site.warehouse.days("quotes") if day.split("/")[1] == matching.KIND]
    return {f"{day}/{entry.name}" for day in days for entry in site.warehouse.entries(day)}


def test_a_kill_at_any_step_loses_work_and_nothing_else(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    site = history.house.site
    monkeypatch.setattr(matching, "INLINE_BYTES", 60)
    monkeypatch.setattr(matching, "GROUP_ROWS", 12)
    monkeypatch.setattr(matching, "MAX_SEGMENTS", 1)
    register(site, TEXTS[:2], owner="me")
    materialise(site)
    register(site, TEXTS[2:], owner="me")
    killed, step = 0, 0
    while _dies(site, step):
        killed, step = killed + 1, step + 5  # each begins where the one before it was killed
        check_answers(history, site)
    assert killed >= 5
    found = [*stream_snapshot(SnapshotCache(site), "quotes", history.commit).base]
    covered = match_segments.covered_to(site.catalog, list(map(bucket_key, found)))
    assert {last for last, _ in covered.values()} == {len(TEXTS)}
    assert len(covered) == len(found)
    check_answers(history, site)
    history.house.clock.advance(7 * DAY)  # the files have the time of the machine
    run_vacuum(site, grace=0)
    with site.catalog.reading() as connection:
        named = set(connection.execute(select(segments_table.c.path)).scalars()) - {None}
    assert _match_files(site) == named, "what the killed ones left is gone"


def _dies(site: Site, step: int) -> bool:
    """Whether a process that matches is killed before it is done: at its step with this number, each statement, each
    commit and each file being one."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    try:
        catalog = open_catalog(site.project.catalog, site.catalog.clock)
        left = [step]

        def count(*_: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)

        event.listen(catalog.engine, "after_cursor_execute", count)
        event.listen(catalog.engine, "commit", count)
        write = Warehouse.write

        def counted_write(self: Warehouse, relative: str, data: bytes) -> None:
            count()
            write(self, relative, data)
            count()

        Warehouse.write = counted_write  # type: ignore[method-assign]
        materialise(replace(site, catalog=catalog))
    except BaseException:  # noqa: BLE001 - a child must not go on with the tests
        os._exit(7)
    os._exit(0)


def test_vacuum_forgets_what_nobody_asks_for(history: History) -> None:
    site = history.house.site
    made = register(site, TEXTS, owner="me")
    materialise(site)
    of_all = counted(site.catalog)
    history.arrive("quotes")
    (last,) = register(site, [EVERY], owner="me")
    materialise(site)
    assert counted(site.catalog) > of_all
    for each in made[1:]:
        unregister(site, each.handle)
    assert run_vacuum(site).forgotten.segments == 0, "a segment of which one conjunction is asked for stays"
    unregister(site, made[0].handle)
    planned = plan_vacuum(site).forgotten.segments
    assert run_vacuum(site).forgotten.segments == planned == of_all
    with site.catalog.reading() as connection:
        assert list(connection.execute(select(conjunctions.c.conjunction_id)).scalars()) == [len(TEXTS) + 1]
    check_answers(history, site)
    (again,) = register(site, TEXTS[:1], owner="me")
    assert again.conjunctions == (len(TEXTS) + 2,), "a number is never given again"
    assert again.number > last.number
    materialise(site)
    check_answers(history, site)


def test_the_id_of_a_deleted_bucket_may_be_given_again(history: History) -> None:
    site = history.house.site
    register(site, TEXTS, owner="me")
    materialise(site)
    reader = RegisteredReader(site)
    handle = registered_queries(site)[0].handle
    reader.invoke(handle)
    with site.catalog.writing() as connection:
        # As if the bucket had been removed, vacuumed, and another one been added under its id.
        newest = int(connection.execute(select(func.max(buckets_table.c.bucket_id))).scalar_one())
        connection.execute(
            update(segments_table)
            .where(segments_table.c.bucket_id == newest)
            .values(added_in=segments_table.c.added_in - 1)
        )
    check_answers(history, site)
    assert [each.buckets for each in materialise(site)] == [1]
    assert run_vacuum(site).forgotten.segments == 1


def test_a_stream_that_was_dropped_and_declared_again_is_another_one(history: History) -> None:
    site = history.house.site
    (made,) = register(site, TEXTS[:1], owner="me")
    materialise(site)
    reader = RegisteredReader(site)
    reader.invoke(made.handle)
    others = [each for each in DECLARED.values() if each.name != "quotes"]
    project = replace(site.project, streams={each.name: each for each in others})
    _apply(history, replace(site, project=project))
    with pytest.raises(ErrataError, match="unknown stream 'quotes'"):
        reader.invoke(made.handle)
    _apply(history, site)
    with pytest.raises(ErrataError, match="is another one than when query"):
        reader.invoke(made.handle)
    assert materialise(site) == []


def _apply(history: History, site: Site) -> None:
    dropped = [] if "quotes" in site.project.streams else ["quotes"]
    apply_plan(plan_apply(site.project, dropped), dropped, clock=history.house.clock)


def test_costs_are_those_of_the_segments(history: History) -> None:
    site = history.house.site
    made = register(site, [*TEXTS, TEXTS[0]], owner="me")
    assert {each.cost.rows for each in with_costs(site, made)} == {0}
    materialise(site)
    costs = [each.cost for each in with_costs(site, made)]
    for query, cost in zip(made, costs, strict=True):
        low = float(str(query.plan.parameters[0]))
        bids = [row["bid"] for row in history.live["quotes"].values()]
        # NaN is greater than every number.
        assert cost.rows == sum(bid is not None and not bid < low for bid in bids), query.text  # type: ignore[operator]
        assert (cost.size > 0) == (cost.rows > 0)
    assert costs[0] == costs[-1]
    reader = RegisteredReader(site)
    reader.invoke(made[0].handle)
    reader.invoke(made[0].handle)
    reader.close()
    asked = registered_queries(site)[0].cost
    assert (asked.invocations, asked.last_asked) == (2, CLOCK)
    assert asked.invocation_micros > 0
