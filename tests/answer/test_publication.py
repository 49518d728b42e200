"""Laying new rows against published ones: against a slow oracle, over all types, and for a reader of the changes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.answer.publication import RowsByRole, StepContext, settle_results
from errata.answer.row_comparison import same_values, sort_arrays
from errata.archive.schemas import feed_schema, result_schema
from errata.errors import ErrataError
from errata.model.columns import TypeKind
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ArchiveColumn, ResultShape
from errata.model.time import HIGHEST, LOWEST
from fixtures.chance import seeds
from fixtures.changelogs import Results, answer_at, as_they_stand, counting, fold, listed, normal_form, plain
from fixtures.plans.choices import Choices, FromHypothesis, FromRandom
from fixtures.result_rows import TYPES, VALUES, Rows, shape_of, table

PRICES = shape_of([TypeKind.STRING], [TypeKind.INT])


def price(key: str, value: int | None, vs: int, ve: int = HIGHEST, run: int | None = None) -> dict[str, Any]:
    row = {"key": key, "v0": value, VS: vs, VE: ve}
    return row if run is None else {**row, EVALUATION: run}


def settled(new: Rows, before: Rows, told: StepContext, shape: ResultShape = PRICES) -> RowsByRole:
    done = settle_results(table(new, shape), table(before, shape, run=True), told, shape)
    for part in (done.base, done.open, done.tip):
        assert part.schema.equals(result_schema(shape))
    assert done.feed.schema.equals(feed_schema(shape))
    return done


def changes(done: RowsByRole) -> list[tuple[Any, ...]]:
    return [
        (row[OP], row["key"], row["v0"], row[VS], row[VE], row["_old_v0"], row[OLD_VE]) for row in done.feed.to_pylist()
    ]


@dataclass
class Reader:
    """One who follows a query: what the query has published, and what the reader has made of the records alone."""

    shape: ResultShape
    base: Rows = field(default_factory=list)
    before: Rows = field(default_factory=list)
    held: Results = field(default_factory=dict)

    @property
    def published(self) -> Rows:
        return self.base + self.before

    def take(self, done: RowsByRole, *, rows_too: bool = False, run: int = 0) -> None:
        said = fold(self.published, self.shape.key)
        self.base = self.base + done.base.to_pylist()
        self.before = done.open.to_pylist() + done.tip.to_pylist()
        own = [row for row in self.published if rows_too and row[EVALUATION] == run]
        self.held = fold(own, self.shape.key, fold(done.feed, self.shape.key, self.held))
        from_rows = fold(own, self.shape.key, fold(done.feed, self.shape.key, said))
        self.agree = [self.held, from_rows]

    def check(self, until: int) -> None:
        for instant in range(-3, until + 1):
            for results in self.agree:
                assert answer_at(results, instant) == counting(self.published, instant), instant


def oracle(new: Rows, before: Rows, told: StepContext) -> list[Any]:
    """The rows that there have to be: those of before up to `since`, then the new ones, in normal form."""
    cut = [{**row, VE: min(row[VE], told.since)} for row in before if row[VS] < told.since]
    begun = [{**row, VS: max(row[VS], told.since)} for row in new if row[VS] <= told.until]
    return normal_form(cut + begun)


def segments(choices: Choices, shape: ResultShape, keys: Rows, low: int, high: int) -> Rows:
    """For each key, now and then a value, from about `low` to `high` and on."""
    rows = []
    payload = [each for each in shape.columns if not each.key]
    for key in keys:
        at = choices.number(low - 2, low + 2)
        while at <= high + 3 and choices.number(0, 5):
            end = choices.one([at + 1, at + 2, at + 4, HIGHEST])
            if choices.number(0, 3):
                values = {each.name: choices.one(VALUES[each.type.kind][:3]) for each in payload}
                rows.append({**key, **values, VS: at, VE: end})
            at = end
    return rows


def different_keys(choices: Choices, shape: ResultShape) -> Rows:
    found = {}
    for _ in range(3):
        key = {each.name: choices.one(VALUES[each.type.kind]) for each in shape.columns if each.key}
        found[tuple(plain(value) for value in key.values())] = key
    return list(found.values())


def check_roles(done: RowsByRole, until: int) -> None:
    assert all(row[VE] < until for row in done.base.to_pylist())
    assert all(row[VS] < until <= row[VE] for row in done.open.to_pylist())
    assert all(row[VS] == until for row in done.tip.to_pylist())
    for part in (done.base, done.open, done.tip, done.feed):
        assert part[VS].to_pylist() == sorted(part[VS].to_pylist())


def check_nothing_in_vain(done: RowsByRole, shape: ResultShape) -> None:
    """A replacement that changes nothing is there only because the next result, which was the end, is gone."""
    records = listed(done.feed)
    places = {tuple(row[name] for name in [*shape.key, VS]): row[OP] for row in records}
    assert len(places) == len(records)
    now = listed(done.base) + listed(done.open) + listed(done.tip)
    begins = {tuple(row[name] for name in [*shape.key, VS]) for row in now}
    for row in records:
        same = all(row[name] == row[f"_old_{name}"] for name in shape.payload)
        if row[OP] == "replace" and same and row[VE] == row[OLD_VE]:
            assert places[*(row[name] for name in shape.key), row[VE]] == "delete"
        elif row[OP] == "replace" and same and row[VE] < row[OLD_VE]:
            assert (*(row[name] for name in shape.key), row[VE]) not in begins


def check_runs(rows: Rows, before: Rows, run: int, shape: ResultShape) -> None:
    """A row is of the evaluation that published it: the same key, vs and values were then there already."""
    names = [*shape.names, VS]
    was = {tuple(row[name] for name in names): row[EVALUATION] for row in listed(before)}
    for row in listed(rows):
        assert row[EVALUATION] == was.get(tuple(row[name] for name in names), run)


kinds = st.sampled_from(list(TypeKind))


def cover(choices: Choices, shape: ResultShape) -> None:
    """Some steps of which each brings the whole answer."""
    keys, reader = different_keys(choices, shape), Reader(shape)
    since, until = LOWEST, choices.number(0, 4)
    for run in range(1, choices.number(2, 5)):
        told = StepContext(since, until, run, covering=True)
        new = segments(choices, shape, keys, max(since, 0), until)
        before = reader.before
        done = settled(new, before, told, shape)
        rows = done.base.to_pylist() + done.open.to_pylist() + done.tip.to_pylist()
        assert as_they_stand(rows) == oracle(new, before, told)
        check_roles(done, until)
        check_runs(rows, before, run, shape)
        check_nothing_in_vain(done, shape)
        assert set(done.feed[EVALUATION].to_pylist()) <= {run}
        reader.take(done)
        reader.check(until)
        assert as_they_stand(reader.published) == normal_form(reader.published)
        since, until = until, until + choices.number(0, 4)


@given(st.data(), st.lists(kinds, max_size=2), st.lists(kinds, max_size=2))
def test_steps_that_cover_everything(data: st.DataObject, key: list[TypeKind], payload: list[TypeKind]) -> None:
    cover(FromHypothesis(data.draw), shape_of(key, payload))


@pytest.mark.parametrize("key", [TypeKind.STRING, TypeKind.DOUBLE])
def test_many_steps_that_cover_everything(key: TypeKind) -> None:
    for seed in seeds(f"{__name__} cover", 60):
        cover(FromRandom(random.Random(seed)), shape_of([key], [TypeKind.DOUBLE]))


@given(st.data(), st.lists(kinds, min_size=1, max_size=2), st.lists(kinds, max_size=1))
def test_the_order_of_rows_and_how_keys_are_spread_do_not_matter(
    data: st.DataObject, key: list[TypeKind], payload: list[TypeKind]
) -> None:
    choices, shape = FromHypothesis(data.draw), shape_of(key, payload)
    keys = different_keys(choices, shape)
    first = settled(segments(choices, shape, keys, 0, 4), [], StepContext(LOWEST, 4, 1, covering=True), shape)
    new, before = segments(choices, shape, keys, 4, 7), first.open.to_pylist() + first.tip.to_pylist()
    told = StepContext(4, 7, 2, covering=True)
    once = settled(new, before, told, shape)
    shuffled = random.Random(choices.number(0, 99))
    again = settled(shuffled.sample(new, len(new)), shuffled.sample(before, len(before)), told, shape)
    mine = [plain(value) for value in keys[0].values()]

    def apart(rows: Rows, *, here: bool) -> Rows:
        return [row for row in rows if ([plain(row[name]) for name in shape.key] == mine) is here]

    parts = [settled(apart(new, here=here), apart(before, here=here), told, shape) for here in (True, False)]
    for name in ("base", "open", "tip", "feed"):
        assert listed(getattr(again, name)) == listed(getattr(once, name))
        together = [row for part in parts for row in listed(getattr(part, name))]
        assert sorted(together, key=repr) == sorted(listed(getattr(once, name)), key=repr)


def add(choices: Choices, shape: ResultShape) -> None:
    """Some steps of which each brings more rows."""
    reader = Reader(shape)
    since, until = LOWEST, choices.number(0, 4)
    for run in range(1, choices.number(2, 5)):
        new = []
        for at in range(max(since, 0) - 1, until + 2):
            for who in ("a", None)[: choices.number(0, 2)]:
                values = {each.name: choices.one(VALUES[each.type.kind][:3]) for each in shape.columns if not each.key}
                new.append({"key": at, "_k1": who, **values, VS: at, VE: choices.one([at + 2, at + 5, HIGHEST])})
        before, told = reader.before, StepContext(since, until, run, covering=False)
        done = settled(new, before, told, shape)
        rows = done.base.to_pylist() + done.tip.to_pylist()
        assert as_they_stand(rows) == as_they_stand(row for row in new if since <= row[VS] <= until)
        assert not done.open.num_rows
        assert set(done.feed[OP].to_pylist()) <= {"replace", "delete"}
        assert {row[VS] for row in done.base.to_pylist()} <= set(range(max(since, -3), until))
        assert {row[VS] for row in done.tip.to_pylist()} <= {until}
        check_runs(rows, before, run, shape)
        reader.take(done, rows_too=True, run=run)
        reader.check(until)
        since, until = until, until + choices.number(0, 4)


@given(st.data(), st.lists(kinds, min_size=1, max_size=2))
def test_steps_that_only_add(data: st.DataObject, payload: list[TypeKind]) -> None:
    add(FromHypothesis(data.draw), shape_of([TypeKind.BIGINT, TypeKind.STRING], payload))


def test_many_steps_that_only_add() -> None:
    for seed in seeds(f"{__name__} add", 60):
        add(FromRandom(random.Random(seed)), shape_of([TypeKind.BIGINT, TypeKind.STRING], [TypeKind.DOUBLE]))


class TestWhatAReaderIsTold:
    def test_a_first_answer_is_all_new(self) -> None:
        done = settled(
            [price("a", 1, 3, 5), price("a", 2, 5), price("b", 1, 6)], [], StepContext(LOWEST, 6, 1, covering=True)
        )
        assert changes(done) == [
            ("insert", "a", 1, 3, 5, None, None),
            ("insert", "a", 2, 5, HIGHEST, None, None),
            ("insert", "b", 1, 6, HIGHEST, None, None),
        ]
        assert done.base.to_pylist() == [price("a", 1, 3, 5, 1)]
        assert done.open.to_pylist() == [price("a", 2, 5, HIGHEST, 1)]
        assert done.tip.to_pylist() == [price("b", 1, 6, HIGHEST, 1)]

    def test_the_next_result_ends_the_one_before_it(self) -> None:
        before = [price("a", 1, 3, HIGHEST, 1)]
        done = settled([price("a", 1, 5, 8), price("a", 2, 8)], before, StepContext(5, 9, 2, covering=True))
        assert changes(done) == [("insert", "a", 2, 8, HIGHEST, None, None)]
        assert done.base.to_pylist() == [price("a", 1, 3, 8, 1)]

    def test_an_end_that_nothing_follows_is_told(self) -> None:
        before = [price("a", 1, 3, HIGHEST, 1)]
        done = settled([price("a", 1, 5, 8), price("a", 2, 9)], before, StepContext(5, 9, 2, covering=True))
        assert changes(done)[0] == ("replace", "a", 1, 3, 8, 1, HIGHEST)

    def test_a_later_end_is_told_though_a_result_follows(self) -> None:
        before = [price("a", 1, 3, 6, 1)]
        done = settled([price("a", 1, 5, 8), price("a", 2, 8)], before, StepContext(5, 9, 2, covering=True))
        assert changes(done)[0] == ("replace", "a", 1, 3, 8, 1, 6)

    def test_an_end_that_came_true_is_not_told(self) -> None:
        before = [price("a", 1, 3, 7, 1)]
        done = settled([price("a", 1, 5, 7)], before, StepContext(5, 9, 2, covering=True))
        assert changes(done) == []
        assert done.base.to_pylist() == [price("a", 1, 3, 7, 1)]

    def test_a_result_at_the_tip_that_says_the_same_is_still_the_old_one(self) -> None:
        done = settled([price("a", 1, 5)], [price("a", 1, 5, HIGHEST, 1)], StepContext(5, 9, 2, covering=True))
        assert changes(done) == []
        assert done.open.to_pylist() == [price("a", 1, 5, HIGHEST, 1)]

    def test_a_result_at_the_tip_that_says_something_else_is_replaced(self) -> None:
        done = settled([price("a", 2, 5)], [price("a", 1, 5, HIGHEST, 1)], StepContext(5, 9, 2, covering=True))
        assert changes(done) == [("replace", "a", 2, 5, HIGHEST, 1, HIGHEST)]
        assert done.open.to_pylist() == [price("a", 2, 5, HIGHEST, 2)]

    def test_a_result_at_the_tip_that_goes_leaves_the_one_before_it_an_end(self) -> None:
        # The reader may hold a without end: until now, the result at 5 was its end.
        before = [price("a", 1, 3, 5, 1), price("a", 2, 5, HIGHEST, 1)]
        done = settled([], before, StepContext(5, 9, 2, covering=True))
        assert changes(done) == [("replace", "a", 1, 3, 5, 1, 5), ("delete", "a", None, 5, 5, 2, HIGHEST)]

    def test_a_result_at_the_tip_that_is_replaced_still_ends_the_one_before_it(self) -> None:
        before = [price("a", 1, 3, 5, 1), price("a", 2, 5, HIGHEST, 1), price("b", 1, 3, 5, 1), price("c", 1, 5, 9, 1)]
        done = settled([price("a", 3, 5)], before, StepContext(5, 9, 2, covering=True))
        assert changes(done) == [("replace", "a", 3, 5, HIGHEST, 2, HIGHEST), ("delete", "c", None, 5, 5, 1, 9)]

    @pytest.mark.parametrize("covering", [True, False])
    def test_a_result_of_another_key_is_another_result(self, covering: bool) -> None:
        done = settled([price("b", 1, 5, 9)], [price("a", 1, 5, 9, 1)], StepContext(5, 7, 2, covering=covering))
        inserted = [("insert", "b", 1, 5, 9, None, None)] if covering else []
        assert changes(done) == [("delete", "a", None, 5, 5, 1, 9), *inserted]
        assert (done.open if covering else done.base).to_pylist() == [price("b", 1, 5, 9, 2)]

    def test_a_result_at_the_tip_that_was_none_lets_the_one_before_it_go_on(self) -> None:
        before = [price("a", 1, 3, 5, 1), price("a", 2, 5, HIGHEST, 1)]
        done = settled([price("a", 1, 5)], before, StepContext(5, 9, 2, covering=True))
        assert changes(done) == [("replace", "a", 1, 3, HIGHEST, 1, 5), ("delete", "a", None, 5, 5, 2, HIGHEST)]
        assert done.open.to_pylist() == [price("a", 1, 3, HIGHEST, 1)]

    def test_of_rows_that_only_add_the_feed_has_the_exceptions(self) -> None:
        before = [price("a", 1, 5, 9, 1), price("b", 1, 5, 9, 1), price("c", 1, 5, 9, 1)]
        new = [price("b", 2, 5, 9), price("c", 1, 5, 9), price("d", 1, 5, 9), price("e", 1, 7, 9)]
        done = settled(new, before, StepContext(5, 7, 2, covering=False))
        assert changes(done) == [("delete", "a", None, 5, 5, 1, 9), ("replace", "b", 2, 5, 9, 1, 9)]
        assert [row[EVALUATION] for row in sorted(done.base.to_pylist(), key=lambda row: row["key"])] == [2, 1, 2]
        assert done.tip.to_pylist() == [price("e", 1, 7, 9, 2)]


@pytest.mark.parametrize("covering", [True, False])
def test_nothing_comes_of_nothing(covering: bool) -> None:
    done = settled([], [], StepContext(LOWEST, 5, 1, covering=covering))
    assert [part.num_rows for part in (done.base, done.open, done.tip, done.feed)] == [0, 0, 0, 0]


def test_a_step_that_stands_still_works_the_tip_out_anew() -> None:
    before = [price("a", 1, 3, 5, 1), price("a", 2, 5, HIGHEST, 1)]
    done = settled([price("a", 3, 5)], before, StepContext(5, 5, 2, covering=True))
    assert done.open.to_pylist() == [price("a", 1, 3, 5, 1)]
    assert done.tip.to_pylist() == [price("a", 3, 5, HIGHEST, 2)]


def test_columns_come_in_any_order_and_of_a_like_type() -> None:
    new = pa.table({VE: [9], VS: [5], "scope": ["x"], "v0": pa.array([1], pa.int64()), "key": pa.array(["a"])})
    done = settle_results(new, result_schema(PRICES).empty_table(), StepContext(LOWEST, 9, 1, covering=True), PRICES)
    assert done.open.to_pylist() == [price("a", 1, 5, 9, 1)]


def test_two_results_of_one_key_at_one_instant_are_refused() -> None:
    with pytest.raises(ErrataError, match=r"key = a: the query has two results of one key at the instant 5"):
        settled([price("a", 1, 3, 6), price("a", 1, 5, 8)], [], StepContext(LOWEST, 9, 1, covering=True))


@pytest.mark.parametrize("kind", list(TypeKind))
def test_values_are_the_same_and_in_order(kind: TypeKind) -> None:
    values = [value for value in VALUES[kind] for _ in range(2)]
    shape = replace(PRICES, columns=(ArchiveColumn("x", TYPES[kind]),))
    schema = pa.schema([result_schema(shape).field("x")])
    padded = pa.table({"x": [*values[:3], *values]}, schema=schema)
    chunked = pa.concat_tables([padded.slice(0, 1), padded.slice(4)])
    _check_sameness(padded.slice(3), values)
    _check_sameness(chunked, values)


def _check_sameness(rows: pa.Table, values: list[Any]) -> None:
    assert listed(rows) == [{"x": plain(value)} for value in values]
    told = sort_arrays(rows, ["x"])
    tuples = [tuple(int(lane[at]) for lane in told) for at in range(len(values))]
    pairs = [(left, right) for left in range(len(values)) for right in range(len(values))]
    same = same_values(rows, ["x"], *(pa.array(each).to_numpy() for each in zip(*pairs, strict=True)))
    for (left, right), equal in zip(pairs, same, strict=True):
        mine, theirs = plain(values[left]), plain(values[right])
        assert equal == (mine == theirs) == (tuples[left] == tuples[right]), (mine, theirs)
        assert (tuples[left] < tuples[right]) == (_rank(values[left]) < _rank(values[right])), (mine, theirs)


def test_every_spelling_of_nan_is_the_same() -> None:
    spelt = np.array([0x7FF8000000000000, -0x0008000000000000, 0x7FF8000000000001], np.int64).view(np.float64)
    rows = pa.table({"x": spelt})
    assert len({int(bits) for bits in sort_arrays(rows, ["x"])[0]}) == 1
    assert same_values(rows, ["x"], np.array([0, 1]), np.array([1, 2])).all()


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)
