"""How far a stream is final."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from errata.archive.revisions.apply import apply_revisions
from errata.errors import UsageError
from errata.model.batch import Op
from errata.model.stream import RevisionPolicy
from errata.model.time import HOUR, LOWEST, format_instant
from errata.read.watch import stream_finality
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source

SECOND = 1_000_000


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Streams of whole numbers with a slack of 5: of a key that tells the place, and of one that does not."""
    builder = Builder(tmp_path)
    ignoring = a_feed("ignoring", "bigint", on_revision=RevisionPolicy.IGNORE)
    yield builder(a_feed("feed", "bigint", slack=5), a_feed("moved", "bigint", key=("who",), slack=5), ignoring)
    builder.close()


def row(at: int | None, who: str, op: Op | None = None, **old: object) -> Line:
    values = {"at": at, "who": who, "price": 1.0, "note": None}
    return Line({**values, **{f"_old_{name}": value for name, value in old.items()}}, op)


def take(house: House, *lines: Line, stream: str = "feed") -> None:
    house.append([Source(f"{stream}-{lines[0].values['at']}-{len(lines)}-{lines[0].op}.jsonl", list(lines))], stream)


def test_before_anything_has_come(house: House) -> None:
    found = stream_finality(house.site, "feed")
    assert (found.stable, found.pending_before(10**9)) == (None, 0)
    assert not found.is_final(LOWEST + 1)
    assert found.to_json == {"stream": "feed", "stable": None}


def test_final_is_what_no_late_row_and_no_correction_can_change(house: House) -> None:
    take(house, row(1, "a"), row(20, "b"))
    found = stream_finality(house.site, "feed")
    assert found.stable == 15
    assert found.is_final(15), "rows before it are late, one that is at it is not before it"
    assert not found.is_final(16)

    take(house, row(1, "a", Op.DELETE), row(7, "c"), row(18, "x", Op.DELETE))
    found = stream_finality(house.site, "feed")
    assert [found.pending_before(at) for at in (1, 2, 7, 8, 18, 19)] == [0, 1, 1, 2, 2, 3]
    assert found.is_final(1)
    assert not found.is_final(2)

    apply_revisions(house.site)
    found = stream_finality(house.site, "feed")
    assert found.is_final(15)
    assert found.pending_before(19) == 1, "one waits for its row, which would come later"


def test_a_row_that_is_moved_concerns_both_places(house: House) -> None:
    take(house, row(3, "a"), row(20, "b"), stream="moved")
    take(house, row(9, "a", Op.REPLACE), stream="moved")
    assert stream_finality(house.site, "moved").pending_before(LOWEST + 1) == 1, "it does not say where the row was"
    apply_revisions(house.site)
    assert stream_finality(house.site, "moved").is_final(15)


def test_where_corrections_are_ignored_they_change_nothing(house: House) -> None:
    take(house, row(1, "a"), row(20, "b"), stream="ignoring")
    take(house, row(1, "a", Op.DELETE), stream="ignoring")
    found = stream_finality(house.site, "ignoring")
    assert (found.stable, found.is_final(20)) == (20, True)


def test_times_are_told_as_they_are_written(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    house = builder(a_feed(slack=SECOND))
    take(house, row(NOW - HOUR, "a"), row(NOW - SECOND, "b"))
    found = stream_finality(house.site, "feed")
    assert found.to_json == {"stream": "feed", "stable": format_instant(NOW - 2 * SECOND)}
    assert found.is_final(found.parse_time(format_instant(NOW - 2 * SECOND)))
    assert not found.is_final(found.parse_time(format_instant(NOW - SECOND)))
    with pytest.raises(UsageError, match="not a date"):
        found.parse_time("yesterday")
    builder.close()


def test_whole_numbers_and_unknown_streams(house: House) -> None:
    found = stream_finality(house.site, "feed")
    assert found.parse_time(" 12 ") == 12
    with pytest.raises(UsageError, match="'noon' is no whole number"):
        found.parse_time("noon")
    with pytest.raises(UsageError, match="unknown stream 'fed'"):
        stream_finality(house.site, "fed")
