"""A drawing is whole, self-contained, and nothing in it lies over anything else."""

from __future__ import annotations

import copy
import itertools
import random
import re
from functools import cache
from xml.etree import ElementTree as ET

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from errata.language.explain.drawing import EDGE_STYLES, PILL_HEIGHT, PILL_WIDTH, to_svg
from errata.language.explain.drawing_layout import PlacedBlock, operator_block, place_blocks, text_width
from errata.language.explain.explanation import Explanation, explain_plan
from errata.language.expr import BOOLEAN, Call, Lit
from errata.language.nodes import Filter, Join, Output, Projection, Scan, Sliding, Union, scans_of
from errata.language.plan import Plan, walk_plan
from errata.language.plan_text import operator_text
from errata.language.queries import read_query
from errata.model.results import UpdatePattern
from fixtures.plans.choices import pool, stream
from fixtures.plans.maker import random_case

SVG = "{http://www.w3.org/2000/svg}"
NEGATION = """
SELECT n.time, n.src
FROM negation(sliding(link1, '20 minutes'), sliding(link2, '20 minutes'), 'src') AS n
JOIN sliding(items, '20 minutes') AS c ON n.src = c.src
WHERE c.n = 7
"""


def query(text: str) -> Plan:
    return read_query(text, "query.sql", pool(True))


def many(count: int) -> Plan:
    """A join of many streams, with as many columns."""
    plan: Plan = Sliding(Scan(stream("s0", True), "t0"), 7)
    for number in range(1, count):
        right: Plan = Sliding(Scan(stream(f"s{number}", True), f"t{number}"), 7)
        if number % 3 == 0:
            right = Filter(
                right, Call("=", (right.ref(f"t{number}.src"), Lit("ftp", right.types[f"t{number}.src"])), BOOLEAN)
            )
        condition = Call("=", (plan.ref(f"t{number - 1}.src"), right.ref(f"t{number}.src")), BOOLEAN)
        plan = Join(plan, right, condition)
    return Projection(plan, tuple(Output(f"src{number}", plan.ref(f"t{number}.src")) for number in range(count)))


def wide(count: int) -> Plan:
    branches = [Scan(stream(f"s{number}", True), f"t{number}") for number in range(count)]
    return Union(tuple(Projection(each, (Output("src", each.ref(f"{each.alias}.src")),)) for each in branches))


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


@cache
def explained(plan: Plan) -> Explanation:
    return explain_plan(plan, name="<a & b>")


def laid_out(plan: Plan) -> tuple[PlacedBlock, ...]:
    operators = explained(plan).before.operators
    return place_blocks(operators, [operator_block(each) for each in operators], gap=52)[0]


def overlap(one: PlacedBlock, other: PlacedBlock) -> bool:
    apart = (one.block.width + other.block.width) / 2
    below, above = max(one.y, other.y), min(one.y + one.block.height, other.y + other.block.height)
    return abs(one.x - other.x) < apart - 0.001 and below < above


PLANS = [
    query(NEGATION),
    many(20),
    wide(12),
    *(random_case(random.Random(seed), data_sets=0, depth=3).plan for seed in range(25)),
]


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_nothing_overlaps(plan: Plan) -> None:
    placed = laid_out(plan)
    assert not [(one, other) for one, other in itertools.combinations(placed, 2) if overlap(one, other)]
    for depth, row in itertools.groupby(sorted(placed, key=lambda each: each.depth), key=lambda each: each.depth):
        nodes = list(row)
        assert len({each.y for each in nodes}) == 1
        below = [each.y for each in placed if each.depth == depth + 1]
        assert all(each.y + each.block.height + PILL_HEIGHT < y for each in nodes for y in below)
    assert all(each.block.width > PILL_WIDTH and each.x >= each.block.width / 2 - 0.001 for each in placed)


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_drawing_is_well_formed_self_contained_and_always_the_same(plan: Plan) -> None:
    svg = to_svg(explained(plan))
    assert svg == to_svg(copy.deepcopy(explained(plan)))
    assert {each.tag.removeprefix(SVG) for each in ET.fromstring(svg).iter()} <= {
        *("svg", "title", "rect", "g", "text", "path"),
    }
    assert re.findall(r"https?:", svg) == ["http:"]  # the name of the SVG language
    assert "<a & b>" in texts(svg)


def test_every_edge_bears_its_pattern_and_every_operator_its_title() -> None:
    explanation = explain_plan(query(NEGATION))
    svg = to_svg(explanation)
    shown = [text for text in texts(svg) if text in EDGE_STYLES]
    operators = [*explanation.before.operators, *explanation.after.operators]
    patterns = [each.pattern.shown for each in operators]
    assert sorted(shown) == sorted([*patterns, *set(patterns)])  # the legend has each once
    titles = [each.text for each in ET.fromstring(svg).iter(f"{SVG}title")]
    assert titles == ["The plan of the query", *(operator_text(each.node) for each in operators)]
    assert {"as written", "rewritten"} <= set(texts(svg))


def test_a_plan_that_looks_as_written_is_drawn_once() -> None:
    plan = query("SELECT time, src FROM link1")
    explanation = explain_plan(plan)
    assert explanation.before.plan != explanation.after.plan  # columns that nothing needs are not read
    assert "as written" not in texts(to_svg(explanation))


def test_patterns_are_told_apart_without_colour() -> None:
    assert {each.shown for each in UpdatePattern} == set(EDGE_STYLES)
    assert len({each.line for each in EDGE_STYLES.values()}) == len(EDGE_STYLES)


def test_streams_and_relations_are_at_the_bottom() -> None:
    plan = query("SELECT a.time, p.label FROM link1 AS a JOIN people AS p ON a.src = p.name")
    placed = laid_out(plan)
    leaves = [each for each in placed if each.block.leaf is not None]
    assert [each.block.leaf for each in leaves] == [each.source.name for each in scans_of(plan)]
    assert min(each.y for each in leaves) == max(each.y for each in placed)
    assert [each.block.symbol for each in leaves] == ["stream as a", "retroactive relation as p"]
    assert [each.block.mark for each in placed if each.block.symbol == "join"] == ["R"]


def test_duplicate_elimination_bears_the_star_of_its_implementation() -> None:
    [light] = [each.block for each in laid_out(query("SELECT DISTINCT src FROM link1")) if each.block.symbol == "δ"]
    strict = query("SELECT DISTINCT src FROM sliding_rows(link1, 7)")
    [heavy] = [each.block for each in laid_out(strict) if each.block.symbol == "δ"]
    assert (light.mark, heavy.mark) == ("*", "")


def test_many_columns_are_cut_and_kept_in_the_title() -> None:
    plan = PLANS[1]
    placed = laid_out(plan)
    assert placed[0].block.lines[-1] == "…"
    assert placed[0].block.title == operator_text(plan)
    assert len(placed) == len(list(walk_plan(plan)))


@pytest.mark.parametrize(
    "words", ["negation on a.src = b.src AND c <= 'MWM'", "partitioned by expiry", "WWW iii 0123456789"]
)
@pytest.mark.parametrize("bold", [False, True])
def test_text_is_never_wider_than_measured(words: str, bold: bool) -> None:
    # DejaVu Sans is among the widest fonts that stand in for others.
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    drawn = TextPath((0, 0), words, size=13, prop=font).get_extents().width
    assert drawn <= text_width(words, 13) * (1.1 if bold else 1.0)
