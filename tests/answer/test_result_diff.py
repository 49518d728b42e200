"""Correcting published results in regions: against a slow oracle that knows the right answer, and for a reader."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.answer.result_diff import DiffContext, ResultDiff, diff_results
from errata.archive.schemas import feed_schema, result_mask_schema, result_schema
from errata.errors import ErrataError
from errata.model.columns import TypeKind
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ResultShape, old_column
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval, to_micros
from fixtures.chance import seeds
from fixtures.changelogs import fold, lasting, listed, plain
from fixtures.plans.choices import Choices, FromHypothesis, FromRandom
from fixtures.regions import instant, start
from fixtures.result_rows import VALUES, Rows, shape_of, table

RUN_NO, LAST = 7, 12
"""The evaluation that corrects, and the last instant at which something can change; what is so then is so for ever."""
Values = tuple[Any, ...]
"""What a result says: the columns of the shape in their order."""
Said = dict[Values, list[Values | None]]
"""For each key what is said of it at each instant from 0 to LAST."""
Lived = tuple[Values, int, int]
FEW = {kind: values[:3] for kind, values in VALUES.items()}
"""So few that they often meet."""


def held(values: Values) -> Values:
    """Values that are equal, and written in one way, where they are the same."""
    return tuple(plain(each + 0.0 if isinstance(each, float) else each) for each in values)


@dataclass
class Case:
    """What is published and what is right, which differ inside regions only."""

    shape: ResultShape
    told: DiffContext
    regions: list[Extent]
    published: list[Lived]
    right: list[Lived]
    inside: Callable[[Values, int], bool]
    """Whether a result that says this lies in a region at an instant; of whole rows, at their beginning."""
    new: list[Lived] = field(default_factory=list)
    """What has been worked out anew: right in the regions."""
    before: list[Lived] = field(default_factory=list)

    def key(self, values: Values) -> Values:
        return held(tuple(value for value, each in zip(values, self.shape.columns, strict=True) if each.key))

    def place(self, row: Lived) -> tuple[Values, int]:
        return self.key(row[0]), row[1]

    def says(self, row: Lived) -> tuple[Values, int, int]:
        """The row as far as it is certain."""
        return held(row[0]), row[1], min(row[2], self.told.until + 1) if self.told.covering else row[2]

    def rows(self, lived: list[Lived], run: int | None = None) -> Rows:
        return [
            {
                **dict(zip(self.shape.names, values, strict=True)),
                VS: vs,
                VE: ve,
                **({} if run is None else {EVALUATION: run}),
            }
            for values, vs, ve in lived
        ]

    def lived(self, rows: pa.Table) -> list[Lived]:
        return [(tuple(row[name] for name in self.shape.names), row[VS], row[VE]) for row in rows.to_pylist()]


def spread(interval: Interval, until: int) -> Interval:
    return Interval(interval.start, HIGHEST if interval.end > until else interval.end)


def constant(value: Any) -> Any:
    """A value as constants of regions have it."""
    return to_micros(value) if hasattr(value, "tzinfo") else value


def lies_in(regions: list[Extent], shape: ResultShape, until: int) -> Callable[[Values, int], bool]:
    def inside(values: Values, at: int) -> bool:
        row = {name: constant(value) for name, value in zip(shape.names, values, strict=True)}
        return any(
            at in spread(each.interval, until) and all(row[name] == value for name, value in each.values.items())
            for each in regions
        )

    return inside


def some_regions(choices: Choices, shape: ResultShape, axis: ExtentAxis) -> list[Extent]:
    exact = [each for each in shape.columns if each.type.kind not in (TypeKind.FLOAT, TypeKind.DOUBLE)]
    found = []
    for _ in range(choices.number(0, 4)):
        low = choices.one([0, LOWEST, -2, *range(LAST + 1)])
        high = choices.one([max(low, 0) + choices.number(0, 5), HIGHEST, LAST])
        chosen = [each for each in exact if choices.number(0, 2) == 2]
        values = {each.name: constant(choices.one(FEW[each.type.kind])) for each in chosen}
        found.append(Extent(axis, Interval(low, high), values))
    return found


def some_values(choices: Choices, shape: ResultShape, *, key: bool) -> Values:
    return tuple(choices.one(FEW[each.type.kind]) for each in shape.columns if each.key is key)


def keys_of(choices: Choices, shape: ResultShape) -> list[Values]:
    found = {held(each): each for each in (some_values(choices, shape, key=True) for _ in range(3))}
    # 0.0 and -0.0 are one key, whichever way it is spelled.
    return list(found.values())


def lives(said: Said, until: int, choices: Choices | None = None) -> list[Lived]:
    """What is said as rows, in normal form; and what is foreseen, if there are choices, is not always what will be."""
    rows = []
    for course in said.values():
        begun = 0
        for at in range(1, LAST + 2):
            if at <= LAST and _same(course[at], course[begun]):
                continue
            values = course[begun]
            if values is not None and begun <= until:
                rows.append((values, begun, HIGHEST if at > LAST else at))
            begun = at
    return [(values, vs, ve if choices is None or ve <= until else foreseen(choices, until)) for values, vs, ve in rows]


def foreseen(choices: Choices, until: int) -> int:
    return choices.one([HIGHEST, until + 1, until + 2])


def _same(one: Values | None, other: Values | None) -> bool:
    return (one is None) == (other is None) and (one is None or other is None or held(one) == held(other))


def of_instants(choices: Choices, shape: ResultShape, *, covering: bool) -> Case:
    """A case told by instants."""
    until = choices.number(0, LAST - 2)
    regions = some_regions(choices, shape, ExtentAxis.INSTANT)
    inside = lies_in(regions, shape, until)
    published: Said = {}
    right: Said = {}
    for key in keys_of(choices, shape):
        was = _course(choices, shape, key)
        now = _course(choices, shape, key)
        published[key] = was
        right[key] = [
            one
            if _same(one, other) or not all(inside(each, at) for each in (one, other) if each is not None)
            else other
            for at, (one, other) in enumerate(zip(was, now, strict=True))
        ]
    told = DiffContext(RUN_NO, until, covering, ExtentAxis.INSTANT)
    foresees = choices if covering else None
    case = Case(shape, told, regions, lives(published, until, foresees), lives(right, until, foresees), inside)
    case.new = list(_parts(choices, case)) + list(_wrong(choices, case))
    case.before = [row for row in case.published if _needed(case, row) or choices.number(0, 1)]
    return case


def _course(choices: Choices, shape: ResultShape, key: Values) -> list[Values | None]:
    course: list[Values | None] = []
    while len(course) <= LAST:
        values = _laid_out(shape, key, some_values(choices, shape, key=False)) if choices.number(0, 3) else None
        course += [values] * choices.number(1, 5)
    return course[: LAST + 1]


def _laid_out(shape: ResultShape, key: Values, payload: Values) -> Values:
    keys, others = iter(key), iter(payload)
    return tuple(next(keys if each.key else others) for each in shape.columns)


def _parts(choices: Choices, case: Case) -> Iterator[Lived]:
    """What of the right answer lies in regions, with more or less of the rest, right or wrong."""
    for values, vs, ve in case.right:
        within = [at for at in range(vs, min(ve, LAST + 1)) if case.inside(values, at)]
        if not within:
            continue
        whole = choices.number(0, 1) or case.told.until < _runs(within)[-1][0]
        for first, last in [(within[0], within[-1])] if whole else _runs(within):
            begin, end = first, last + 1
            while begin > 0 and not case.inside(values, begin - 1) and choices.number(0, 2):
                begin -= 1
            while end <= LAST and not case.inside(values, end) and choices.number(0, 2):
                end += 1
            yield values, min(begin, vs) if case.told.until < first else begin, ve if last >= LAST else end


def _runs(instants: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for at in instants:
        if runs and runs[-1][1] == at - 1:
            runs[-1] = (runs[-1][0], at)
        else:
            runs.append((at, at))
    return runs


def _wrong(choices: Choices, case: Case) -> Iterator[Lived]:
    """Rows that are wrong, outside the regions."""
    for _ in range(choices.number(0, 4)):
        values = tuple(choices.one(FEW[each.type.kind]) for each in case.shape.columns)
        vs = choices.number(-2, LAST - 1)
        ve = vs + choices.number(0, 3)
        if not any(case.inside(values, at) for at in range(vs, ve)):
            yield values, vs, ve


def _needed(case: Case, row: Lived) -> bool:
    """Whether `amend` needs a published row: one of a key that a region speaks of, in it or next to it."""
    values, vs, ve = row
    keyed = [
        replace(each, values={n: v for n, v in each.values.items() if n in case.shape.key}) for each in case.regions
    ]
    has = lies_in([replace(each, interval=EVERYTHING) for each in keyed], case.shape, HIGHEST - 1)
    if case.told.axis is ExtentAxis.START:
        return lies_in(keyed, case.shape, case.told.until)(values, vs)
    return any(
        each.interval.start - 1 < ve and spread(each.interval, case.told.until).end >= vs
        for each in keyed
        if lies_in([replace(each, interval=EVERYTHING)], case.shape, HIGHEST - 1)(values, 0)
    ) and has(values, 0)


def of_starts(choices: Choices, shape: ResultShape, *, covering: bool) -> Case:
    """A case told by the beginnings of whole rows."""
    until = choices.number(0, LAST - 2)
    regions = some_regions(choices, shape, ExtentAxis.START)
    inside = lies_in(regions, shape, until)
    published, right = [], []
    for key in keys_of(choices, shape):
        for at in range(LAST + 1):
            was, now = (_row(choices, shape, key, at) for _ in "ab")
            if was == now or not all(inside(values, at) for values, _, _ in (*was, *now)):
                now = was
            if at <= until:
                published += was
                right += now
    told = DiffContext(RUN_NO, until, covering, ExtentAxis.START)
    if covering:
        # Rows of one key are apart.
        published, right = (
            [(v, vs, vs + 1 if vs < until else ve) for v, vs, ve in rows] for rows in (published, right)
        )
    case = Case(shape, told, regions, published, right, inside)
    case.new = [row for row in case.right if inside(row[0], row[1]) or choices.number(0, 1)]
    case.new += [(v, vs, ve) for v, vs, ve in _wrong(choices, case) if not inside(v, vs)]
    late = until + choices.number(1, 3)
    case.new += [(values, late, HIGHEST) for values, _, _ in case.right[:1]]
    # In a covering answer a row may follow on another one.
    case.before = [row for row in published if covering or _needed(case, row) or choices.number(0, 1)]
    return case


def _row(choices: Choices, shape: ResultShape, key: Values, at: int) -> list[Lived]:
    if choices.number(0, 2):
        return []
    values = _laid_out(shape, key, some_values(choices, shape, key=False))
    return [(values, at, choices.one([at + 1, at + 4, HIGHEST]))]


def amended(case: Case) -> ResultDiff:
    shape = case.shape
    new, before = table(case.rows(case.new), shape), table(case.rows(case.before, 1), shape, run=True)
    done = diff_results(new, before, case.regions, case.told, shape)
    assert done.masks.schema.equals(result_mask_schema(shape))
    assert done.feed.schema.equals(feed_schema(shape))
    for part in (done.base, done.open, done.tip):
        assert part.schema.equals(result_schema(shape))
    return done


def check(case: Case, choices: Choices) -> ResultDiff:
    done = amended(case)
    added = [row for part in (done.base, done.open, done.tip) for row in case.lived(part)]
    check_rows(case, done, added)
    check_roles(case, done)
    check_order(case, done)
    check_reader(case, done, choices)
    for part in (done.masks, done.base, done.open, done.tip, done.feed):
        assert set(part[EVALUATION].to_pylist()) <= {RUN_NO}
    return done


def check_rows(case: Case, done: ResultDiff, added: list[Lived]) -> None:
    """Only what is wrong is masked, only what is not there is added; and what then counts is right."""
    says, right = {case.says(row) for row in case.published}, {case.says(row) for row in case.right}
    masks = [(held(tuple(row[name] for name in case.shape.key)), row[VS], row[VE]) for row in done.masks.to_pylist()]
    wrong = [row for row in case.published if case.says(row) not in right]
    assert Counter(masks) == Counter((*case.place(row), row[2]) for row in wrong)
    assert Counter(map(case.says, added)) == Counter(right - says)
    hidden = {mask[:2] for mask in masks}
    counts = [row for row in case.published if case.place(row) not in hidden] + added
    assert Counter(map(case.says, counts)) == Counter(right)
    assert done.changed == len({*hidden, *map(case.place, added)}) <= done.compared
    assert done.compared <= len({*map(case.place, case.published), *map(case.place, added)})


def check_roles(case: Case, done: ResultDiff) -> None:
    until, covering, closes = case.told.until, case.told.covering, case.told.closes

    def lasting_on(row: dict[str, Any]) -> bool:
        return covering and row[VE] >= until and (closes is None or row[closes[0]] + closes[1] > until)

    assert all(row[VS] == until for row in done.tip.to_pylist())
    assert all(row[VS] < until and lasting_on(row) for row in done.open.to_pylist())
    assert all(row[VS] < until and not lasting_on(row) for row in done.base.to_pylist())


def rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if value != value else (1, value.encode() if isinstance(value, str) else value)


def check_order(case: Case, done: ResultDiff) -> None:
    for part in (done.masks, done.base, done.open, done.tip, done.feed):
        places = [(row[VS], [rank(row[name]) for name in case.shape.key]) for row in part.to_pylist()]
        assert places == sorted(places)
        assert len({repr(each) for each in places}) == len(places)


def check_reader(case: Case, done: ResultDiff, choices: Choices) -> None:
    """One who folds the records holds the right answer, and is told nothing in vain."""
    key, covering = case.shape.key, case.told.covering
    begins = {case.place(row) for row in case.published}
    holds = []
    for values, vs, ve in case.published:
        followed = covering and (case.key(values), ve) in begins
        holds.append((values, vs, choices.one([ve, ve + 1, HIGHEST]) if followed else ve))
    results = fold(done.feed, key, fold(case.rows(holds), key))
    rows = lasting(results) if covering else list(results.values())
    now = [(tuple(row[name] for name in case.shape.names), row[VS], row[VE]) for row in rows]
    assert Counter(map(case.says, now)) == Counter(map(case.says, case.right))

    was, follows = {case.place(row): row for row in case.published}, {case.place(row) for row in case.right}
    for record in listed(done.feed):
        place = (tuple(record[name] for name in key), record[VS])
        if record[OP] != "insert":
            assert record[OLD_VE] == was[place][2]
        payload = [(record[name], record[old_column(name)]) for name in case.shape.payload]
        same = all(one == other for one, other in payload)
        if record[OP] == "replace" and same and case.says((was[place][0], 0, record[VE]))[2] == record[OLD_VE]:
            end = (place[0], record[VE])
            assert covering, "what is certain is not told again"
            assert end in begins
            assert end not in follows


kinds = st.sampled_from(list(TypeKind))
MAKERS = {ExtentAxis.START: of_starts, ExtentAxis.INSTANT: of_instants}
whole = pytest.mark.parametrize("covering", [True, False])
USUAL, MOST = 60, 600
"""So many cases, and more where these show too little of what a test is about."""
axes = pytest.mark.parametrize("axis", list(ExtentAxis))


@whole
@axes
@given(st.data(), st.lists(kinds, max_size=2), st.lists(kinds, max_size=2))
def test_results_come_out_right(
    axis: ExtentAxis, covering: bool, data: st.DataObject, key: list[TypeKind], payload: list[TypeKind]
) -> None:
    choices = FromHypothesis(data.draw)
    check(MAKERS[axis](choices, shape_of(key, payload), covering=covering), choices)


@whole
@axes
@pytest.mark.parametrize("key", [[TypeKind.STRING], [TypeKind.TIMESTAMP, TypeKind.INT], [TypeKind.DOUBLE]])
def test_many_results_come_out_right(axis: ExtentAxis, covering: bool, key: list[TypeKind]) -> None:
    changed = 0
    for number, seed in enumerate(seeds(__name__, MOST)):
        if number >= USUAL and changed > 30:
            break
        choices = FromRandom(random.Random(seed))
        changed += check(MAKERS[axis](choices, shape_of(key, [TypeKind.INT]), covering=covering), choices).changed
    assert changed > 30


@axes
def test_what_closes_is_final(axis: ExtentAxis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEW, TypeKind.BIGINT, [0, 3, 7])
    shape, finals = shape_of([TypeKind.BIGINT], [TypeKind.INT]), 0
    for number, seed in enumerate(seeds(__name__, MOST)):
        if number >= USUAL and finals > 10:
            break
        choices = FromRandom(random.Random(seed))
        case = MAKERS[axis](choices, shape, covering=True)
        case.told = replace(case.told, closes=("key", choices.number(1, 4)))
        done = check(case, choices)
        finals += sum(row[VE] >= case.told.until for row in done.base.to_pylist())
    assert finals > 10


@whole
@axes
def test_the_last_bits_of_sums_do_not_matter(axis: ExtentAxis, covering: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEW, TypeKind.DOUBLE, [1234.5, None, -0.25, 3e4])
    shape, changed = shape_of([TypeKind.STRING], [TypeKind.DOUBLE]), 0
    for number, seed in enumerate(seeds(__name__, MOST)):
        if number >= USUAL and changed > 20:
            break
        rng = random.Random(seed)
        choices = FromRandom(rng)
        case = MAKERS[axis](choices, shape, covering=covering)
        case.new = [
            ((key, value and value * (1 + rng.choice([-1, 0, 1]) * 1e-12)), *life) for (key, value), *life in case.new
        ]
        done = amended(case)
        says, right = {case.says(row) for row in case.published}, {case.says(row) for row in case.right}
        added = [row for part in (done.base, done.open, done.tip) for row in case.lived(part)]
        near = [((key, value and round(value, 3)), vs, ve) for (key, value), vs, ve in added]
        assert Counter(map(case.says, near)) == Counter(right - says)
        assert done.masks.num_rows == len(says - right)
        changed += done.changed
    assert changed > 20


PRICES = shape_of([TypeKind.STRING], [TypeKind.INT])
SUMS = shape_of([TypeKind.STRING], [TypeKind.DOUBLE])


def price(key: str | None, value: float | None, vs: int, ve: int = HIGHEST, run: int | None = None) -> dict[str, Any]:
    row = {"key": key, "v0": value, VS: vs, VE: ve}
    return row if run is None else {**row, EVALUATION: run}


def corrected(
    new: Rows, before: Rows, *regions: Extent, until: int = 20, covering: bool = True, shape: ResultShape = PRICES
) -> ResultDiff:
    told = DiffContext(RUN_NO, until, covering, regions[0].axis)
    return diff_results(table(new, shape), table(before, shape, run=True), regions, told, shape)


def changes(done: ResultDiff) -> list[tuple[Any, ...]]:
    return [
        (row[OP], row["key"], row["v0"], row[VS], row[VE], row["_old_v0"], row[OLD_VE]) for row in done.feed.to_pylist()
    ]


def masks(done: ResultDiff) -> list[tuple[Any, ...]]:
    return [(row["key"], row[VS], row[VE], row[EVALUATION]) for row in done.masks.to_pylist()]


class TestInstants:
    def test_a_piece_is_corrected(self) -> None:
        done = corrected([price("a", 2, 8, 10)], [price("a", 1, 3, 15, 1)], instant(8, 10))
        assert masks(done) == [("a", 3, 15, RUN_NO)]
        assert done.base.to_pylist() == [price("a", 1, 3, 8, 7), price("a", 2, 8, 10, 7), price("a", 1, 10, 15, 7)]
        assert changes(done) == [
            ("replace", "a", 1, 3, 8, 1, 15),
            ("insert", "a", 2, 8, 10, None, None),
            ("insert", "a", 1, 10, 15, None, None),
        ]
        assert (done.changed, done.compared) == (3, 3)

    def test_a_gap_is_closed(self) -> None:
        before = [price(None, 1, 3, 8, 1), price(None, 1, 10, 15, 1)]
        done = corrected([price(None, 1, 0, 99)], before, instant(8, 10, key=None))
        assert masks(done) == [(None, 3, 8, RUN_NO), (None, 10, 15, RUN_NO)]
        assert done.base.to_pylist() == [price(None, 1, 3, 15, 7)]
        assert changes(done) == [("replace", None, 1, 3, 15, 1, 8), ("delete", None, None, 10, 10, 1, 15)]

    def test_what_comes_out_the_same_is_left_as_it_is(self) -> None:
        before = [price("a", 1, 3, 8, 1), price("a", 2, 8, 20, 1)]
        done = corrected([price("a", 1, 5, 8), price("a", 2, 8, 11)], before, instant(5, 11))
        assert [part.num_rows for part in (done.masks, done.base, done.open, done.tip, done.feed)] == [0] * 5
        assert (done.changed, done.compared) == (0, 2)

    def test_where_the_next_result_goes_the_end_before_it_is_told(self) -> None:
        before = [price("a", 1, 3, 8, 1), price("a", 2, 8, 11, 1)]
        done = corrected([], before, instant(8, 11, v0=2))
        assert masks(done) == [("a", 8, 11, RUN_NO)]
        assert changes(done) == [("replace", "a", 1, 3, 8, 1, 8), ("delete", "a", None, 8, 8, 2, 11)]
        assert (done.changed, done.compared) == (1, 1)

    @pytest.mark.parametrize("covering", [True, False])
    def test_ends_beyond_the_last_instant_are_foreseen_or_certain(self, covering: bool) -> None:
        done = corrected([price("a", 1, 3, 30)], [price("a", 1, 3, 25, 1)], instant(10, 21), covering=covering)
        assert changes(done) == ([] if covering else [("replace", "a", 1, 3, 30, 1, 25)])

    def test_an_end_at_the_last_instant_is_one(self) -> None:
        done = corrected([price("a", 1, 3, 20)], [price("a", 1, 3, 25, 1)], instant(10, 21))
        assert changes(done) == [("replace", "a", 1, 3, 20, 1, 25)]
        assert done.open.to_pylist() == [price("a", 1, 3, 20, 7)]

    def test_nothing_begins_after_the_last_instant(self) -> None:
        done = corrected([price("a", 2, 20), price("a", 3, 21)], [price("a", 1, 3, 20, 1)], instant(10, 40))
        # The row at 3 is not among what is right from 10 on.
        assert done.tip.to_pylist() == [price("a", 2, 20, HIGHEST, 7)]
        assert changes(done)[-1] == ("insert", "a", 2, 20, HIGHEST, None, None)

    def test_regions_that_overlap_hold_a_row_once(self) -> None:
        done = corrected([price("a", 2, 3, 9)], [price("a", 1, 3, 9, 1)], instant(3, 7), instant(5, 9, key="a"))
        assert changes(done) == [("replace", "a", 2, 3, 9, 1, 9)]

    def test_two_results_of_one_key_at_one_instant_are_refused(self) -> None:
        message = r"key = a: the query has two results of one key at the instant 5"
        with pytest.raises(ErrataError, match=message):
            corrected([price("a", 1, 3, 6), price("a", 1, 5, 8)], [], instant(3, 9))
        with pytest.raises(ErrataError, match=message):
            corrected([price("a", 2, 5, 8)], [price("a", 1, 3, 6, 1)], instant(3, 9, v0=2))


class TestStarts:
    def test_rows_come_go_and_change(self) -> None:
        before = [price("a", 1, 3, 8, 1), price("b", 1, 3, 8, 1), price("c", 1, 3, 8, 1), price("d", 1, 4, 8, 1)]
        new = [price("a", 1, 3, 8), price("b", 2, 3, 8), price("d", 2, 4), price("e", 1, 3, 30), price("f", 1, 21)]
        done = corrected(new, before, start(3, 4), covering=False)
        assert masks(done) == [("b", 3, 8, RUN_NO), ("c", 3, 8, RUN_NO)]
        assert done.base.to_pylist() == [price("b", 2, 3, 8, 7), price("e", 1, 3, 30, 7)]
        assert changes(done) == [
            ("replace", "b", 2, 3, 8, 1, 8),
            ("delete", "c", None, 3, 3, 1, 8),
            ("insert", "e", 1, 3, 30, None, None),
        ]
        assert (done.changed, done.compared) == (3, 4)

    def test_a_value_may_lead_from_one_region_to_another(self) -> None:
        done = corrected([price("a", 2, 3, 8)], [price("a", 1, 3, 8, 1)], start(3, 4, v0=1), start(3, 4, v0=2))
        assert changes(done) == [("replace", "a", 2, 3, 8, 1, 8)]

    @pytest.mark.parametrize("before", [[price("a", 1, 3, 8, 1)], []])
    def test_two_results_of_one_key_and_beginning_are_refused(self, before: Rows) -> None:
        new = [price("a", 2, 3, 8)] + [price("a", 2, 3, 9)] * (not before)
        with pytest.raises(ErrataError, match=r"two results of one key at the instant 3"):
            corrected(new, before, start(3, 4, v0=2), covering=False)


class TestSums:
    NEAR = 0.1 + 0.2

    def test_a_sum_in_another_order_is_the_same(self) -> None:
        done = corrected([price("a", self.NEAR, 5, 8)], [price("a", 0.3, 3, 9, 1)], instant(5, 8), shape=SUMS)
        assert changes(done) == []

    def test_published_sums_that_are_near_each_other_stay_apart(self) -> None:
        before = [price("a", 0.3, 3, 9, 1), price("a", self.NEAR, 9, 12, 1)]
        done = corrected([price("a", 0.3, 5, 10)], before, instant(5, 10), shape=SUMS)
        assert changes(done) == []

    def test_new_sums_that_are_near_each_other_are_two(self) -> None:
        new = [price("a", 0.3, 5, 8), price("a", self.NEAR, 8, 9)]
        assert corrected(new, [], instant(5, 9), shape=SUMS).base.num_rows == 2

    @pytest.mark.parametrize("value", [0.3001, None, float("nan"), float("inf"), -0.3, 0.0])
    def test_what_is_not_near_is_another_value(self, value: float | None) -> None:
        for new, was in ((value, 0.3), (0.3, value)):
            done = corrected([price("a", new, 3, 9)], [price("a", was, 3, 9, 1)], start(3, 4), shape=SUMS)
            assert done.changed == 1

    def test_other_doubles_are_compared_exactly(self) -> None:
        told = DiffContext(RUN_NO, 20, True, ExtentAxis.START, rough=frozenset())
        new, before = [price("a", self.NEAR, 3, 9)], [price("a", 0.3, 3, 9, 1)]
        done = diff_results(table(new, SUMS), table(before, SUMS, run=True), [start(3, 4)], told, SUMS)
        assert done.changed == 1


@axes
def test_nothing_comes_of_nothing(axis: ExtentAxis) -> None:
    for regions in ([], [Extent(axis)]):
        done = diff_results(
            table([], PRICES), table([], PRICES, run=True), regions, DiffContext(1, 5, True, axis), PRICES
        )
        assert [part.num_rows for part in (done.masks, done.base, done.open, done.tip, done.feed)] == [0] * 5
        assert (done.changed, done.compared) == (0, 0)
