"""Which commits can be read, and that what is being read stays."""

from __future__ import annotations

import pytest

from errata.catalog import commits, declarations, pins
from errata.catalog.database import Catalog
from errata.errors import ErrataError
from errata.model.commit import Cause
from errata.model.time import DAY, SECOND, format_instant
from errata.read.output import fetch_all
from errata.read.stream_scan import StreamScanRequest, open_scan, plan_scan
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source


def fill(house: House, *batches: int) -> None:
    """A batch of one row each second."""
    for second in batches:
        house.clock.advance(SECOND)
        house.append([Source(f"{second}.csv", [Line({"at": NOW + second, "who": "a", "price": 1.0, "note": None})])])


def readable(house: House) -> list[int]:
    """The commits from 2 on that can be read."""
    found = []
    for commit in range(2, commits.newest_commit(house.catalog) + 1):
        try:
            found.append(plan_scan(house.catalog, StreamScanRequest("feed", as_of=commit)).commit_id)
        except ErrataError as error:
            assert "behind the horizon" in str(error)  # noqa: PT017 - the others can be read
    return found


def test_the_horizon_that_is_declared_now_decides(a_house: Builder) -> None:
    house = a_house(a_feed(horizon=30 * DAY))
    fill(house, 1, 2)
    house.declare(a_feed(horizon=SECOND))
    fill(house, 3)
    house.clock.advance(DAY)
    assert readable(house) == [5]
    house.declare(a_feed(horizon=30 * DAY))
    assert readable(house) == [2, 3, 4, 5, 6]
    # Of a stream that is gone, what was declared last still holds.
    house.declare(a_feed(horizon=SECOND))
    declarations.apply_changes(house.catalog, Cause("apply"), write=[], drop=["feed"], summary={})
    house.clock.advance(DAY)
    with pytest.raises(ErrataError, match="behind the horizon"):
        plan_scan(house.catalog, StreamScanRequest("feed", as_of=7))


def test_what_is_found_readable_is_pinned_already(a_house: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look and a pin behind it, files could be removed."""
    house = a_house(a_feed(horizon=100 * SECOND))
    fill(house, 1, 2, 3)
    pinned: list[int] = []
    check = commits.check_readable

    def looked(catalog: Catalog, *rest: object) -> None:
        pinned.append(pins.oldest_needed_commit(catalog))
        check(catalog, *rest)

    monkeypatch.setattr(commits, "check_readable", looked)
    for as_of in (2, "2", format_instant(NOW + SECOND)):
        with open_scan(house.site, StreamScanRequest("feed", as_of=as_of)) as found:
            assert (found.scan.commit_id, fetch_all(found.rows).num_rows) == (2, 1)
            assert pins.oldest_needed_commit(house.catalog) == 2
        assert pins.oldest_needed_commit(house.catalog) == 4
    assert pinned == [2, 2, 2]


def test_what_cannot_be_read_is_not_kept(a_house: Builder) -> None:
    house = a_house(a_feed(horizon=SECOND))
    fill(house, 1, 2)
    house.clock.advance(DAY)
    with (
        pytest.raises(ErrataError, match="behind the horizon"),
        open_scan(house.site, StreamScanRequest("feed", as_of=2)),
    ):
        pass
    assert pins.oldest_needed_commit(house.catalog) == 3


def test_a_bucket_that_is_gone_is_told_in_words(a_house: Builder) -> None:
    house = a_house(a_feed())
    rows = [{"at": NOW + second, "who": str(second), "price": second / 7, "note": None} for second in range(30_000)]
    house.append([Source("many.csv", [Line(row) for row in rows])])
    (file,) = house.files()
    house.site.warehouse.remove(file)
    with pytest.raises(ErrataError, match="a bucket cannot be read"), open_scan(house.site, StreamScanRequest("feed")):
        pass
