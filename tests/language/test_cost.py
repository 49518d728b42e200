"""Costs are the formulas of Golab and Özsu (2005, 5.4.1) over estimates that can be worked out by hand."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from errata.language.cost import DefaultStatistics, NodeCost, PlanCost, plan_cost
from errata.language.estimates import expected_distinct, expected_surplus, selectivity
from errata.language.nodes import Join, Negation, Sliding
from errata.language.plan import Plan, walk_plan
from errata.language.queries import query_source, read_query
from errata.language.rewrite import rewrite_plan
from fixtures.paper_sources import paper_sources
from fixtures.plans.maker import random_case


@dataclass
class Known:
    """Statistics in dictionaries."""

    rates: dict[str, float] = field(default_factory=dict)
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def rate(self, source: str) -> float | None:
        return self.rates.get(source)

    def distinct(self, source: str, column: str) -> float | None:
        return self.values.get((source, column))

    def rows(self, source: str) -> float | None:
        return self.counts.get(source)


KNOWN = Known(
    rates={"link1": 2.0, "link2": 1.0, "link3": 1.0, "quotes": 4.0, "companies": 0.01, "rates": 0.5},
    values={("link1", "src"): 10, ("link2", "src"): 20, ("link1", "protocol"): 4, ("quotes", "symbol"): 50},
    counts={"companies": 50, "rates": 30},
)


def read(text: str) -> Plan:
    return read_query(text, "q", paper_sources())


def of(found: PlanCost, kind: type[Plan]) -> NodeCost:
    return next(each for each in found.by_node if isinstance(each.node, kind))


def numbers(text: str, *, below: bool = False, known: Known = KNOWN) -> tuple[float, float, float]:
    """Rate, size and cost of what is below the projection of a query, or of what is below that."""
    nodes = plan_cost(read(text), known).by_node
    found = nodes[2 if below else 1]
    return (round(found.rate, 6), round(found.size, 6), round(found.cost, 6))


WINDOW = "sliding(link1, '10 seconds')"


def test_a_window_has_what_comes_while_it_lasts_and_costs_nothing() -> None:
    assert numbers(f"SELECT src FROM {WINDOW}") == (2.0, 20.0, 0.0)
    assert numbers("SELECT src FROM sliding_rows(link1, 5)") == (2.0, 5.0, 4.0)
    assert numbers("SELECT value FROM sliding(ticks, 5)") == (1.0, 5.0, 0.0)


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("src = 'x'", 1 / 10),
        ("src <> 'x'", 9 / 10),
        ("bytes > 3", 1 / 3),
        ("src IN ('x', 'y')", 2 / 10),
        ("src LIKE 'x%'", 1 / 4),
        ("src IS NULL", 1 / 20),
        ("NOT src = 'x'", 9 / 10),
        ("src = 'x' AND protocol = 'ftp'", 1 / 40),
        ("src = 'x' OR protocol = 'ftp'", 1 - 9 / 10 * 3 / 4),
        ("src = dst", 1 / 100),
        ("TRUE", 1.0),
        ("FALSE", 0.0),
    ],
)
def test_a_filter_lets_a_part_through(condition: str, part: float) -> None:
    found = numbers(f"SELECT src FROM {WINDOW} WHERE {condition}")
    assert found == pytest.approx((2 * part, 20 * part, 2.0))


def test_a_join_costs_the_size_of_each_side_for_each_row_that_comes_there() -> None:
    found = numbers(f"SELECT a.src FROM {WINDOW} AS a JOIN sliding(link2, '30 seconds') AS b ON a.src = b.src")
    # One value in 20 meets: λ1 N2 + λ2 N1 pairs come, N1 N2 count.
    assert found == pytest.approx(((2 * 30 + 1 * 20) / 20, 20 * 30 / 20, 2 * 20 + 1 * 30))


def test_distinct_looks_through_half_of_what_it_has_put_out() -> None:
    (top, *_) = plan_cost(read(f"SELECT DISTINCT src FROM {WINDOW}"), KNOWN).by_node
    expected = 10 * (1 - math.exp(-20 / 10))
    assert top.size == pytest.approx(expected)
    assert top.cost == pytest.approx(2 * expected / 2)


def test_distinct_over_strict_input_keeps_the_input_and_reads_negative_tuples() -> None:
    (top, *_) = plan_cost(read("SELECT DISTINCT src FROM sliding_rows(link1, 20)"), KNOWN).by_node
    assert top.cost == pytest.approx(2 * 2 * (20 + 10 * (1 - math.exp(-2))) / 2)


def test_a_group_is_recomputed_twice_for_each_row() -> None:
    rate, size, costs = numbers(f"SELECT src, count(*) AS n FROM {WINDOW} GROUP BY src")
    assert (rate, costs) == (4.0, 4.0)
    assert size == pytest.approx(10 * (1 - math.exp(-2)), abs=1e-6)
    assert numbers(f"SELECT src, min(dst) AS n FROM {WINDOW} GROUP BY src")[2] > costs


def test_windows_are_published_once_for_each_slide() -> None:
    found = of(plan_cost(read("SELECT count(*) AS n FROM link1 GROUP BY window(time, '1 minute')"), KNOWN), Plan).rate
    assert found == pytest.approx(1 / 60)
    assert numbers("SELECT src, count(*) AS n FROM link1 GROUP BY src, row_window(10, 5)")[0] == pytest.approx(2 / 5)


def test_negation_searches_its_counts_and_what_it_takes_back() -> None:
    text = "SELECT n.src FROM negation(sliding(link1, '10 seconds'), sliding(link2, '10 seconds'), 'src') AS n"
    found = of(plan_cost(read(text), KNOWN), Negation)
    mine, theirs = expected_distinct(20, 10), expected_distinct(10, 20)
    shared = min(1, theirs / mine) / 2
    counted = 2 * 2 * math.log2(mine) + 2 * 1 * math.log2(theirs)
    assert found.cost == pytest.approx(counted + 2 * 1 * shared)
    assert 10 < found.size < 20


def test_what_is_above_strict_input_costs_more_the_more_of_it_ends_without_notice() -> None:
    def joined(rates: dict[str, float]) -> NodeCost:
        text = """SELECT q.symbol, p.price FROM sliding(quotes, '100 seconds') AS q JOIN companies ON
        q.symbol = companies.symbol JOIN sliding(quotes, '10 seconds') AS p ON q.symbol = p.symbol"""
        return of(plan_cost(read(text), Known({**KNOWN.rates, **rates}, KNOWN.values, KNOWN.counts)), Join)

    still, busy = joined({"companies": 0.0}), joined({"companies": 500.0})
    below = 4 * 10
    left = (4 + 0.0) * 400
    assert still.cost == pytest.approx(left + 4 * below)
    assert busy.cost > 2 * still.cost


def test_a_relation_that_is_not_retroactive_is_only_looked_up() -> None:
    text = "SELECT q.symbol FROM sliding(quotes, '10 seconds') AS q JOIN {0} ON q.symbol = {0}.{1}"
    assert numbers(text.format("rates", "currency"))[2] == pytest.approx(4 * math.log2(2 + 30), abs=1e-6)
    assert numbers(text.format("companies", "symbol"))[2] == pytest.approx(4 * 40 + 0.01 * 50)


def test_what_another_query_gives_is_estimated_from_its_plan_unless_it_is_known() -> None:
    sources = dict(paper_sources())
    sources["counts"] = query_source("counts", read_query("SELECT src FROM link1 WHERE src = 'x'", "c", sources))
    plan = read_query("SELECT src FROM counts", "q", sources)
    assert of(plan_cost(plan, KNOWN), type(plan)).rate == pytest.approx(2 / 10)
    assert of(plan_cost(plan, Known({"counts": 7.0})), type(plan)).rate == 7.0


def test_numbers_are_the_same_each_time_and_none_is_negative() -> None:
    rng = random.Random(5)
    for _ in range(80):
        plan = random_case(rng).plan
        found = plan_cost(plan)
        assert found == plan_cost(plan, DefaultStatistics())
        assert [each.node for each in found.by_node] == list(walk_plan(plan))
        assert found.total == pytest.approx(sum(each.cost for each in found.by_node))
        assert all(min(each.rate, each.size, each.cost) >= 0 for each in found.by_node)
        assert math.isfinite(found.total)


def test_streams_without_rows_cost_nothing() -> None:
    empty = Known(dict.fromkeys(KNOWN.rates, 0.0), {}, dict.fromkeys([*KNOWN.rates, "ticks"], 0.0))
    text = (
        "SELECT n.src FROM negation(sliding(link1, '10 seconds'), link2, 'src') AS n JOIN link3 AS c ON n.src = c.src"
    )
    assert plan_cost(read(text), empty).total == 0


def test_the_surplus_of_one_count_over_another() -> None:
    assert expected_surplus(0, 0) == 0
    assert expected_surplus(1000, 10) == pytest.approx(990, rel=1e-6)
    assert 0 < expected_surplus(10, 10) < 10
    assert expected_surplus(10, 1000) == pytest.approx(0, abs=1e-6)


def test_no_condition_lets_all_through() -> None:
    assert selectivity(None, {}) == 1.0


def test_costs_choose_where_the_negation_stands() -> None:
    text = """SELECT n.dst AS dst FROM negation(sliding(link1, '{} seconds'), sliding(link2, '{} seconds'), 'src') AS n
    JOIN (SELECT DISTINCT src FROM sliding(link3, '100 seconds')) AS c ON n.src = c.src"""
    for mine, theirs, lifted in ((2000, 20, True), (20, 2000, False)):
        plan = read(text.format(mine, theirs))
        after = rewrite_plan(plan, KNOWN)
        assert ("pull_up_negation" in [step.rule for step in after.steps]) is lifted
        assert plan_cost(after.plan, KNOWN).total <= plan_cost(plan, KNOWN).total


def test_costs_keep_distinct_above_a_join_where_it_does_not_pay_below() -> None:
    text = """SELECT DISTINCT a.src AS src, b.src AS there FROM sliding(link1, '10 seconds') AS a
    JOIN sliding(link2, '10 seconds') AS b ON a.src = b.src"""
    few = Known({"link1": 2.0, "link2": 2.0}, {("link1", "src"): 3, ("link2", "src"): 3})
    many = Known({"link1": 2.0, "link2": 2.0}, {("link1", "src"): 1e6, ("link2", "src"): 1e6})
    steps = [[step.rule for step in rewrite_plan(read(text), known).steps] for known in (few, many)]
    assert ["place_distinct" in each for each in steps] == [True, False]


def test_a_span_is_counted_in_units_where_event_time_is_a_number() -> None:
    assert of(plan_cost(read("SELECT value FROM sliding(ticks, 7)")), Sliding).size == 7.0
