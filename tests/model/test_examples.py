"""The worked examples of docs/model.md, one test for each section and named after it."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import pytest

from errata.errors import RefusedError
from errata.model.batch import Op, aged_out_reason, key_taken_reason, no_such_row_reason, old_value_reason
from errata.model.bucket import Bucket, Groups, Role, prune_buckets
from errata.model.columns import Column, ColumnType
from errata.model.horizon import aged_buckets, new_aged_to, retention_start
from errata.model.stream import DuplicatePolicy, Retention, Stream
from errata.model.time import Interval
from fixtures.oracle.feed import Adjust, Event, Insert, Stable, answer_at, frozen, reconstitute
from fixtures.oracle.history import History, Record
from fixtures.oracle.horizon import readable_commits
from fixtures.oracle.revision import Revision, Row, corrected

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
    tests = "".join(each.read_text(encoding="utf-8") for each in Path(__file__).parent.glob("test_*examples.py"))
    assert [name for name in names if f"def {name}(" not in tests] == []


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
    with pytest.raises(RefusedError, match="an insert at 9 behind stable"):
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
    history.revise()
    assert times(history.scan()) == [14, 15, 20]


def test_revisions_are_not_elements(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(18), quote(20)], now=0)
    history.append([Record({"time": 18, "symbol": "IBM"}, Op.DELETE)], now=0)
    assert history.stable() == 15
    assert [(r.number, r.op) for r in history.pending()] == [(1, Op.DELETE)]
    assert times(history.scan()) == [18, 20]
    history.revise()
    assert times(history.scan()) == [20]


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
    assert len(history.revise().outcomes) == 1
    assert history.scan(Interval(3, 4)) == []
    assert history.scan(Interval(9, 10)) == [{"id": "a", "day": 9, "amount": 1}]
    history.append([Record({"id": "b"}, Op.REPLACE, old={"id": "a"})], now=0)
    [refused] = history.revise().outcomes
    assert (refused.revision.number, refused.reason) == (2, key_taken_reason())
    assert [row["id"] for row in history.scan()] == ["b", "a"]


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
    strict, lenient = History(quotes), History(replace(quotes, on_duplicate=DuplicatePolicy.REPLACE))
    for history in (strict, lenient):
        history.append([quote(20, price=1)], now=0)
    assert strict.append(batch, now=0).counts.quarantined == 2
    counts = lenient.append(batch, now=0).counts
    assert (counts.replaced, counts.pending, counts.quarantined) == (1, 1, 0)
    assert prices(strict.scan()) == prices(lenient.scan()) == [1]
    lenient.revise()
    assert prices(lenient.scan()) == [3]
    assert lenient.append([quote(20, price=3)], now=0).counts.dropped == 1


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


def replacement(price: float, time: int = 10, symbol: str = "IBM") -> Record:
    return Record({"time": time, "symbol": symbol, "price": price}, Op.REPLACE)


def test_applying(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(10, price=100)], now=0)
    history.append([replacement(101)], now=0)
    assert history.revise().commit == 3
    assert [prices(history.scan(commit=commit)) for commit in (1, 2, 3)] == [[100], [100], [101]]
    assert history.pending() == []
    assert (history.revise().commit, history.commit) == (None, 3)


def test_what_becomes_of_each_revision(quotes: Stream) -> None:
    history = History(quotes)
    history.append([quote(10, price=100), quote(20)], now=0)
    changes = [
        quote(11),
        quote(10, price=100),
        replacement(101),
        Record({"time": 10, "symbol": "IBM", "price": 102}, Op.REPLACE, old={"price": 100}),
        Record({"time": 12, "symbol": "SAP"}, Op.DELETE),
        Record({"time": 18, "symbol": "SAP"}, Op.DELETE),
    ]
    history.append(changes, now=0)
    assert history.stable() == 15
    outcomes = history.revise().outcomes
    assert [str(each.outcome) for each in outcomes] == [
        "inserted",
        "dropped",
        "replaced",
        "refused",
        "refused",
        "waiting",
    ]
    assert [each.reason for each in outcomes[3:5]] == [old_value_reason("price", "100", "101"), no_such_row_reason()]
    assert prices(history.scan(Interval(end=12))) == [101, 100]


def test_waiting(quotes: Stream) -> None:
    def early() -> History:
        history = History(quotes)
        history.append([quote(10), quote(20)], now=0)
        history.append([replacement(7, time=18, symbol="SAP"), replacement(8)], now=0)
        assert history.stable() == 15
        assert [str(each.outcome) for each in history.revise().outcomes] == ["waiting", "replaced"]
        assert [(each.number, each.key) for each in history.pending()] == [(3, (18, "SAP"))]
        assert history.revise().commit is None
        return history

    history = early()
    history.append([quote(18, "SAP")], now=0)
    history.revise()
    assert prices(history.scan(groups=[("SAP",)])) == [7]
    history = early()
    history.append([quote(24)], now=0)
    assert [each.reason for each in history.revise().outcomes] == [no_such_row_reason()]


def test_undo(orders: Stream) -> None:
    def amounts(history: History) -> dict[object, object]:
        return {row["id"]: row["amount"] for row in history.scan()}

    def change(order_id: str, amount: int) -> Record:
        return Record({"id": order_id, "amount": amount}, Op.REPLACE)

    def two_days() -> History:
        history = History(orders)
        history.append([order("a", 1), order("b", 2)], now=0, batch_id="sunday")
        history.append([change("a", 5), change("b", 5), order("c", 3)], now=0, batch_id="monday")
        history.append([change("b", 7)], now=0, batch_id="tuesday")
        return history

    history = two_days()
    with pytest.raises(RefusedError, match="changed since") as refused:
        history.undo("monday")
    assert refused.value.where == "('b',)"
    history.undo("monday", keep_later=True)
    assert amounts(history) == {"a": 1, "b": 7}
    history = two_days()
    history.undo("tuesday")
    assert amounts(history) == {"a": 5, "b": 5, "c": 1}
    history.undo("monday")
    assert history.scan() == history.scan(commit=1)
    assert history.undo("monday").commit == history.commit


def test_history_of_a_row(orders: Stream) -> None:
    history = History(orders)
    history.append([order("a", 3)], now=0, batch_id="b1")
    history.append([Record({"id": "e"}, Op.REPLACE, old={"id": "a"})], now=0, batch_id="b2")
    history.append([Record({"id": "e", "amount": 5}, Op.REPLACE)], now=0, batch_id="b3")
    history.revise()
    versions = history.versions(("a",))
    assert history.versions(("e",)) == versions
    assert [(each.commit, each.revision, each.op, each.batch_id) for each in versions] == [
        (1, None, Op.INSERT, "b1"),
        (4, 1, Op.REPLACE, "b2"),
        (4, 2, Op.REPLACE, "b3"),
    ]
    assert versions[-1].values == {"id": "e", "day": 3, "amount": 5}


def test_scans(quotes: Stream, orders: Stream) -> None:
    history = History(quotes)
    history.append([quote(time, symbol) for time in (10, 20) for symbol in ("IBM", "SAP")], now=0)
    before = history.scan(Interval(10, 20), groups=[("SAP",)])
    assert [(row["time"], row["symbol"]) for row in before] == [(10, "SAP")]
    history.append([quote(30)], now=0)
    history.age_out(20)
    assert history.scan(Interval(10, 20)) == []
    assert history.scan(Interval(10, 20), groups=[("SAP",)], commit=1) == before
    history = History(orders)
    history.append([order("a", 10)], now=0)
    history.append([Record({"id": "a"}, Op.DELETE)], now=0)
    history.revise()
    history.append([order("a", 20)], now=0)
    assert [row["day"] for row in history.scan()] == [20]
    assert [row["day"] for row in history.scan(revisions_up_to=0)] == [10]


def test_ageing(quotes: Stream) -> None:
    kept = replace(quotes, retention=Retention(span=60))
    assert kept.retention is not None
    before = retention_start(kept.retention, 100, [])
    assert before == 40
    dropped = aged_buckets([bucket(1, 0, 39), bucket(2, 30, 40)], before)
    assert ([gone.bucket_id for gone in dropped], new_aged_to(dropped, None)) == ([1], 40)
    history = History(kept)
    history.append([quote(35, "SAP"), quote(38), quote(39), quote(40), quote(105)], now=0)
    history.append([Record({"time": 50, "symbol": "IBM"}, Op.REPLACE, old={"time": 38}), quote(39, "SAP")], now=0)
    history.append([quote(39, "DEC")], now=0)
    history.revise()
    history.age_out(40)
    assert (times(history.scan()), history.stable()) == ([40, 50, 105], 100)
    assert times(history.scan(commit=4)) == [35, 39, 39, 39, 40, 50, 105]
    history.append([quote(39)], now=0)
    assert [each.reason for each in history.revise().outcomes] == [aged_out_reason()]


def test_buckets() -> None:
    buckets = [bucket(1, 0, 9), bucket(2, 10, 19)]
    assert [b.bucket_id for b in prune_buckets(buckets, Interval(5, 10), None)] == [1]
    assert [b.bucket_id for b in prune_buckets(buckets, Interval(9, 11), None)] == [1, 2]


def test_the_same_batch_twice(quotes: Stream) -> None:
    history = History(quotes)
    first = history.append([quote(10)], now=0, batch_id="monday")
    assert history.append([quote(10)], now=99, batch_id="monday") == first
    assert (history.commit, times(history.scan())) == (1, [10])
    with pytest.raises(RefusedError, match="other content"):
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
    history.append([replacement(101), replacement(102)], now=0)
    history.revise()
    assert [prices(history.scan(commit=3, revisions_up_to=n)) for n in (0, 1, 2)] == [[100], [101], [102]]
    with pytest.raises(RefusedError, match="revisions up to 3"):
        history.scan(revisions_up_to=3)


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
