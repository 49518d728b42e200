"""Ageing: on schedule, lazily, by span and by rows; what was known before stays readable."""

from __future__ import annotations

import pytest

from errata.catalog import commits
from errata.errors import UsageError
from errata.flows.age_out import age_out, age_out_lazily
from errata.model.ageing import due
from errata.model.instants import SECOND
from errata.model.stream import AgeOut, Retention
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source

LAZY = {"age_out": AgeOut.LAZY, "retention": Retention(span=10 * SECOND)}


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
    before = commits.newest(house.catalog)
    # Stable is at 21: the bucket at 10 lies further behind it than 10, and so does the one at 0.
    aged = [(each.stream, each.commit_id, each.rows) for each in age_out(house.site)]
    assert aged == [("for_ever", None, 0), ("scheduled", before + 1, 2)]
    assert moments(house, "scheduled") == [20, 21]
    assert [row["at"] for row in house.scan("scheduled")] == [NOW - 80 * SECOND, NOW - 79 * SECOND]
    assert moments(house, "scheduled", before) == [0, 10, 20, 21]
    assert len(house.scan("scheduled", as_of=before)) == 4
    assert moments(house, "lazy") == [0, 10, 20, 21]
    assert len(house.scan("lazy")) == 4
    assert len(house.scan("lazy", age_first=True)) == 2
    assert len(house.scan("for_ever", age_first=True)) == 4
    assert len(house.scan("scheduled", age_first=True)) == 2
    [commit] = commits.listed(house.catalog, since=before + 1)
    assert (commit.cause.flow, commit.stream, commit.summary["dropped_rows"]) == ("age-out", "lazy", 2)


def test_nothing_due_makes_no_commit(a_house: Builder) -> None:
    house = a_house(a_feed("scheduled", retention=Retention(span=10 * SECOND)), a_feed("lazy", **LAZY))
    before = commits.newest(house.catalog)
    assert [each.commit_id for each in age_out(house.site, ["scheduled", "lazy"])] == [None, None]
    fill(house, "scheduled", 10, 20)
    assert [each.commit_id for each in age_out(house.site)] == [None]
    assert age_out_lazily(house.site, "scheduled").commit_id is None
    assert commits.newest(house.catalog) == before + 1
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
    assert due(house.stored("few"), house.site.project.streams["few"], None) == []
