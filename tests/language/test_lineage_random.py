"""Lineage on random plans and data, against the oracle: it may be wider than need be, and must never be narrower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errata.language.expr import BOOLEAN, INT, STRING, Call, Lit, Ref
from errata.language.lineage import (
    InputChange,
    QueryPath,
    ReplayScope,
    backward,
    forward_through_queries,
    reads_through_queries,
    replay_scope,
)
from errata.language.lineage.constants import is_exact
from errata.language.lineage.extents import extent_axis
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
    scans_of,
)
from errata.language.plan import Plan
from errata.model.extent import Extent, rows_starting_in
from errata.model.time import EVERYTHING, HIGHEST, Interval
from fixtures.chance import random_for
from fixtures.duck import Row
from fixtures.lineages import Seen, Within, alike, difference, ends, leaves, only, parted, seen
from fixtures.plans.choices import Choices, FromHypothesis, FromRandom, pool
from fixtures.plans.links import COUNT, call, equal, query, select
from fixtures.plans.maker import LATEST, Maker, Trial, instants, plans_with_data

UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

A, B = (Scan(pool(False)[name], alias) for name, alias in (("link1", "a"), ("link2", "b")))
PEOPLE, PLACES = (Scan(pool(False)[name], "p") for name in ("people", "places"))
WIDE, NARROW = Sliding(A, 5), Sliding(B, 3)
SAME_SRC = equal(A.ref("a.src"), B.ref("b.src"))
BY_NAME = equal(A.ref("a.src"), PEOPLE.ref("p.name"))
WITHOUT = Negation(WIDE, NARROW, (("a.src", "b.src"),))
LATER = Call("+", (A.ref("a.time"), Lit(2, INT)), A.ref("a.time").type)
SOON = Call("and", (call(">=", B.ref("b.time"), A.ref("a.time")), call("<", B.ref("b.time"), LATER)), BOOLEAN)
C = Sliding(Scan(pool(False)["items"], "c"), 4)


def counts(plan: Plan, window: TimeWindow | RowWindow | None = None) -> Group:
    return Group(plan, (A.ref("a.src"),), (COUNT,), window, timed=False)


PLANS: tuple[Plan, ...] = (
    select(Join(WIDE, NARROW, SAME_SRC), "b.n"),
    select(Join(A, B, SOON), "a.src", "b.n"),
    select(Join(Filter(WIDE, call("<=>", A.ref("a.src"), Lit(None, STRING))), NARROW), "a.n"),
    Filter(Union((select(WIDE, "a.src"), select(NARROW, "b.src"))), Call("is_null", (Ref("src", STRING),), BOOLEAN)),
    select(Join(RelationJoin(WIDE, PLACES, BY_NAME), NARROW), "p.label", "b.n"),
    WITHOUT,
    select(WITHOUT, "a.n", "a.src"),
    select(Join(WITHOUT, C, equal(A.ref("a.src"), C.ref("c.src"))), "a.n", "c.src"),
    Negation(A, NARROW, (("a.n", "b.n"), ("a.src", "b.src"))),
    Distinct(select(WIDE, "a.src")),
    Intersect(select(WIDE, "a.src"), select(NARROW, "b.src")),
    counts(WIDE),
    counts(A, TimeWindow(5, 2)),
    counts(A, TimeWindow(3, 4)),
    counts(WIDE, TimeWindow(4, 3)),
    counts(A, TimeWindow(4, 4, early=True)),
    counts(A, RowWindow(3, 2)),
    select(SlidingRows(A, 2), "a.src"),
    RelationJoin(WIDE, PEOPLE, BY_NAME),
    RelationJoin(A, PLACES, BY_NAME),
    select(RelationJoin(SlidingRows(A, 3), PLACES, BY_NAME), "p.label"),
    select(RelationJoin(WITHOUT, PLACES, BY_NAME), "p.label"),
    Sliding(query(select(counts(A, TimeWindow(4, 4)), "a.src", "window_end")), 5),
    select(query(select(counts(WIDE), "a.src")), "q.src"),
)


@UNHURRIED
@given(plans_with_data(data_sets=3), st.data())
def test_rows_outside_the_backward_lineage_of_an_output_do_not_matter(trial: Trial, data: Any) -> None:
    check_backward(trial.plan, trial.cases, FromHypothesis(data.draw))


@UNHURRIED
@given(plans_with_data(data_sets=3), st.data())
def test_a_change_touches_nothing_outside_its_forward_lineage(trial: Trial, data: Any) -> None:
    check_forward(trial.plan, trial.cases, FromHypothesis(data.draw))


@UNHURRIED
@given(plans_with_data(data_sets=3), st.data())
def test_the_rows_of_a_replay_suffice(trial: Trial, data: Any) -> None:
    check_replay(trial.plan, trial.cases, FromHypothesis(data.draw))


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_every_operator_on_many_data_sets(number: int) -> None:
    rng = random_for(f"{__name__} {number}")
    maker = Maker(FromRandom(rng), timed=False)
    plan = PLANS[number]
    for check in (check_backward, check_forward, check_replay):
        check(plan, [maker.data(plan) for _ in range(60)], maker.choose)


def check_backward(plan: Plan, cases: Sequence[Mapping[str, list[Row]]], choose: Choices) -> None:
    plan, data = parted_all(plan, cases)
    at = instants(plan)
    answers = seen(plan, data, at)
    regions, fewer = [], []
    for case, rows in enumerate(data):
        outputs = [row for each in at for row in answers[case, each]]
        regions.append(some_region(plan, outputs, choose))
        fewer.append(only(plan, rows, [reads_through_queries(plan, backward(plan, regions[-1]))]))
    parts = seen(plan, fewer, at)
    for case, region in enumerate(regions):
        inside = Within(plan, region)
        for each in at:
            whole, part = ([row for row in found[case, each] if inside(each, row)] for found in (answers, parts))
            assert alike(whole, part), (plan, region, backward(plan, region), each, whole, part)


def parted_all(plan: Plan, cases: Sequence[Mapping[str, list[Row]]]) -> tuple[Plan, list[dict[str, list[Row]]]]:
    parts = [parted(plan, rows) for rows in cases]
    return parts[0][0], [rows for _, rows in parts]


def some_region(plan: Plan, outputs: list[Seen], choose: Choices) -> Extent:
    """Any interval, and values that some output has."""
    values: dict[str, Any] = {}
    if outputs:
        names = [(place, each.name) for place, each in enumerate(plan.fields) if is_exact(each.type)]
        _, shown = choose.one(outputs)
        values = {name: shown[place] for place, name in names if choose.number(0, 3) == 3}
    return Extent(extent_axis(plan), some_interval(plan, choose), values)


def some_interval(plan: Plan, choose: Choices) -> Interval:
    unit = 60_000_000 if scans_of(plan)[0].source.timed else 1
    start = choose.number(-3, LATEST + 3) * unit
    if choose.number(0, 4) == 0:
        return EVERYTHING
    return Interval(start, start + choose.one([1, 2, 4]) * unit - choose.one([0, unit - 1]))


@dataclass(frozen=True)
class Edit:
    """Data before and after one row of one scan came, went or was replaced, and the changes that say so."""

    path: QueryPath
    before: dict[str, list[Row]]
    after: dict[str, list[Row]]
    changes: list[InputChange]


def some_edit(plan: Plan, rows: dict[str, list[Row]], choose: Choices, *, near: bool = False) -> Edit | None:
    """One row of one scan comes, goes or is replaced; with `near` of a scan that is in the plan itself."""
    paths = [path for path in leaves(plan) if not near or len(path) == 1]
    if not paths:
        return None
    path = choose.one(paths)
    scan = leaves(plan)[path]
    name, there = scan.source.name, rows[scan.source.name]
    kind = choose.one(["replace", "delete", "insert"]) if there else "insert"
    if kind == "insert":
        row = new_row(scan, choose)
        if identity(scan, row) in [identity(scan, each) for each in there]:
            return None
        after = {**rows, name: [*there, row]}
        return Edit(path, rows, after, [changed(path, scan, row, after[name], choose)])
    row = choose.one(there)
    rest = [each for each in there if each is not row]
    change = changed(path, scan, row, there, choose)
    if kind == "delete":
        return Edit(path, rows, {**rows, name: rest}, [change])
    fixed = (*scan.source.key, scan.source.order)
    new = {column: row[column] if column in fixed else value for column, value in new_row(scan, choose).items()}
    after = {**rows, name: [*rest, new]}
    return Edit(path, rows, after, [change, changed(path, scan, new, after[name], choose)])


def identity(scan: Scan, row: Row) -> tuple[Any, ...]:
    """What no two rows have in common: of a relation the key together with the beginning of the version."""
    key = tuple(row[name] for name in scan.source.key)
    return (*key, row["since"]) if scan.source.kind.is_relation else key


def new_row(scan: Scan, choose: Choices) -> Row:
    unit = 60_000_000 if scan.source.timed else 1
    moment = choose.number(-2, LATEST) * unit
    if scan.source.kind.is_relation:
        name, label = choose.one(["x", "y", "", "z"]), choose.one(["L", "M", None])
        return {"name": name, "label": label, "since": moment, "gone": choose.one([False, None, True])}
    return {
        "time": moment,
        "id": choose.number(0, 9),
        "src": choose.one(["x", "y", None, ""]),
        "n": choose.one([1, 2, 0, None, -1]),
        "x": choose.one([1.5, 2.0, 0.0, -0.0, None]),
        "price": choose.one([Decimal("1.50"), Decimal("2.00"), None]),
        "ok": choose.one([True, False, None]),
    }


def changed(path: QueryPath, scan: Scan, row: Row, rows: list[Row], choose: Choices) -> InputChange:
    """A change of the row that tells of all, some or none of its values."""
    known = choose.one(["all", "some", "key", "none"])
    told = {
        scan.column(name): value
        for name, value in row.items()
        if known == "all" or (known == "some" and choose.number(0, 1)) or (known == "key" and name in scan.source.key)
    }
    begin = row[scan.source.order or ""]
    until = ends(scan, row, rows) if scan.source.kind.is_relation else HIGHEST
    return InputChange(
        path[-1], rows_starting_in(Interval(begin, begin + 1), told, last_end=None if until == HIGHEST else until)
    )


def check_forward(plan: Plan, cases: Sequence[Mapping[str, list[Row]]], choose: Choices) -> None:
    plan, data = parted_all(plan, cases)
    edits = [edit for rows in data if (edit := some_edit(plan, rows, choose)) is not None]
    at = instants(plan)
    found = seen(plan, [rows for edit in edits for rows in (edit.before, edit.after)], at)
    for number, edit in enumerate(edits):
        regions = [forward_through_queries(plan, edit.path, change) for change in edit.changes]
        inside = [Within(plan, region) for region in regions]
        for each in at:
            for row in chain(*difference(found[2 * number, each], found[2 * number + 1, each])):
                assert any(within(each, row) for within in inside), (plan, edit.changes, regions, each, row)


def check_replay(plan: Plan, cases: Sequence[Mapping[str, list[Row]]], choose: Choices) -> None:
    plan, data = parted_all(plan, cases)
    edits = [edit for rows in data if (edit := some_edit(plan, rows, choose, near=True)) is not None]
    replays = [
        [found for change in edit.changes if (found := replay_scope(plan, change)) is not None] for edit in edits
    ]
    states = []
    for edit, wanted in zip(edits, replays, strict=True):
        reads = [reads_through_queries(plan, each.reads) for each in wanted]
        states += [edit.before, edit.after, only(plan, edit.before, reads), only(plan, edit.after, reads)]
    at = instants(plan)
    found = seen(plan, states, at)
    for number, wanted in enumerate(replays):
        for each in at:
            check_replayed(plan, wanted, each, [found[4 * number + state, each] for state in range(4)])


def check_replayed(plan: Plan, wanted: list[ReplayScope], at: int, answers: list[list[Seen]]) -> None:
    """The answers before and after a change, and both again from the rows of the replay."""
    before, after, before_replayed, after_replayed = answers
    touched = [Within(plan, each.touched) for each in wanted]
    changes = (difference(before, after), difference(before_replayed, after_replayed))
    for differs, replayed in zip(*changes, strict=True):
        inside = [row for row in replayed if any(within(at, row) for within in touched)]
        assert alike(differs, inside), (plan, wanted, at, differs, replayed)
    for within in (within for within, each in zip(touched, wanted, strict=True) if each.whole):
        for whole, part in ((before, before_replayed), (after, after_replayed)):
            rows = [[row for row in each if within(at, row)] for each in (whole, part)]
            assert alike(*rows), (plan, wanted, at, rows)
