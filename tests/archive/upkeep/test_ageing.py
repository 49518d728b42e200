"""Ageing: on schedule, lazily, by span and by rows; what was known before stays readable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from errata.archive.upkeep.ageing import AgeOutReport, age_out, age_out_if_lazy
from errata.archive.upkeep.compaction import compact_streams
from errata.catalog import commits, pins
from errata.errors import UsageError
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.stream import AgeOutMode, Retention
from errata.model.time import SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed, place_of
from fixtures.layers import Layers, layers, plain
from fixtures.oracle.history import History, Record
from fixtures.oracle.revision import Row
from fixtures.sources import Line, Source

LAZY = {"age_out": AgeOutMode.LAZY, "retention": Retention(span=10 * SECOND)}


def fill(house: House, name: str, *seconds: int) -> None:
    told = [Line({"at": NOW - (100 - second) * SECOND, "who": "a", "price": 1.0, "note": None}) for second in seconds]
    house.append([Source(f"{name}-{seconds[0]}.csv", told)], name)


def moments(house: House, name: str, commit: int | None = None) -> list[int]:
    return [100 - (NOW - int(str(row["at"]))) // SECOND for row in house.rows(name, commit)]


def test_on_schedule_by_span_and_lazily_only_when_read_for_a_correction(a_house: Builder) -> None:
    house = a_house(
        a_feed("scheduled", retention=Retention(span=10 * SECOND)),
        a_feed("lazy", **LAZY),
        a_feed("for_ever"),
    )
    for name in ("scheduled", "lazy", "for_ever"):
        for second in (0, 10, 20, 21):
            fill(house, name, second)
    before = commits.newest_commit(house.catalog)
    # Stable is at 21: the bucket at 10 lies further behind it than 10, and so does the one at 0.
    aged = [(each.stream, each.commit_id, each.rows) for each in age_out(house.site)]
    assert aged == [("for_ever", None, 0), ("scheduled", before + 1, 2)]
    assert moments(house, "scheduled") == [20, 21]
    assert [row["at"] for row in house.scan("scheduled")] == [NOW - 80 * SECOND, NOW - 79 * SECOND]
    assert moments(house, "scheduled", before) == [0, 10, 20, 21]
    assert len(house.scan("scheduled", as_of=before)) == 4
    assert moments(house, "lazy") == [0, 10, 20, 21]
    assert len(house.scan("lazy")) == 4
    for name, left in (("lazy", 2), ("for_ever", 4), ("scheduled", 2)):
        age_out_if_lazy(house.site, name)
        assert len(house.scan(name)) == left, name
    [commit] = commits.list_commits(house.catalog, since=before + 1)
    assert (commit.cause.flow, commit.stream, commit.summary["dropped_rows"]) == ("age-out", "lazy", 2)


def test_nothing_due_makes_no_commit(a_house: Builder) -> None:
    house = a_house(a_feed("scheduled", retention=Retention(span=10 * SECOND)), a_feed("lazy", **LAZY))
    before = commits.newest_commit(house.catalog)
    assert [each.commit_id for each in age_out(house.site, ["scheduled", "lazy"])] == [None, None]
    fill(house, "scheduled", 10, 20)
    assert [each.commit_id for each in age_out(house.site)] == [None]
    assert age_out_if_lazy(house.site, "scheduled").commit_id is None
    assert commits.newest_commit(house.catalog) == before + 1
    with pytest.raises(UsageError, match="unknown stream 'lasy'"):
        age_out(house.site, ["lasy"])


def test_a_named_stream_ages_whatever_its_mode(a_house: Builder) -> None:
    house = a_house(a_feed("lazy", **LAZY))
    fill(house, "lazy", 0)
    fill(house, "lazy", 50)
    assert age_out(house.site) == []
    [aged] = age_out(house.site, ["lazy"])
    assert aged.rows == 1


@pytest.mark.parametrize(("keep", "left"), [(1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3])])
def test_by_rows_the_oldest_go_first_and_enough_remains(a_house: Builder, keep: int, left: list[int]) -> None:
    house = a_house(a_feed("few", retention=Retention(rows=keep)))
    for second in range(4):
        fill(house, "few", second)
    age_out(house.site)
    assert moments(house, "few") == left
    assert [each.commit_id for each in age_out(house.site)] == [None]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for many streams."""
    builder = Builder(tmp_path_factory.mktemp("ageing"))
    yield builder(plain("first"))
    builder.close()


@pytest.fixture(params=[True, False], ids=["inline", "files"])
def done(house: House, request: pytest.FixtureRequest) -> Layers:
    return layers(house, plain(retention=Retention(span=10), slack=0), inline=request.param)


class TestWhatLiesBeside:
    """Rows before the new beginning that lie in buckets that stay, or in overlays."""

    def aged(self, done: Layers, rows: int) -> AgeOutReport:
        """Age; so many rows must go, and nothing must go but what lies before the new beginning."""
        before, was = done.seen(), done.standing
        [aged] = age_out(done.house.site, [done.name])
        now = done.standing
        assert (aged.rows, was.rows - now.rows) == (rows, rows)
        assert now.aged_to is not None
        assert done.seen() == [row for row in before if place_of(done.stream, row) >= now.aged_to]
        assert done.seen(was.changed_in) == before
        done.check_index()
        return aged

    def places(self, done: Layers, **wanted: object) -> list[int]:
        return sorted(place_of(done.stream, row) for row in done.scanned(**wanted))

    def test_rows_of_a_bucket_that_reaches_beyond(self, done: Layers) -> None:
        before = done.bring([a_row(1), a_row(8)], [a_row(2), a_row(7, "b"), a_row(9), a_row(25)])
        # Stable is at 25: the first bucket goes, and of the second what lies before 9.
        assert len(self.aged(done, rows=4).buckets) == 1
        assert self.places(done) == [9, 25]
        assert self.places(done, end="10") == [9]
        assert self.places(done, as_of=before) == [1, 2, 7, 8, 9, 25]
        # What has gone is not counted once more when the rest goes.
        done.bring([a_row(60)])
        assert len(self.aged(done, rows=2).buckets) == 1
        assert self.places(done) == [60]

    def test_a_bucket_of_which_ever_less_counts(self, done: Layers) -> None:
        done.bring(
            [a_row(0), a_row(4)],
            [a_row(2, "b"), a_row(9, "b"), a_row(60, "b")],
            [a_row(5), a_row(10)],
            [a_row(14)],
        )
        done.house.declare(replace(done.stream, retention=Retention(span=55)))
        assert len(self.aged(done, rows=3).buckets) == 1
        done.house.declare(replace(done.stream, retention=Retention(span=48)))
        assert len(self.aged(done, rows=3).buckets) == 1
        assert [bucket.masked for bucket in done.stored()] == [2, 0]

    def test_overlays(self, done: Layers) -> None:
        rows = [a_row(1), a_row(3), a_row(8)]
        done.bring(rows, [a_row(2), a_row(5), a_row(7), a_row(9), a_row(25)])
        done.correct(
            (Op.REPLACE, {"at": 20, "who": "a"}, {"at": 1}),  # comes to lie behind
            (Op.REPLACE, {"at": 4, "who": "a"}, {"at": 20}),  # and goes back
            (Op.REPLACE, {"at": 3, "who": "a", "price": 2.0}, {}),
            (Op.REPLACE, {"at": 5, "who": "a", "price": 2.0}, {}),
            (Op.DELETE, {"at": 2, "who": "a"}, {}),
            (Op.INSERT, a_row(6), {}),
        )
        done.correct((Op.REPLACE, {"at": 9, "who": "a", "price": 2.0}, {}), (Op.INSERT, a_row(22), {}))
        assert len(done.seen()) == 9
        assert len(done.stored(Role.OVERLAY)) == 2
        # Before 9 lie 8 and 7 in buckets, and 3, 4, 5 and 6 in overlays.
        self.aged(done, rows=6)
        assert self.places(done) == [9, 22, 25]
        # The first overlay still tells of a row at 20; the second is needed anyway.
        assert len(done.stored(Role.OVERLAY)) == 2
        done.bring([a_row(60)])
        self.aged(done, rows=3)
        assert done.stored(Role.OVERLAY) == []

    def test_an_overlay_with_nothing_left_to_say_goes(self, done: Layers) -> None:
        done.bring([a_row(1), a_row(3)], [a_row(2), a_row(25)])
        done.correct((Op.REPLACE, {"at": 1, "who": "a", "price": 2.0}, {}), (Op.DELETE, {"at": 2, "who": "a"}, {}))
        self.aged(done, rows=2)
        assert done.stored(Role.OVERLAY) == []

    def test_a_row_whose_key_had_to_become_free_is_not_shown_beside_the_one_that_had_it(self, house: House) -> None:
        done = layers(house, plain(key=("who",), retention=Retention(span=10), slack=0))
        done.bring([a_row(1), a_row(2, "b")])
        done.correct((Op.DELETE, {"who": "a"}, {}))
        done.bring([a_row(20, "a")])
        history = History(done.stream)
        history.append([Record(a_row(1)), Record(a_row(2, "b"))], now=0)
        history.append([Record({"who": "a"}, Op.DELETE)], now=0)
        history.revise()
        history.append([Record(a_row(20, "a"))], now=0)
        self.aged(done, rows=1)
        history.age_out(3)
        for number in (0, 1):
            assert done.scanned(revisions_up_to=number) == history.scan(revisions_up_to=number)

    def test_compaction_leaves_out_what_no_longer_counts(self, done: Layers) -> None:
        done.bring([a_row(1), a_row(8)], [a_row(2), a_row(7, "b"), a_row(9), a_row(25)], [a_row(26)])
        self.aged(done, rows=4)
        compact_streams(done.house.site, [done.name], everything=True)
        assert [(bucket.rows, bucket.masked) for bucket in done.stored()] == [(3, 0)]
        done.check_index()
        done.bring([a_row(60)])
        self.aged(done, rows=3)

    def test_what_is_pinned_too_late_is_looked_at_again(self, done: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
        done.bring([a_row(1), a_row(8)], [a_row(2), a_row(9), a_row(25)])
        pin, times = pins.hold_pin, count()

        def late(*how: Any) -> Any:
            if not next(times):
                done.bring([a_row(26)])
            return pin(*how)

        monkeypatch.setattr(pins, "hold_pin", late)
        [aged] = age_out(done.house.site, [done.name])
        assert (aged.rows, next(times)) == (3, 2)
        done.check_index()


def a_row(place: int, who: str = "a", price: float = 1.0) -> Row:
    return {"at": place, "who": who, "price": price, "note": None}
