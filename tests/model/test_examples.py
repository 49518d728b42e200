"""The worked examples of docs/model.md, one test for each section and named after it."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import pytest

from errata.errors import Refused
from errata.model.ageing import due
from errata.model.bucket import Bucket, Groups, Role, prune
from errata.model.columns import Column, ColumnType
from errata.model.feed import Adjust, Event, Insert, Stable, answer_at, frozen, reconstitute
from errata.model.history import History, Record
from errata.model.horizon import readable_commits
from errata.model.interval import Interval
from errata.model.revision import Op, Revision, Row, corrected
from errata.model.stream import OnDuplicate, Retention, Stream

PAGE = Path(__file__).parents[2] / "docs" / "model.md"


def quote(time: int, symbol: str | None = "IBM", price: float = 100.0) -> Record:
    return Record({"time": time, "symbol": symbol, "price": price})


def order(order_id: str, day: int, amount: int = 1) -> Record:
    return Record({"id": order_id, "day": day, "amount": amount})


def times(rows: list[Row]) -> list[object]:
    return [row["time"] for row in rows]


def prices(rows: list[Row]) -> list[object]:
    return [row["price"] for row in rows]


def bucket(bucket_id: int, vs_min: int, vs_max: int) -> Bucket:
    return Bucket(bucket_id, Role.BASE, "p", 10, 1, vs_min, vs_max, Groups(), "", "b", 1, None, None)


def test_every_section_has_its_example() -> None:
    sections = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    names = ["test_" + re.sub(r"\W+", "_", section.lower()).strip("_") for section in sections]
    assert len(names) > 20
    assert [name for name in names if name not in globals()] == []


def test_two_axes(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(10)], now=0)
    history.append([quote(11)], now=0)
    assert [times(history.scan(commit=commit)) for commit in (0, 1, 2)] == [[], [10], [10, 11]]


def test_the_answer_of_a_query(quotes: Stream, orders: Stream) -> None:
    quoted, ordered = History(quotes), History(orders)
    quoted.append([quote(25)], now=0)
    ordered.append([order("a", 12)], now=0)
    stables = [point for history in (quoted, ordered) if (point := history.stable()) is not None]
    assert stables == [20, 12]
    frontier = min(stables)
    assert frontier == 12
    ordered.append([order("b", frontier), order("c", frontier - 1)], now=0)
    assert [row["id"] for row in ordered.scan(Interval(end=frontier + 1))] == ["a", "b"]
    assert [revision.key for revision in ordered.pending()] == [("c",)]


def test_everything_is_an_event_with_a_lifetime() -> None:
    table = reconstitute([Insert({"price": 100}, 10, 15)])
    assert [bool(answer_at(table, moment)) for moment in (9, 10, 14, 15)] == [False, True, True, False]


def test_a_feed_is_a_sequence_of_elements() -> None:
    a = {"v": "A"}
    in_steps = reconstitute([Insert(a, 6, 20), Adjust(a, 6, 20, 30), Adjust(a, 6, 30, 25)])
    assert in_steps == reconstitute([Insert(a, 6, 25)]) == Counter([Event(frozen(a), 6, 25)])


def test_stable_freezes() -> None:
    assert reconstitute([Stable(10), Insert({"v": "A"}, 10)])
    with pytest.raises(Refused, match="an insert at 9 behind stable"):
        reconstitute([Stable(10), Insert({"v": "A"}, 9)])


def test_the_stable_point_of_a_stream(quotes: Stream) -> None:
    history = History(quotes)
    assert history.stable() is None
    assert history.append([quote(7), quote(20)], now=0).counts.pending == 0
    assert history.stable() == 15
    history.append([quote(16)], now=0)
    assert history.stable() == 15


def test_late_rows(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(20)], now=0)
    taken = history.append([quote(15), quote(14)], now=0)
    assert (taken.counts.appended, taken.counts.pending) == (1, 1)
    assert times(history.scan()) == [15, 20]
    assert [(r.number, r.op, r.key) for r in history.pending()] == [(1, Op.INSERT, (14, "IBM"))]


def test_revisions_are_not_elements(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(18), quote(20)], now=0)
    history.append([Record({"time": 18, "symbol": "IBM"}, Op.DELETE)], now=0)
    assert history.stable() == 15
    assert [(r.number, r.op) for r in history.pending()] == [(1, Op.DELETE)]
    assert times(history.scan()) == [18, 20]
    assert times(history.scan(revisions_up_to=1)) == [20]


def test_a_row_from_the_far_future(quotes: Stream) -> None:
    timed = replace(quotes, columns=(Column("time", ColumnType.parse("timestamp")), *quotes.columns[1:]), max_ahead=50)
    history = History(timed)
    taken = history.append([quote(1050), quote(1051)], now=1000)
    assert [record.values["time"] for record, _ in taken.quarantined] == [1051]
    assert times(history.scan()) == [1050]
    assert history.stable() == 1045


def test_keys(orders: Stream) -> None:
    history = History(orders)
    history.append([order("a", 3), order("b", 5)], now=0)
    history.append([Record({"id": "a", "day": 9}, Op.REPLACE)], now=0)
    assert history.scan(Interval(3, 4), revisions_up_to=1) == []
    assert history.scan(Interval(9, 10), revisions_up_to=1) == [{"id": "a", "day": 9, "amount": 1}]
    history.append([Record({"id": "b"}, Op.REPLACE, old={"id": "a"})], now=0)
    result = corrected(orders, history.states[-1].rows, history.pending())
    assert [revision.number for revision in result.refused] == [2]
    assert sorted(str(row["id"]) for row in result.rows) == ["a", "b"]


def test_null_nan_and_zero(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(20, price=math.nan), quote(21, price=0.0)], now=0)
    taken = history.append([quote(20, price=float("nan")), quote(21, price=-0.0), quote(22, symbol=None)], now=0)
    assert taken.counts.dropped == 2
    assert [reason for _, reason in taken.quarantined] == ["NULL in key column symbol"]


def test_taking_a_batch_in(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(20, price=1), quote(21, price=2)], now=0)
    batch = [quote(22), quote(3), quote(20, price=1), quote(21, price=9), quote(23, symbol=None)]
    counts = history.append(batch, now=0).counts
    assert (counts.appended, counts.pending, counts.dropped, counts.replaced, counts.quarantined) == (1, 1, 1, 0, 2)
    assert counts.read == 5
    assert history.append([], now=0).commit == history.commit == 3


def test_duplicates(quotes: Stream) -> None:
    batch = [quote(20, price=2), quote(20, price=3)]
    strict, lenient = History(quotes), History(replace(quotes, on_duplicate=OnDuplicate.REPLACE))
    for history in (strict, lenient):
        history.append([quote(20, price=1)], now=0)
    assert strict.append(batch, now=0).counts.quarantined == 2
    counts = lenient.append(batch, now=0).counts
    assert (counts.replaced, counts.pending, counts.quarantined) == (1, 1, 0)
    assert prices(strict.scan()) == prices(lenient.scan()) == [1]
    assert prices(lenient.scan(revisions_up_to=1)) == [3]


def test_the_order_of_a_mixed_batch(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(20)], now=0)
    deletion = Record({"time": 20, "symbol": "IBM"}, Op.DELETE, seq=2)
    replacement = Record({"time": 20, "symbol": "IBM", "price": 5}, Op.REPLACE, seq=1)
    history.append([deletion, replacement, quote(3)], now=0)
    assert [(r.number, r.op) for r in history.pending()] == [(1, Op.INSERT), (2, Op.REPLACE), (3, Op.DELETE)]


def test_corrections(quotes: Stream) -> None:
    row: Row = {"time": 10, "symbol": "IBM", "price": 100}
    revisions = [Revision(n, Op.REPLACE, (10, "IBM"), {"price": 100 + n}) for n in (1, 2)]
    for handed_over in permutations(revisions):
        assert corrected(quotes, [row], handed_over).rows == ({"time": 10, "symbol": "IBM", "price": 102},)


def test_scans(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(time, symbol) for time in (10, 20) for symbol in ("IBM", "SAP")], now=0)
    before = history.scan(Interval(10, 20), groups=[("SAP",)])
    assert [(row["time"], row["symbol"]) for row in before] == [(10, "SAP")]
    history.age_out([[(10, "IBM"), (10, "SAP")]])
    assert history.scan(Interval(10, 20)) == []
    assert history.scan(Interval(10, 20), groups=[("SAP",)], commit=1) == before


def test_ageing(quotes: Stream) -> None:
    kept = replace(quotes, retention=Retention(span=60))
    dropped = due([bucket(1, 0, 39), bucket(2, 30, 40)], kept, stable=100)
    assert [gone.bucket_id for gone in dropped] == [1]
    history = History(kept)
    history.append([quote(39), quote(40), quote(105)], now=0)
    history.age_out([[(39, "IBM")]])
    assert (times(history.scan()), history.stable()) == ([40, 105], 100)
    assert times(history.scan(commit=1)) == [39, 40, 105]


def test_buckets() -> None:
    buckets = [bucket(1, 0, 9), bucket(2, 10, 19)]
    assert [b.bucket_id for b in prune(buckets, Interval(5, 10), None)] == [1]
    assert [b.bucket_id for b in prune(buckets, Interval(9, 11), None)] == [1, 2]


def test_the_same_batch_twice(quotes: Stream) -> None:
    history = History(quotes)
    first = history.append([quote(10)], now=0, batch_id="monday")
    assert history.append([quote(10)], now=99, batch_id="monday") == first
    assert (history.commit, times(history.scan())) == (1, [10])
    with pytest.raises(Refused, match="other content"):
        history.append([quote(11)], now=0, batch_id="monday")


def test_commits_become_visible_in_order(quotes: Stream) -> None:
    history = History(quotes)
    seen = []
    for time in (10, 11, 12):
        history.append([quote(time)], now=0)
        seen.append((history.commit, times(history.scan(commit=min(2, history.commit)))))
    assert seen == [(1, [10]), (2, [10, 11]), (3, [10, 11])]


def test_the_horizon() -> None:
    assert readable_commits({1: 0, 2: 10, 3: 95}, now=100, horizon=10) == [2, 3]


def test_positions(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(10, price=100)], now=0)
    key = {"time": 10, "symbol": "IBM"}
    history.append([Record({**key, "price": price}, Op.REPLACE) for price in (101, 102)], now=0)
    assert [prices(history.scan(commit=2, revisions_up_to=n)) for n in (0, 1, 2)] == [[100], [101], [102]]


def lifetime(a: int, b: int, t1: int, t2: int) -> tuple[int, int] | None:
    """When the rows at a and b of two sliding windows join."""
    vs, ve = max(a, b), min(a + t1, b + t2)
    return (vs, ve) if vs < ve else None


def test_lifetimes_of_joins() -> None:
    assert lifetime(10, 12, 5, 3) == (12, 15)
    assert [b for b in range(30) if lifetime(10, b, 5, 3)] == list(range(8, 15))
    for a, b, moment in product([10], range(30), range(30)):
        left = reconstitute([Insert({"a": a}, a, a + 5)])
        right = reconstitute([Insert({"b": b}, b, b + 3)])
        both = bool(answer_at(left, moment)) and bool(answer_at(right, moment))
        joined = lifetime(a, b, 5, 3)
        assert both == (joined is not None and joined[0] <= moment < joined[1])


def test_results_are_compared_in_normal_form() -> None:
    def said(*lifetimes: tuple[int, int]) -> list[bool]:
        table = reconstitute([Insert({"price": 100}, vs, ve) for vs, ve in lifetimes])
        return [bool(answer_at(table, moment)) for moment in range(12)]

    assert said((1, 5), (5, 9)) == said((1, 9))
    assert said((1, 4), (5, 9)) != said((1, 9))


def test_windows_negation_relations() -> None:
    first = reconstitute([Insert({"vs": vs}, vs, vs + 10) for vs in (1, 4, 6)])
    second = reconstitute([Insert({"vs": 5}, 5, 15)])

    def negation(moment: int) -> list[int]:
        live = sorted(int(str(dict(payload)["vs"])) for payload in answer_at(first, moment))
        return live[min(answer_at(second, moment).total(), len(live)) :]

    assert [negation(moment) for moment in (4, 6, 11, 14, 15)] == [[1, 4], [4, 6], [6], [], [6]]
