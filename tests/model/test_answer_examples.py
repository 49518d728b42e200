"""The worked examples of docs/model.md that are about what is published, named after their sections."""

from __future__ import annotations

import pyarrow as pa

from errata.archive.result_rows import result_schema, rows_schema
from errata.evaluate.settle import Settled, Told, settle
from errata.language.lineage import Axis, Region
from errata.model.columns import ColumnType, Kind
from errata.model.interval import HIGHEST, LOWEST, Interval
from errata.model.pattern import Pattern
from errata.model.results import OP, RUN, VE, VS, shaped
from errata.revise.amend import Amending, amend
from fixtures.folding import answer_at, fold

COUNTS = shaped([("symbol", ColumnType(Kind.STRING), False), ("n", ColumnType(Kind.BIGINT), False)], ["symbol"],
                Pattern.KEYED, timed=False)  # fmt: skip


def count(n: int, vs: int, ve: int = HIGHEST) -> dict[str, object]:
    return {"symbol": "IBM", "n": n, VS: vs, VE: ve}


def settled(new: list[dict[str, object]], before: pa.Table | None, told: Told) -> Settled:
    whole = result_schema(COUNTS)
    rows = pa.Table.from_pylist(new, whole.remove(whole.get_field_index(RUN)))
    return settle(rows, whole.empty_table() if before is None else before, told, COUNTS)


def told(done: Settled) -> list[tuple[object, ...]]:
    return [(each[OP], each["n"], each[VS], each[VE]) for each in done.feed.to_pylist()]


def test_how_far_a_query_is_answered() -> None:
    first = settled([count(1, 5, 15)], None, Told(LOWEST, 5, 1, covering=True))
    assert told(first) == [("insert", 1, 5, 15)]
    before = pa.concat_tables([first.open, first.tip])
    second = settled([count(2, 5, 7), count(3, 7, 15)], before, Told(5, 7, 2, covering=True))
    assert told(second) == [("replace", 2, 5, 7), ("insert", 3, 7, 15)]


def test_changes_of_results() -> None:
    steps = [
        ([count(1, 10)], Told(LOWEST, 11, 1, covering=True), [("insert", 1, 10, HIGHEST)]),
        ([count(1, 10, 12), count(2, 12)], Told(11, 15, 2, covering=True), [("insert", 2, 12, HIGHEST)]),
        ([count(2, 12, 20)], Told(15, 25, 3, covering=True), [("replace", 2, 12, 20)]),
    ]
    before, held = None, {}
    for new, step, expected in steps:
        done = settled(new, before, step)
        assert told(done) == expected
        before, held = pa.concat_tables([done.open, done.tip]), fold(done.feed, COUNTS.key, held)
    assert [answer_at(held, at) for at in (9, 11, 12, 19, 20)] == [[], [(1, "IBM")], [(2, "IBM")], [(2, "IBM")], []]


def test_corrections_of_results() -> None:
    # The row at 12 is deleted, and of windows only the one with the corrected row is looked at.
    published = pa.Table.from_pylist([count(1, 10, 12) | {RUN: 1}, count(2, 12) | {RUN: 2}], result_schema(COUNTS))
    schema = rows_schema(COUNTS)
    how = Amending(3, 15, covering=True, axis=Axis.INSTANT)
    region = Region(Axis.INSTANT, Interval(12), {"symbol": "IBM"})
    done = amend(pa.Table.from_pylist([count(1, 10)], schema), published, [region], how, COUNTS)
    feed = [(each[OP], each["n"], each[VS], each[VE], each["_old_n"]) for each in done.feed.to_pylist()]
    assert feed == [("replace", 1, 10, HIGHEST, 1), ("delete", None, 12, 12, 2)]
    assert [(each[VS], each[VE]) for each in done.masks.to_pylist()] == [(10, 12), (12, HIGHEST)]
    sums = pa.Table.from_pylist([count(6, 4) | {RUN: 1}, count(7, 8) | {RUN: 1}], result_schema(COUNTS))
    window = Region(Axis.START, Interval(4, 5))
    once = Amending(2, 9, covering=False, axis=Axis.START)
    wrong = amend(pa.Table.from_pylist([count(11, 4)], schema), sums, [window], once, COUNTS)
    assert [(each["_old_n"], each["n"], each[VS]) for each in wrong.feed.to_pylist()] == [(6, 11, 4)]
    same = amend(pa.Table.from_pylist([count(6, 4)], schema), sums, [window], once, COUNTS)
    assert (same.feed.num_rows, same.masks.num_rows, same.changed, same.compared) == (0, 0, 0, 1)
