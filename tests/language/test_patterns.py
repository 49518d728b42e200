"""Update patterns: the five rules on examples, and what they mean on random plans."""

from __future__ import annotations

import random

import pytest

from errata.language.nodes import (
    Distinct,
    Filter,
    Intersect,
    Join,
    Negation,
    RelationJoin,
    RowWindow,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, SourceKind, walk_plan
from errata.language.times import row_times
from errata.model.results import UpdatePattern
from fixtures.plans.links import column, counted, equal, link, number, on_src, people, query, select
from fixtures.plans.maker import random_case

A, B = link("a"), link("b")
WIDE, NARROW = Sliding(A, 20), Sliding(B, 5)
PAIRS = on_src(WIDE, NARROW)
HELD = counted(WIDE, None, "a.src")
WITHOUT = Negation(WIDE, NARROW, (("a.src", "b.src"),))
TUMBLING = TimeWindow(5, 5)
MON, WKS, WK, KEYED, STR = UpdatePattern


def on_name(left: Plan, kind: SourceKind) -> RelationJoin:
    return RelationJoin(left, people(kind), equal(left.ref("a.src"), people(kind).ref("p.name")))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        pytest.param(A, MON, id="a stream"),
        pytest.param(WIDE, WKS, id="a window"),
        pytest.param(Sliding(WIDE, 3), WKS, id="a window over a window"),
        pytest.param(Filter(WIDE, equal(column("a.n"), number(1))), WKS, id="rule 1: selection"),
        pytest.param(select(WIDE, "a.src"), WKS, id="rule 1: projection"),
        pytest.param(on_name(WIDE, SourceKind.NRR), WKS, id="rule 1: a join with an NRR"),
        pytest.param(on_name(A, SourceKind.NRR), MON, id="a join of a stream with an NRR"),
        pytest.param(on_name(PAIRS, SourceKind.NRR), WK, id="a join of pairs with an NRR"),
        pytest.param(on_name(WITHOUT, SourceKind.NRR), STR, id="a join of what is strict with an NRR"),
        pytest.param(Union((WIDE, Sliding(B, 20))), WKS, id="rule 2: windows of one size"),
        pytest.param(Union((WIDE, NARROW)), WK, id="windows of two sizes"),
        pytest.param(Union((A, NARROW)), WK, id="with and without a window"),
        pytest.param(Union((A, B)), MON, id="streams"),
        pytest.param(Union((select(WIDE, "a.n"), select(WITHOUT, "a.n"))), STR, id="rule 2: with what is strict"),
        pytest.param(PAIRS, WK, id="rule 3: a join"),
        pytest.param(Join(A, NARROW), WK, id="a join of a stream and a window"),
        pytest.param(Join(A, B), MON, id="a join of streams"),
        pytest.param(Sliding(Join(A, B), 5), WKS, id="a window over pairs of streams"),
        pytest.param(Sliding(PAIRS, 3), WK, id="a window over pairs"),
        pytest.param(Distinct(select(WIDE, "a.src")), WK, id="rule 3: distinct"),
        pytest.param(Distinct(select(A, "a.src")), MON, id="distinct over a stream"),
        pytest.param(Distinct(select(WITHOUT, "a.src")), STR, id="distinct over what is strict"),
        pytest.param(Intersect(select(WIDE, "a.n"), select(NARROW, "b.n")), WK, id="rule 3: intersection"),
        pytest.param(Intersect(select(A, "a.n"), select(B, "b.n")), MON, id="intersection of streams"),
        pytest.param(HELD, KEYED, id="rule 4: group-by"),
        pytest.param(counted(WITHOUT, None, "a.src"), KEYED, id="rule 4: group-by over what is strict"),
        pytest.param(counted(HELD, None, "a.src"), KEYED, id="group-by over group-by"),
        pytest.param(select(HELD, "a.src"), KEYED, id="projection of what is keyed"),
        pytest.param(query(select(HELD, "a.src")), KEYED, id="a query that is keyed"),
        pytest.param(Filter(HELD, equal(column("count(*)"), number(1))), STR, id="having"),
        pytest.param(Distinct(select(HELD, "a.src")), STR, id="distinct over what is keyed"),
        pytest.param(Union((select(HELD, "a.src"), select(B, "b.src"))), STR, id="union with what is keyed"),
        pytest.param(Join(HELD, B), STR, id="join with what is keyed"),
        pytest.param(counted(A, TUMBLING), MON, id="windows that close"),
        pytest.param(counted(A, TimeWindow(5, 5, early=True)), KEYED, id="early windows"),
        pytest.param(counted(WIDE, TUMBLING), KEYED, id="windows over rows that expire"),
        pytest.param(Sliding(counted(A, TUMBLING), 50), WKS, id="a window over windows that closed"),
        pytest.param(SlidingRows(A, 3), STR, id="a window over rows"),
        pytest.param(counted(A, RowWindow(3, 1)), STR, id="row windows"),
        pytest.param(WITHOUT, STR, id="rule 5: negation"),
        pytest.param(Negation(A, B, (("a.src", "b.src"),)), STR, id="rule 5: negation over streams"),
        pytest.param(on_name(WIDE, SourceKind.RETROACTIVE), STR, id="rule 5: a join with a relation"),
        pytest.param(people(SourceKind.NRR), KEYED, id="a relation"),
    ],
)
def test_the_pattern_of(plan: Plan, expected: UpdatePattern) -> None:
    assert update_pattern(plan) is expected


def test_both_orders_of_the_papers_query_5() -> None:
    # Figure 6: negation pulled up leaves the join weak, pushed down it makes the join strict.
    c = Sliding(link("c"), 20)
    up = Negation(Join(WIDE, c, equal(WIDE.ref("a.src"), c.ref("c.src"))), NARROW, (("a.src", "b.src"),))
    down = Join(WITHOUT, c, equal(WITHOUT.ref("a.src"), c.ref("c.src")))
    assert [update_pattern(each) for each in (up.left, up)] == [WK, STR]
    assert [update_pattern(each) for each in (down.left, down)] == [STR, STR]


def test_what_the_patterns_promise_of_ends_is_so() -> None:
    rng = random.Random(5)
    found = set()
    for _ in range(150):
        for node in walk_plan(random_case(rng).plan):
            known, times = update_pattern(node), row_times(node)
            found.add(known)
            if known is MON and times.happened:
                assert times.for_ever
            if known is WKS:
                assert times.happened
                assert times.exact
                assert times.longest is not None
    assert found == set(UpdatePattern)
