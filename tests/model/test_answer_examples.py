"""The worked examples of docs/model.md that are about what is published, named after their sections."""

from __future__ import annotations

import pyarrow as pa

from errata.archive.result_rows import result_schema
from errata.evaluate.settle import Settled, Told, settle
from errata.model.columns import ColumnType, Kind
from errata.model.interval import HIGHEST, LOWEST
from errata.model.pattern import Pattern
from errata.model.results import OP, RUN, VE, VS, shaped
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
