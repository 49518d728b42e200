"""Estimates of corrected windows: certain bounds contain what plain Python computes from the live rows, whatever has
been appended, corrected and compacted, and whichever buckets have approximations; a sample of all rows is exact."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from errata.errors import UsageError
from errata.language.summaries import SketchKind
from errata.model.batch import Op
from errata.model.bucket import Layout, Role
from errata.model.reduction import ReducedArchives, SummaryDeclaration, SummaryTrigger
from errata.reduce import requests
from errata.reduce.approximate import EstimatedValue, WindowEstimate, WindowQuestion
from errata.reduce.summary_builds import build_summaries
from fixtures.chance import seeds
from fixtures.flows import Builder
from fixtures.layers import Layers, a_row, compacted, key, layers, plain
from fixtures.oracle.revision import Row

WINDOW = 10
KEPT = {"n": "count(*)", "top": "impact(price, 2)", "spread": "histogram(price, 2, 12, 5)"}
FUNCTIONS = ("count", "sum", "avg", "min", "max")


@pytest.fixture
def house_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    builder = Builder(tmp_path_factory.mktemp("estimates"))
    yield builder
    builder.close()


def kept(house_of: Builder, group: tuple[str, ...] = ("who",), **changes: Any) -> Layers:
    declared = SummaryDeclaration("kept", WINDOW, group, KEPT, when=changes.pop("when", SummaryTrigger.APPEND))
    stream = replace(plain("feed", **changes), reduced=ReducedArchives(summaries=(declared,)))
    return layers(house_of(), stream)


def estimate(done: Layers, windows: Sequence[int], group: tuple[str, ...] = ("who",)) -> WindowEstimate:
    price = done.stream.column("price")
    aggregates: dict[str, Any] = {f"{function}_price": (function, price) for function in FUNCTIONS}
    columns = tuple(map(done.stream.column, group))
    question = WindowQuestion("q", done.stream, WINDOW, columns, {"n": ("count", None), **aggregates})
    state = done.standing
    return WindowEstimate.begin(done.house.site, question, state, state.changed_in, np.array(sorted(windows)))


def right_values(done: Layers, group: tuple[str, ...] = ("who",)) -> dict[tuple[Any, ...], dict[str, float]]:
    of: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in done.seen():
        of[row["at"] // WINDOW * WINDOW, *(row[name] for name in group)].append(row)
    found = {}
    for place, rows in of.items():
        prices = [row["price"] for row in rows if row["price"] is not None]
        nothing = math.nan
        found[place] = {
            "n": len(rows),
            "count_price": len(prices),
            "sum_price": math.fsum(prices) if prices else nothing,
            "avg_price": math.fsum(prices) / len(prices) if prices else nothing,
            "min_price": min(prices, default=nothing),
            "max_price": max(prices, default=nothing),
        }
    return found


def assert_holds(found: Sequence[EstimatedValue], right: dict[tuple[Any, ...], dict[str, float]]) -> None:
    for each in found:
        nothing = 0.0 if each.column in ("n", "count_price") else math.nan
        truth = right.get((each.start, *each.group), {}).get(each.column, nothing)
        if math.isnan(truth):
            assert math.isnan(each.value), each
        else:
            assert each.low <= truth <= each.high, (each, truth)


def random_row(draw: random.Random, at: int, who: str) -> Row:
    return a_row(at, who, draw.choice([float(draw.randrange(0, 15)), draw.uniform(-3, 20)]))


def random_step(draw: random.Random, done: Layers, begun: int) -> set[int]:
    """An append, corrections, a compaction or a vacuum; the windows in which corrections are."""
    what, live = draw.choice(["bring", "correct", "correct", "compact", "vacuum"]), done.seen()
    taken = {(row["at"], row["who"]) for row in live}
    if what == "bring" or not live:
        places = {(begun + draw.randrange(40), draw.choice("ab")) for _ in range(draw.randrange(1, 25))} - taken
        if places:
            done.bring([random_row(draw, *place) for place in places])
    elif what == "compact":
        compacted(done, everything=draw.random() < 0.5)
    elif what == "vacuum":
        build_summaries(done.house.site, done.name)
    else:
        touched = set()
        revisions: list[tuple[Op, Row, Row]] = []
        for row in draw.sample(live, min(len(live), draw.randrange(1, 5))):
            touched.add(row["at"] // WINDOW * WINDOW)
            if draw.random() < 0.4:
                revisions.append((Op.DELETE, key(row["at"], row["who"]), {}))
            else:
                revisions.append((Op.REPLACE, random_row(draw, row["at"], row["who"]), {}))
        done.correct(*revisions)
        return touched
    return set()


@pytest.mark.parametrize("seed", seeds(__name__, 6))
def test_bounds_contain_the_corrected_results(house_of: Builder, seed: int) -> None:
    draw = random.Random(seed)
    layout = draw.choice([Layout.BUCKETS, Layout.RANDOMIZED])
    group = draw.choice([("who",), ()])
    when = draw.choice([*SummaryTrigger])
    done = kept(house_of, group, layout=layout, bucket_rows=draw.choice([6, 100]), when=when)
    requests.record_summary(done.house.site, done.standing.stream_id, "kept")
    touched: set[int] = set()
    for step in range(8):
        touched |= random_step(draw, done, step * 5)
        right, asked = right_values(done, group), estimate(done, [*touched], group)
        for kind in (SketchKind.IMPACT, SketchKind.HISTOGRAM):
            assert_holds(asked.by_parts(kind), right)


def test_a_sample_of_all_rows_is_exact_but_for_extremes(house_of: Builder) -> None:
    done = kept(house_of)
    done.bring([a_row(at, "ab"[at % 2], float(at)) for at in range(40)])
    done.correct((Op.REPLACE, a_row(12, price=100.0), {}), (Op.DELETE, key(13, "b"), {}))
    asked = estimate(done, [10])
    asked.question.aggregates.pop("min_price")  # type: ignore[attr-defined]
    asked.question.aggregates.pop("max_price")  # type: ignore[attr-defined]
    found, right = asked.by_sample(1.0), right_values(done)
    assert {(each.start, *each.group) for each in found} == {(10, "a"), (10, "b")}
    for each in found:
        assert each.low == each.value == each.high == right[each.start, *each.group][each.column]


def test_approximations_are_read_in_place_of_rows(house_of: Builder) -> None:
    done = kept(house_of, bucket_rows=2_000)
    done.inline = False
    done.bring([a_row(at % 40, f"w{at}", float(at % 97)) for at in range(2_000)])
    done.correct((Op.REPLACE, a_row(12, "w12", 100.0), {}))
    asked = estimate(done, [10], ())
    with pytest.raises(UsageError, match="no impact approximation"):
        asked.by_parts(SketchKind.IMPACT)
    before = {each.path for each in done.stored(Role.SUMMARY)}
    assert len(before) == 2, "exact parts and approximations"
    asked = estimate(done, [10])
    assert_holds(asked.by_parts(SketchKind.IMPACT), right_values(done))
    parts = sum(each.size for each in done.stored(Role.SUMMARY))
    overlays = sum(each.size for each in done.stored(Role.OVERLAY))
    assert asked.size == parts + overlays, "no base bucket was read"
