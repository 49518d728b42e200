"""The worked examples of docs/model.md that are about what is published, named after their sections."""

from __future__ import annotations

import pyarrow as pa

from errata.answer.publication import RowsByRole, StepContext, settle_results
from errata.answer.result_diff import DiffContext, diff_results
from errata.archive.schemas import computed_schema, result_schema
from errata.model.columns import ColumnType, TypeKind
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import EVALUATION, OP, VE, VS, UpdatePattern, make_shape
from errata.model.time import HIGHEST, LOWEST, Interval
from fixtures.changelogs import answer_at, fold

COUNTS = make_shape(
    [("symbol", ColumnType(TypeKind.STRING), False), ("n", ColumnType(TypeKind.BIGINT), False)],
    ["symbol"],
    UpdatePattern.KEYED,
    timed=False,
)


def count(n: int, vs: int, ve: int = HIGHEST) -> dict[str, object]:
    return {"symbol": "IBM", "n": n, VS: vs, VE: ve}


def settled(new: list[dict[str, object]], before: pa.Table | None, told: StepContext) -> RowsByRole:
    whole = result_schema(COUNTS)
    rows = pa.Table.from_pylist(new, whole.remove(whole.get_field_index(EVALUATION)))
    return settle_results(rows, whole.empty_table() if before is None else before, told, COUNTS)


def told(done: RowsByRole) -> list[tuple[object, ...]]:
    return [(each[OP], each["n"], each[VS], each[VE]) for each in done.feed.to_pylist()]


def test_how_far_a_query_is_answered() -> None:
    first = settled([count(1, 5, 15)], None, StepContext(LOWEST, 5, 1, covering=True))
    assert told(first) == [("insert", 1, 5, 15)]
    before = pa.concat_tables([first.open, first.tip])
    second = settled([count(2, 5, 7), count(3, 7, 15)], before, StepContext(5, 7, 2, covering=True))
    assert told(second) == [("replace", 2, 5, 7), ("insert", 3, 7, 15)]


def test_changes_of_results() -> None:
    steps = [
        ([count(1, 10)], StepContext(LOWEST, 11, 1, covering=True), [("insert", 1, 10, HIGHEST)]),
        ([count(1, 10, 12), count(2, 12)], StepContext(11, 15, 2, covering=True), [("insert", 2, 12, HIGHEST)]),
        ([count(2, 12, 20)], StepContext(15, 25, 3, covering=True), [("replace", 2, 12, 20)]),
    ]
    before, held = None, {}
    for new, step, expected in steps:
        done = settled(new, before, step)
        assert told(done) == expected
        before, held = pa.concat_tables([done.open, done.tip]), fold(done.feed, COUNTS.key, held)
    assert [answer_at(held, at) for at in (9, 11, 12, 19, 20)] == [[], [(1, "IBM")], [(2, "IBM")], [(2, "IBM")], []]


def test_corrections_of_results() -> None:
    # The row at 12 is deleted, and of windows only the one with the corrected row is looked at.
    published = pa.Table.from_pylist(
        [count(1, 10, 12) | {EVALUATION: 1}, count(2, 12) | {EVALUATION: 2}], result_schema(COUNTS)
    )
    schema = computed_schema(COUNTS)
    how = DiffContext(3, 15, covering=True, axis=ExtentAxis.INSTANT)
    region = Extent(ExtentAxis.INSTANT, Interval(12), {"symbol": "IBM"})
    done = diff_results(pa.Table.from_pylist([count(1, 10)], schema), published, [region], how, COUNTS)
    feed = [(each[OP], each["n"], each[VS], each[VE], each["_old_n"]) for each in done.feed.to_pylist()]
    assert feed == [("replace", 1, 10, HIGHEST, 1), ("delete", None, 12, 12, 2)]
    assert [(each[VS], each[VE]) for each in done.masks.to_pylist()] == [(10, 12), (12, HIGHEST)]
    sums = pa.Table.from_pylist([count(6, 4) | {EVALUATION: 1}, count(7, 8) | {EVALUATION: 1}], result_schema(COUNTS))
    window = Extent(ExtentAxis.START, Interval(4, 5))
    once = DiffContext(2, 9, covering=False, axis=ExtentAxis.START)
    wrong = diff_results(pa.Table.from_pylist([count(11, 4)], schema), sums, [window], once, COUNTS)
    assert [(each["_old_n"], each["n"], each[VS]) for each in wrong.feed.to_pylist()] == [(6, 11, 4)]
    same = diff_results(pa.Table.from_pylist([count(6, 4)], schema), sums, [window], once, COUNTS)
    assert (same.feed.num_rows, same.masks.num_rows, same.changed, same.compared) == (0, 0, 0, 1)
