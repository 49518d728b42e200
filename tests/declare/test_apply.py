"""Applying, while others apply and append: what is recorded was allowed on what was there when it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from errata.catalog import commits, streams, transaction
from errata.catalog.database import Catalog
from errata.catalog.stream_commits import commit_append
from errata.declare import apply as applying
from errata.declare.apply import ApplyPlan, apply_plan, plan_apply
from errata.errors import ErrataError
from errata.model.commit import Cause
from fixtures.catalog import a_batch, a_bucket, a_stream
from fixtures.flows import Builder, House, a_project

TICKS = a_stream("ticks")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A house with one stream, and no need of Spark."""
    builder = Builder(tmp_path)
    yield builder(TICKS)
    builder.close()


def planned(house: House, *declared: object) -> ApplyPlan:
    return plan_apply(a_project(house.folder, house.site.project.catalog, *declared))


def take_in(house: House, low: int) -> int:
    basis = streams.stream_state(house.catalog, "ticks")
    return commit_append(house.catalog, basis, a_batch(f"b{low}", [a_bucket(low, low)]), Cause("append"))


def before_recording(monkeypatch: pytest.MonkeyPatch, do: object) -> None:
    record = applying._record_plan

    def recorded(catalog: Catalog, current: ApplyPlan) -> int:
        do()
        return record(catalog, current)

    monkeypatch.setattr(applying, "_record_plan", recorded)


def test_two_that_create_one_stream_at_once_create_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    both = planned(house, TICKS, a_stream("new"))
    ready = threading.Barrier(2)
    met = threading.Event()

    def meet() -> None:
        if not met.is_set():
            ready.wait(60)
            met.set()

    before_recording(monkeypatch, meet)
    with ThreadPoolExecutor(2) as pool:
        done = [each.result(60) for each in [pool.submit(apply_plan, both, clock=house.clock) for _ in range(2)]]
    assert sorted(done, key=str) == [2, None]
    assert [each.stream.name for each in streams.stream_states(house.catalog)] == ["new", "ticks"]
    assert commits.newest_commit(house.catalog) == 2


def test_rows_that_come_before_a_change_of_key_refuse_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    change = planned(house, a_stream("ticks", key=("at",)))
    came: list[int] = []
    before_recording(monkeypatch, lambda: came.append(take_in(house, 10)))
    with pytest.raises(ErrataError, match="key"):
        apply_plan(change, clock=house.clock)
    assert came == [2]
    assert commits.newest_commit(house.catalog) == 2
    assert streams.stream_state(house.catalog, "ticks").stream == TICKS


def test_rows_that_come_before_another_change_do_not_hinder_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    change = planned(house, a_stream("ticks", slack=99))
    came: list[int] = []

    def twice() -> None:
        if len(came) < 2:
            came.append(take_in(house, 10 * (1 + len(came))))

    before_recording(monkeypatch, twice)
    assert apply_plan(change, clock=house.clock) == 4
    standing = streams.stream_state(house.catalog, "ticks")
    assert (standing.stream, standing.rows) == (a_stream("ticks", slack=99), 2)


def test_streams_that_never_rest_are_given_up_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    change = planned(house, a_stream("ticks", slack=99))
    came: list[int] = []
    before_recording(monkeypatch, lambda: came.append(take_in(house, 10 * (1 + len(came)))))
    with pytest.raises(ErrataError, match="changing faster than they can be declared"):
        apply_plan(change, clock=house.clock)
    assert len(came) == transaction.MAX_TRIES
    assert streams.stream_state(house.catalog, "ticks").stream == TICKS
