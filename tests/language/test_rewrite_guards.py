"""What must stay as it is, with the data that show why: for each rule, plans just beyond what it may change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from errata.language.expr import BOOLEAN, STRING, Call, Cast, Expr, Lit, Ref
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan
from errata.language.plan_text import plan_tree
from errata.language.rewrite import RULES, rewrite_plan
from errata.language.rewrite.lift_negation import negation_after_join, relation_joins
from errata.language.rewrite.place_distinct import distinct_before_join
from errata.language.rewrite.rule import treats_equals_alike
from errata.language.rewrite.simplify_patterns import simplify_patterns
from fixtures.duck import answers
from fixtures.plans.choices import pool
from fixtures.plans.rewrite_shapes import assert_same, differ

BY_NAME = {rule.name: rule for rule in RULES}
LINKS = pool(timed=False)


def link(name: str, alias: str, span: int | None = None) -> Plan:
    scan = Scan(LINKS[name], alias)
    return scan if span is None else Sliding(scan, span)


def row(at: int, number: int = 0, src: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"time": at, "id": number, "src": src, "n": 0, "x": None, "price": None, "ok": None} | more


def version(name: str, since: int, label: str = "L") -> dict[str, Any]:
    return {"name": name, "since": since, "label": label, "gone": False}


def equal(left: Plan, one: str, right: Plan, other: str) -> Expr:
    return Call("=", (left.ref(one), right.ref(other)), BOOLEAN)


def block(plan: Plan, **outputs: str) -> Projection:
    return Projection(plan, tuple(Output(name, plan.ref(of)) for name, of in outputs.items()))


def ends(plan: Plan, *names: str) -> Plan:
    grouped = Group(plan, (), tuple(Aggregate("last", plan.ref(name), plan.types[name]) for name in names))
    return Projection(
        grouped, tuple(Output(f"c{at}", grouped.ref(each.name)) for at, each in enumerate(grouped.fields))
    )


def negated() -> Negation:
    return Negation(link("link1", "a"), link("link2", "b"), (("a.src", "b.src"),))


def test_figure_6_is_no_equivalence_where_a_value_has_several_partners() -> None:
    left, partner = negated(), link("items", "c")
    plan = Join(left, partner, equal(left, "a.src", partner, "c.src"))
    lifted = Negation(Join(left.left, partner, plan.condition), left.right, left.columns, ("a.time", "a.id", "c.id"))
    data = {"link1": [row(1), row(2)], "link2": [row(3)], "items": [row(1, 1), row(1, 2)]}
    # One of two on the left is taken away: of the four pairs two stand, not three.
    assert [len(answers(each, [data], [3])[0, 3]) for each in (plan, lifted)] == [2, 3]
    assert negation_after_join(plan) is plan


def test_a_negation_comes_after_a_join_that_does_the_same_to_all_rows_of_a_value() -> None:
    left, partner = negated(), Distinct(block(link("items", "i", 2), **{"c.src": "i.src"}))
    for sides in ((left, partner), (partner, left)):
        plan = Join(*sides, equal(left, "a.src", partner, "c.src"))
        lifted = negation_after_join(plan)
        assert isinstance(lifted, Negation)
        assert lifted.rank == ("a.time", "a.id", "c.src")
        data = {"link1": [row(1, 5), row(1, 2), row(2, 1)], "link2": [row(1), row(4)], "items": [row(0), row(3, 3)]}
        assert_same(plan, lifted, [data])


def test_a_negation_stays_below_a_join_that_asks_for_more_than_the_value() -> None:
    left, partner = negated(), Distinct(block(link("items", "i"), **{"c.src": "i.src", "c.n": "i.n"}))
    value = equal(left, "a.src", partner, "c.src")
    two = Join(left, partner, value)
    assert negation_after_join(two) is two
    named = Join(left, partner, Call("and", (value, Call("is_not_null", (partner.ref("c.n"),), BOOLEAN)), BOOLEAN))
    assert negation_after_join(named) is named
    both = Join(left, partner, Call("and", (value, equal(left, "a.n", partner, "c.n")), BOOLEAN))
    assert negation_after_join(both) is both
    lifted = Negation(Join(left.left, partner, both.condition), left.right, left.columns, ("a.time", "a.id"))
    assert differ(both, lifted, {"link1": [row(1, n=1), row(2)], "link2": [row(3)], "items": [row(1)]})


def test_a_negation_is_not_lifted_where_its_rows_cannot_be_ordered_as_before() -> None:
    inner = link("link1", "s")
    later = Call("+", (inner.ref("s.time"), inner.ref("s.id")), inner.types["s.time"])
    outputs = (Output("a.src", inner.ref("s.src")), Output("a.id", inner.ref("s.id")), Output("a.later", later))
    items = Scan(LINKS["items"], "s")
    keyed = Projection(items, (Output("a.src", items.ref("s.src")), Output("a.id", items.ref("s.id"))))
    for left in (Projection(inner, outputs), keyed):
        negation = Negation(left, link("link2", "b"), (("a.src", "b.src"),))
        partner = Distinct(block(link("items", "i"), **{"c.src": "i.src"}))
        plan = Join(negation, partner, equal(left, "a.src", partner, "c.src"))
        lifted = negation_after_join(plan)
        # The key of the one has the time, hidden; that of the other has not.
        assert (lifted is plan) == (left is keyed)
    data = {"items": [row(1, 9), row(2, 3)], "link2": [row(3)], "link1": []}
    by_key = Negation(Join(keyed, partner, plan.condition), negation.right, negation.columns, keyed.key)
    assert differ(plan, by_key, data)


def test_a_negation_with_an_order_of_its_own_is_lifted_only_if_that_leaves_nothing_open() -> None:
    partner = Distinct(block(link("items", "i"), **{"c.src": "i.src"}))
    for rank, lifts in ((("a.n",), False), (("a.n", "a.id", "a.time"), True)):
        left = replace(negated(), rank=rank)
        plan = Join(left, partner, equal(left, "a.src", partner, "c.src"))
        assert (negation_after_join(plan) is not plan) is lifts


def relation_over(left: Plan, by: str, name: str, alias: str = "r") -> RelationJoin:
    scan = Scan(LINKS[name], alias)
    return RelationJoin(left, scan, equal(left, by, scan, f"{alias}.name"))


def test_rows_of_one_value_may_see_different_versions_of_a_relation_that_is_not_retroactive() -> None:
    plan = relation_over(negated(), "a.src", "places")
    left = negated()
    lifted = Negation(relation_over(left.left, "a.src", "places"), left.right, left.columns, ("a.time", "a.id"))
    data = {"link1": [row(1), row(6)], "link2": [row(2)], "places": [version("x", 5)]}
    # The row at 1 has no version and would not count any more; then the one at 6 would be taken away.
    assert [len(answers(each, [data], [6]).get((0, 6), [])) for each in (plan, lifted)] == [1, 0]
    assert relation_joins(plan) is plan
    retroactive = relation_over(negated(), "a.src", "people")
    assert isinstance(relation_joins(retroactive), Negation)


def test_a_relation_that_is_not_retroactive_stays_below_a_join() -> None:
    left, other = relation_over(link("link1", "a"), "a.src", "places"), link("items", "c")
    plan = block(Join(left, other, equal(left, "a.src", other, "c.src")), label="r.label", src="c.src")
    later = relation_over(Join(left.left, other, equal(left.left, "a.src", other, "c.src")), "a.src", "places")
    data = {"link1": [row(1)], "items": [row(6)], "places": [version("x", 0, "old"), version("x", 5, "new")]}
    assert differ(plan, block(later, label="r.label", src="c.src"), data)
    assert simplify_patterns(plan) == plan


STRICT = Scan(LINKS["link1"], "a")


def strict_first() -> Join:
    left, right = SlidingRows(STRICT, 5), link("link2", "b")
    return Join(left, right, equal(left, "a.n", right, "b.n"))


def swapped(plan: Join) -> Join:
    return Join(plan.right, plan.left, plan.condition)


TIES = {"link1": [row(1, 1, n=1), row(1, 2, n=2)], "link2": [row(1, 7, n=1), row(1, 4, n=2)], "items": [row(1)]}
"""The pairs (1, 7) and (2, 4), both of the same time: the one is younger by its right side, the other by its left."""


def test_joins_change_places_only_where_nobody_sees_it() -> None:
    join = strict_first()
    assert simplify_patterns(join) is join
    seen = block(join, n="a.n")
    assert simplify_patterns(seen) == block(swapped(join), n="a.n")
    assert_same(seen, simplify_patterns(seen), [TIES])
    assert simplify_patterns(Distinct(join)) == Distinct(join)
    assert simplify_patterns(block(Distinct(join), n="a.n")) != block(Distinct(join), n="a.n")


def test_joins_stay_where_keys_decide_which_row_is_the_last() -> None:
    plan = ends(strict_first(), "a.id", "b.id")
    assert simplify_patterns(plan) == plan
    assert differ(plan, ends(swapped(strict_first()), "a.id", "b.id"), TIES)


@pytest.mark.parametrize("made_distinct", [False, True])
def test_joins_stay_where_keys_decide_which_row_is_the_youngest(made_distinct: bool) -> None:
    def negated_join(join: Join) -> Plan:
        # The key of a distinct is its columns, in their order.
        left, less = Distinct(join) if made_distinct else join, link("items", "c")
        return block(Negation(left, less, (("a.src", "c.src"),)), a="a.id", b="b.id")

    plan = negated_join(strict_first())
    assert simplify_patterns(plan) == plan
    assert differ(plan, negated_join(swapped(strict_first())), TIES)


def windows_first() -> Join:
    """Rows that never cease to count, and yet have different patterns."""
    rows = Group(STRICT, (), (Aggregate("max", STRICT.ref("a.id"), STRICT.types["a.id"]),), RowWindow(1, 1), False)
    named = block(rows, **{"w.no": "window_no", "w.id": "max(a.id)"})
    right = link("link2", "b")
    return Join(named, right, equal(named, "w.id", right, "b.n"))


@pytest.mark.parametrize("window", ["sliding", "group"])
def test_joins_stay_below_windows_over_rows(window: str) -> None:
    def windowed(join: Join) -> Plan:
        if window == "sliding":
            return block(SlidingRows(join, 1), a="w.id", b="b.id")
        count = Aggregate("min", join.ref("b.id"), join.types["b.id"])
        grouped = Group(join, (), (count,), RowWindow(1, 1), timed=False)
        return block(grouped, no="window_no", b="min(b.id)")

    plan = windowed(windows_first())
    assert simplify_patterns(plan) == plan
    data = {"link1": [row(1, 1), row(2, 2)], "link2": [row(3, 9, n=1), row(3, 4, n=2)]}
    assert differ(plan, windowed(swapped(windows_first())), data)


def test_joins_stay_where_their_keys_stand_in_a_union() -> None:
    join = strict_first()
    names = {"a": "a.time", "b": "a.id", "c": "b.time", "d": "b.id"}
    plan = Union((block(join, **names), block(swapped(join), **names)))
    assert simplify_patterns(plan) == plan


def test_a_relation_join_moves_above_a_join_from_the_right_in_any_case() -> None:
    inner, left = relation_over(link("link1", "a"), "a.src", "people"), link("items", "c")
    join = Join(left, inner, equal(left, "c.src", inner, "a.src"))
    moved = simplify_patterns(join)
    assert isinstance(moved, RelationJoin)
    data = {"link1": [row(1), row(3)], "items": [row(2)], "people": [version("x", 2), version("x", 4, "M")]}
    assert_same(join, moved, [data])
    from_left = swapped(join)
    assert simplify_patterns(from_left) is from_left


# Equal is not the same: −0.0 and 0.0


ZERO = Call("=", (Ref("x", link("link1", "x").types["x.x"]), Lit(0.0, link("link1", "x").types["x.x"])), BOOLEAN)


@pytest.mark.parametrize("text", [False, True])
def test_what_tells_equal_values_apart_stays_above_what_takes_them_for_one(text: bool) -> None:
    def over(plan: Plan, name: str) -> Filter:
        ref = plan.ref(name)
        if text:
            return Filter(plan, Call("=", (Cast(ref, STRING), Lit("-0.0", STRING)), BOOLEAN))
        return Filter(plan, Call("=", (ref, Lit(0.0, ref.type)), BOOLEAN))

    one, other = block(link("link1", "a"), x="a.x"), block(link("link2", "b"), x="b.x")
    grouped = Group(one, (one.ref("x"),), (Aggregate("count", None, one.types["x"]),))
    plans = [Distinct(one), Intersect(one, other), Negation(one, other, (("x", "x"),)), grouped]
    for plan in plans:
        given = over(plan, "x")
        after = rewrite_plan(given, rules=[BY_NAME["push_predicates"]]).plan
        assert (after == given) is text, plan_tree(after)


def test_distinct_goes_below_no_join_over_what_tells_equal_values_apart() -> None:
    join = Join(link("link1", "a"), link("link2", "b"))
    plain = Distinct(block(join, x="a.x", y="b.n"))
    assert distinct_before_join(plain) is not plain
    told = Distinct(Projection(join, (Output("x", Cast(join.ref("a.x"), STRING)), Output("y", join.ref("b.n")))))
    assert distinct_before_join(told) is told


def test_a_negation_is_not_lifted_over_what_tells_equal_values_apart() -> None:
    left = Negation(link("link1", "a"), link("link2", "b"), (("a.src", "b.src"), ("a.x", "b.x")))
    partner = Distinct(block(link("items", "i"), **{"c.src": "i.src"}))
    value = equal(left, "a.src", partner, "c.src")
    as_text = Call("<>", (Cast(left.ref("a.x"), STRING), Lit("-0.0", STRING)), BOOLEAN)
    as_number = Call("<>", (left.ref("a.x"), Lit(0.0, left.types["a.x"])), BOOLEAN)
    for more, lifts in ((as_text, False), (as_number, True)):
        plan = Join(left, partner, Call("and", (value, more), BOOLEAN))
        assert (negation_after_join(plan) is not plan) is lifts


def test_only_floating_point_numbers_differ_though_equal() -> None:
    scan = link("link1", "a")
    as_text = {name: Call("=", (Cast(scan.ref(name), STRING), Lit("0", STRING)), BOOLEAN) for name in scan.types}
    alike = {name: treats_equals_alike(each, scan.types) for name, each in as_text.items()}
    assert [name for name, each in alike.items() if not each] == ["a.x"]
    assert treats_equals_alike(as_text["a.x"], ["a.src"])


# Distinct, and constants


def test_distinct_stays_where_it_makes_another_key_or_takes_own_times_away() -> None:
    place = [BY_NAME["place_distinct"]]
    scan = link("link1", "a")
    all_of_it = block(scan, time="a.time", id="a.id")
    assert rewrite_plan(Distinct(all_of_it), rules=place).steps == ()
    keyed = Distinct(block(scan, time="a.time", id="a.id", src="a.src"))
    less = link("link2", "b")
    rest = Negation(keyed, less, (("src", "b.src"),))
    assert rewrite_plan(block(rest, id="id"), rules=place).steps == ()
    assert rewrite_plan(block(Negation(less, keyed, (("b.src", "src"),)), id="b.id"), rules=place).steps != ()
    repeated = Distinct(block(scan, src="a.src"))
    assert rewrite_plan(block(Negation(less, repeated, (("b.src", "src"),)), id="b.id"), rules=place).steps == ()


def test_distinct_stays_where_the_order_of_its_columns_decides_which_row_is_the_youngest() -> None:
    inner = Distinct(block(link("link1", "a"), x="a.id", y="a.n", z="a.src"))
    turned, less = block(inner, y="y", x="x", z="z"), link("link2", "b")
    plan, without = (
        block(Negation(left, less, (("z", "b.src"),)), x="x", y="y", z="z") for left in (Distinct(turned), turned)
    )
    assert rewrite_plan(plan, rules=[BY_NAME["place_distinct"]]).steps == ()
    assert differ(plan, without, {"link1": [row(1, 1, n=2), row(1, 2, n=1)], "link2": [row(1)]})
    seen = block(Distinct(turned), x="x", y="y", z="z")
    assert rewrite_plan(seen, rules=[BY_NAME["place_distinct"]]).plan == block(turned, x="x", y="y", z="z")


def test_a_constant_is_carried_only_where_it_holds_for_all_rows() -> None:
    def only(plan: Plan, name: str, value: str) -> Plan:
        return Filter(plan, Call("=", (plan.ref(name), Lit(value, STRING)), BOOLEAN))

    right = link("items", "c")
    without = Negation(link("link1", "a"), only(link("link2", "b"), "b.src", "x"), (("a.src", "b.src"),))
    different = Call("<>", (Ref("a.src", STRING), Ref("c.src", STRING)), BOOLEAN)
    plans: list[Plan] = [
        Join(without, right, equal(without, "a.src", right, "c.src")),
        Join(only(link("link1", "a"), "a.src", "x"), right, different),
        Filter(
            Join(link("link1", "a"), right, different), Call("<>", (Ref("a.src", STRING), Lit("x", STRING)), BOOLEAN)
        ),
    ]
    data = {
        "link1": [row(1, 1, "x"), row(2, 2, "y"), row(3, 3, None)],
        "link2": [row(1, 1, "x"), row(2, 2, "z")],
        "items": [row(1, 1, "x"), row(2, 2, "y"), row(4, 3, None)],
    }
    for plan in plans:
        assert_same(plan, rewrite_plan(plan, rules=[BY_NAME["push_predicates"]]).plan, [data])


def test_a_condition_that_may_fail_sees_no_pair_that_it_does_not_see_now() -> None:
    join, right = strict_first(), link("items", "c")
    ratio = Call("/", (join.ref("b.x"), right.ref("c.x")), join.types["b.x"])
    for more, moves in ((Call("is_null", (ratio,), BOOLEAN), False), (equal(join, "b.x", right, "c.x"), True)):
        condition = Call("and", (equal(join, "b.n", right, "c.n"), more), BOOLEAN)
        below = simplify_patterns(block(Join(join, right, condition), n="a.n")).inputs[0].inputs[0]
        # What moves is asked of all pairs of b and c, also of those that have no a.
        assert (below == Join(join.right, right, condition)) is moves


def risky(plan: Plan, name: str) -> Expr:
    return Call("is_null", (Call("/", (plan.ref(name), plan.ref(name)), plan.types[name]),), BOOLEAN)


def test_joins_with_a_condition_that_may_fail_stay_where_they_are() -> None:
    partner = Distinct(block(link("items", "i"), **{"c.src": "i.src"}))
    left = replace(negated(), columns=(("a.src", "b.src"), ("a.x", "b.x")))
    value = equal(left, "a.src", partner, "c.src")
    lifted = Join(left, partner, Call("and", (value, risky(left, "a.x")), BOOLEAN))
    assert negation_after_join(lifted) is lifted
    inner = relation_over(link("link1", "a"), "a.src", "people")
    above = Join(
        link("items", "c"), replace(inner, condition=risky(inner, "a.x")), equal(inner, "a.src", partner, "c.src")
    )
    assert simplify_patterns(above) is above
    twice = relation_over(inner, "a.src", "places", "s")
    for condition, moves in ((twice.condition, True), (risky(inner, "a.x"), False)):
        plan = block(replace(twice, condition=condition), n="a.n")
        assert (relation_joins(plan) != plan) is moves


def test_a_constant_that_does_not_show_where_it_is_carried_is_not_carried() -> None:
    left, items = link("link1", "a"), link("items", "i")
    given = Filter(left, Call("=", (left.ref("a.src"), Lit("x", STRING)), BOOLEAN))
    computed = Projection(items, (Output("c.src", Call("upper", (items.ref("i.src"),), STRING)),))
    plan = Join(given, computed, equal(given, "a.src", computed, "c.src"))
    assert rewrite_plan(plan, rules=[BY_NAME["push_predicates"]]).plan == plan
