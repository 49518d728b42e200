"""Plans over samples: estimates equal the exact query over rows repeated by their weights, bounds equal
sums in plain Python, and what cannot be estimated is refused with the reason.

A row that was sampled at rate 1/k stands for k rows. So the exact plan over k copies of each row is the oracle,
whatever operators are between the scan and the group.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pytest
from pyspark.sql import SparkSession

from errata.engine.plans.compile import compile_plan
from errata.errors import UsageError
from errata.language.near_support import near_obstacle
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.language.queries import read_one_time_query
from errata.language.rewrite import rewritten_plan
from errata.language.sampling import sampled_sources
from errata.model.columns import ColumnType, TypeKind
from errata.reduce.estimates import EstimatedPlan, estimate_plan
from fixtures.interval_formulas import bounds_of

BIGINT, STRING, DOUBLE = (ColumnType(each) for each in (TypeKind.BIGINT, TypeKind.STRING, TypeKind.DOUBLE))
MONEY = ColumnType(TypeKind.DECIMAL, 10, 2)
_ROW = (
    Field("at", BIGINT),
    Field("id", BIGINT),
    Field("sym", STRING),
    Field("price", DOUBLE),
    Field("size", BIGINT),
    Field("cost", MONEY),
)
QUOTES = Source("quotes", SourceKind.STREAM, _ROW, ("id",), "at", timed=False)
TRADES = Source("trades", SourceKind.STREAM, _ROW, ("id",), "at", timed=False)
NAMES = Source(
    "names",
    SourceKind.RETROACTIVE,
    (Field("sym", STRING), Field("since", BIGINT), Field("name", STRING)),
    ("sym",),
    "since",
    timed=False,
)
SOURCES = {"quotes": QUOTES, "trades": TRADES, "names": NAMES}
SAMPLE = "quotes TABLESAMPLE uniform(0.5)"
AT = 1_000

Row = dict[str, object]


def read(sql: str) -> Plan:
    return read_one_time_query(sql, "query", SOURCES)


def estimated(sql: str, *, with_error: bool = False, exact: Sequence[str] = ()) -> EstimatedPlan:
    return estimate_plan(read(sql), exact, with_error=with_error)


def refused(sql: str, *, with_error: bool = False) -> str:
    with pytest.raises(UsageError) as caught:
        estimated(sql, with_error=with_error)
    return str(caught.value)


# Values and bounds, on both engines.


def some_rows(rng: random.Random, count: int, first: int = 0) -> list[Row]:
    return [
        {
            "at": rng.randrange(AT),
            "id": first + number,
            "sym": rng.choice("AB"),
            "price": None if rng.random() < 0.1 else float(rng.randrange(-400, 400)) / 8,
            "size": rng.randrange(1, 9),
            "cost": None if rng.random() < 0.1 else f"{rng.randrange(1000) / 4:.2f}",
        }
        for number in range(count)
    ]


def frame_sql(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Rows as SQL, the same for both engines."""
    listed = ", ".join(
        "(" + ", ".join("NULL" if row[name] is None else f"'{row[name]}'" for name in columns) + ")" for row in rows
    )
    casts = ", ".join(f"CAST(c{at} AS {kind}) AS `{name}`" for at, (name, kind) in enumerate(columns.items()))
    names = ", ".join(f"c{at}" for at in range(len(columns)))
    return f"SELECT {casts} FROM VALUES {listed} AS v({names})"


@dataclass(frozen=True)
class Sampled:
    """Rows of a sample, each with its weight, and rows of exact sources."""

    quotes: list[Row]
    weights: list[int]
    trades: list[Row]
    names: list[Row]

    def answers(self, session: SparkSession, plan: Plan, *, repeated: bool) -> list[tuple[object, ...]]:
        kinds = {each.name: str(each.type) for each in _ROW}
        if repeated:
            pairs = [*zip(self.quotes, self.weights, strict=True)]
            rows = [{**row, "id": f"{row['id']}{copy:02}"} for row, weight in pairs for copy in range(weight)]
        else:
            kinds |= {"_rate": "double", "_sample": "bigint"}
            rows = [
                {**row, "_rate": repr(1 / weight), "_sample": hash(str(row["id"])) % 2**60}
                for row, weight in zip(self.quotes, self.weights, strict=True)
            ]
        texts = {
            "trades": frame_sql(self.trades, {each.name: str(each.type) for each in _ROW}),
            "names": frame_sql(self.names, {each.name: str(each.type) for each in NAMES.fields}),
            **dict.fromkeys(sampled_sources(plan), frame_sql(rows, kinds)),
        }
        frames = {name: session.sql(text) for name, text in texts.items()}
        rewritten = rewritten_plan(plan)
        assert near_obstacle(rewritten) is None
        found = compile_plan(rewritten, frames, at=AT).toPandas()[[each.name for each in plan.visible]]
        return sorted(map(tuple, found.itertuples(index=False)), key=repr)


def a_sample(rng: random.Random) -> Sampled:
    quotes = some_rows(rng, rng.randrange(20, 60))
    weights = [rng.choice([1, 2, 4, 8]) for _ in quotes]
    names = [{"sym": each, "since": -5, "name": f"name of {each}"} for each in "AB"]
    return Sampled(quotes, weights, some_rows(rng, 25, 500), names)


def same(left: object, right: object) -> bool:
    if left is None or right is None or left != left or right != right:
        return (left is None or left != left) and (right is None or right != right)
    if isinstance(left, str):
        return left == right
    return float(left) == pytest.approx(float(right), rel=1e-9, abs=1e-9)  # type: ignore[arg-type]


ALL = (
    "count(*) AS n, count(price) AS c, sum(size) AS s, avg(price) AS m, sum(cost) AS d, min(price) AS l, max(size) AS h"
)
VALUES = {
    "one group": f"SELECT {ALL} FROM {SAMPLE}",
    "groups": f"SELECT sym, {ALL} FROM {SAMPLE} GROUP BY sym",
    "filtered": f"SELECT sym, {ALL} FROM {SAMPLE} WHERE size > 3 GROUP BY sym",
    "windows": f"SELECT sym, window_start, {ALL} FROM {SAMPLE} GROUP BY sym, window(at, 100, 50)",
    "sliding": f"SELECT sym, {ALL} FROM sliding({SAMPLE}, 300) GROUP BY sym",
    "computed": f"SELECT sym, count(*) AS n, sum(twice) AS s FROM (SELECT sym, size * 2 AS twice, id FROM {SAMPLE}"
    " WHERE price > 0) AS q GROUP BY sym",
    "joined": f"SELECT t.sym, count(*) AS n, sum(q.size * t.size) AS s, avg(q.price) AS m FROM {SAMPLE} AS q JOIN"
    " trades AS t ON q.sym = t.sym AND q.size = t.size GROUP BY t.sym",
    "joined from the right": f"SELECT t.sym, count(*) AS n, sum(q.size) AS s FROM trades AS t JOIN {SAMPLE} AS q"
    " ON q.size = t.size GROUP BY t.sym",
    "with a relation": f"SELECT r.name, count(*) AS n, sum(q.size) AS s FROM {SAMPLE} AS q JOIN names AS r"
    " ON q.sym = r.sym GROUP BY r.name",
    "united": "SELECT sym, count(*) AS n, sum(size) AS s, avg(price) AS m FROM (SELECT sym, size, price FROM trades"
    f" UNION ALL SELECT sym, size, price FROM {SAMPLE}) AS u GROUP BY sym",
    "twice": f"SELECT sym, count(*) AS n FROM (SELECT sym, id FROM {SAMPLE} WHERE size > 2 UNION ALL"
    f" SELECT sym, id FROM {SAMPLE} WHERE price > 0) AS u GROUP BY sym",
    "outer": f"SELECT q.sym, count(*) AS n, count(t.id) AS c, sum(t.size) AS s FROM {SAMPLE} AS q LEFT JOIN trades AS t"
    " ON q.size = t.size AND t.price > 20 GROUP BY q.sym",
    "beside what is exact": f"SELECT e.sym, e.n AS exact, g.n AS estimate FROM (SELECT sym, count(*) AS n FROM trades"
    f" GROUP BY sym) AS e JOIN (SELECT sym, count(*) AS n FROM {SAMPLE} GROUP BY sym) AS g ON e.sym = g.sym",
    "under an expression": f"SELECT sym, sum(size) / count(*) AS ratio, round(avg(price)) AS m FROM {SAMPLE}"
    " GROUP BY sym",
    "of one branch": f"SELECT sym, count(*) AS n FROM trades GROUP BY sym UNION ALL SELECT sym, sum(size) FROM {SAMPLE}"
    " GROUP BY sym",
}


@pytest.mark.parametrize("name", VALUES)
def test_estimates_are_the_exact_answer_over_repeated_rows(
    near: SparkSession, name: str, chance: random.Random
) -> None:
    plan = read(VALUES[name])
    some = a_sample(chance)
    wanted = some.answers(near, plan, repeated=True)
    found = some.answers(near, estimate_plan(plan, ()).plan, repeated=False)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        assert all(map(same, got, want)), f"{got} and not {want}"


def test_bounds_are_those_of_the_formulas(either: SparkSession, chance: random.Random) -> None:
    some = a_sample(chance)
    weights = [max(2, each) for each in some.weights]
    some = Sampled(some.quotes, weights, some.trades, some.names)
    sql = f"SELECT count(*) AS n, count(price) AS c, sum(price) AS s, avg(price) AS m FROM {SAMPLE}"
    found = estimated(sql, with_error=True)
    names = ["n", "n_low", "n_high", "c", "c_low", "c_high", "s", "s_low", "s_high", "m", "m_low", "m_high"]
    assert found.columns == names
    row = dict(zip(names, some.answers(either, found.plan, repeated=False)[0], strict=True))
    rows = [*zip(some.quotes, weights, strict=True)]
    present = [(each["price"], 1.0, 1 / weight) for each, weight in rows]
    ones = [(1.0, 1.0, 1 / weight) for _, weight in rows]
    counted = [(1.0, 1.0, p) for price, _, p in present if price is not None]
    for name, units, function in (("n", ones, "count"), ("c", counted, "count")):
        low, high = bounds_of(units, function, single=True)
        assert (row[f"{name}_low"], row[f"{name}_high"]) == (int(low // 1), -int(-high // 1))
    for name, function in (("s", "sum"), ("m", "avg")):
        low, high = bounds_of(present, function, single=True)  # type: ignore[arg-type]
        assert row[f"{name}_low"] == pytest.approx(low)
        assert row[f"{name}_high"] == pytest.approx(high)


def test_joined_rows_are_units_of_the_row_that_was_sampled(either: SparkSession, chance: random.Random) -> None:
    some = a_sample(chance)
    weights = [max(2, each) for each in some.weights]
    some = Sampled(some.quotes, weights, some.trades, some.names)
    sql = (
        f"SELECT count(*) AS n, sum(t.size) AS s, avg(t.size) AS m, max(q.size) AS h FROM {SAMPLE} AS q JOIN trades"
        " AS t ON q.sym = t.sym"
    )
    found = estimated(sql, with_error=True)
    row = dict(zip(found.columns, some.answers(either, found.plan, repeated=False)[0], strict=True))
    sizes = {sym: [t["size"] for t in some.trades if t["sym"] == sym] for sym in "AB"}
    pairs = [(sizes[str(each["sym"])], 1 / weight) for each, weight in zip(some.quotes, weights, strict=True)]
    counts = [(float(len(each)), float(len(each)), p) for each, p in pairs if each]
    sums = [(float(sum(each)), float(len(each)), p) for each, p in pairs if each]  # type: ignore[arg-type]
    for name, units, function in (("n", counts, "count"), ("s", sums, "sum")):
        low, high = bounds_of(units, function, single=False)
        assert (row[f"{name}_low"], row[f"{name}_high"]) == (int(low // 1), -int(-high // 1))
    low, high = bounds_of(sums, "avg", single=False)
    assert (row["m_low"], row["m_high"]) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("name", [each for each in VALUES if each != "under an expression"])
def test_values_are_the_same_with_bounds(near: SparkSession, name: str, chance: random.Random) -> None:
    some = a_sample(chance)
    plain, bounded = estimated(VALUES[name]), estimated(VALUES[name], with_error=True)
    wanted = some.answers(near, plain.plan, repeated=False)
    every = some.answers(near, bounded.plan, repeated=False)
    at = [bounded.columns.index(each) for each in plain.columns]
    found = sorted((tuple(row[place] for place in at) for row in every), key=repr)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        assert all(map(same, got, want)), f"{got} and not {want}"
    for row in every:
        values = dict(zip(bounded.columns, row, strict=True))
        for column in bounded.estimates:
            low, high = values[f"{column}_low"], values[f"{column}_high"]
            if low is not None and low == low:
                assert float(low) - 1e-6 <= float(values[column]) <= float(high) + 1e-6  # type: ignore[arg-type]


# What is exact.


def test_rates_of_1_leave_the_plan_as_it_is() -> None:
    plan = read(VALUES["groups"])
    assert estimate_plan(plan, [SAMPLE]).plan is plan
    assert estimate_plan(plan, [SAMPLE]).remarks == ()


def test_rates_of_1_have_bounds_that_are_the_values(near: SparkSession, chance: random.Random) -> None:
    some = a_sample(chance)
    sql = f"SELECT sym, count(*) AS n, avg(price) AS m, sum(cost) AS d, max(size) AS h FROM {SAMPLE} GROUP BY sym"
    found = estimated(sql, with_error=True, exact=[SAMPLE])
    assert found.columns == ["sym", "n", "n_low", "n_high", "m", "m_low", "m_high", "d", "d_low", "d_high", "h"]
    plain = some.answers(near, read(sql), repeated=False)
    for row, want in zip(some.answers(near, found.plan, repeated=False), plain, strict=True):
        values = dict(zip(found.columns, row, strict=True))
        assert tuple(values[each] for each in ("sym", "n", "m", "d", "h")) == want
        for name in ("n", "m", "d"):
            assert float(values[f"{name}_low"]) == float(values[name]) == float(values[f"{name}_high"])  # type: ignore[arg-type]


def test_a_query_without_samples_stays_as_it_is() -> None:
    plan = read("SELECT sym, count(*) AS n FROM trades GROUP BY sym")
    assert estimate_plan(plan, ()).plan is plan


# Remarks and refusals.


@pytest.mark.parametrize(
    ("sql", "remarks"),
    [
        (f"SELECT sym, price FROM {SAMPLE}", ["the rows are those of the sample: nothing is scaled"]),
        (f"SELECT count(*) AS n FROM {SAMPLE}", []),
        (
            f"SELECT sym, min(price) AS l, count(*) AS n FROM {SAMPLE} GROUP BY sym",
            [
                "groups of which the sample has no row are missing",
                "not scaled, but that of the sample: min(quotes.price)",
            ],
        ),
        (f"SELECT DISTINCT sym FROM {SAMPLE}", ["values that no row of the sample has are missing"]),
        (
            f"SELECT sym FROM {SAMPLE} INTERSECT SELECT sym FROM trades",
            ["values that no row of the sample has are missing"],
        ),
    ],
)
def test_what_a_reader_must_know_is_said(sql: str, remarks: list[str]) -> None:
    assert list(estimated(sql).remarks) == remarks


REFUSED = {
    f"SELECT count(DISTINCT sym) AS n FROM {SAMPLE}": "count(DISTINCT quotes.sym) cannot be estimated from a sample",
    f"SELECT count(*) AS n FROM (SELECT DISTINCT sym FROM {SAMPLE}) AS d": "aggregates over distinct rows of a sample",
    f"SELECT count(*) AS n FROM {SAMPLE} AS a JOIN {SAMPLE} AS b ON a.sym = b.sym": "aggregates over a join",
    f"SELECT sym, count(*) AS n FROM {SAMPLE} GROUP BY sym HAVING count(*) > 5": "HAVING compares count(*)",
    f"SELECT sym, min(size) AS n FROM {SAMPLE} GROUP BY sym HAVING min(size) > 5": "HAVING compares min(quotes.size)",
    f"SELECT avg(n) AS m FROM (SELECT count(*) AS n FROM {SAMPLE} GROUP BY sym) AS g": "aggregates over estimates",
    f"SELECT count(*) AS n FROM sliding_rows({SAMPLE}, 10)": "a window over rows cannot be over a sample",
    f"SELECT sym FROM sliding_rows({SAMPLE}, 10)": "a window over rows cannot be over a sample",
    f"SELECT sym, count(*) AS n FROM {SAMPLE} GROUP BY sym, row_window(10)": "row_window(...) cannot be over a sample",
    f"SELECT sym FROM trades EXCEPT SELECT sym FROM {SAMPLE}": "EXCEPT and negation(...) cannot be over a sample",
    f"SELECT count(*) AS n FROM negation({SAMPLE}, trades, 'sym') AS x": "EXCEPT and negation(...) cannot be over a",
    f"SELECT t.sym, q.size FROM trades AS t LEFT JOIN {SAMPLE} AS q ON t.sym = q.sym": "the partners of a LEFT JOIN",
    f"SELECT count(*) AS n FROM {SAMPLE} AS q FULL JOIN trades AS t ON t.sym = q.sym": "the partners of a FULL JOIN",
    "SELECT t.sym, g.n FROM trades AS t LEFT JOIN (SELECT sym, count(*) AS n FROM"
    f" {SAMPLE} GROUP BY sym) AS g ON t.sym = g.sym": "an outer join cannot be over estimates",
    f"SELECT sym, count(*) AS n FROM {SAMPLE} GROUP BY sym INTERSECT SELECT sym, size FROM trades": "INTERSECT",
    "SELECT t.sym FROM trades AS t JOIN (SELECT count(*) AS n FROM"
    f" {SAMPLE}) AS g ON t.size = g.n": "JOIN compares g.n",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_estimated_is_refused_with_the_reason(sql: str) -> None:
    told = refused(sql)
    assert REFUSED[sql] in told
    assert "why: " in told
    assert "how to mend: " in told


OTHER = "trades TABLESAMPLE uniform(0.25)"
WITHOUT_BOUNDS = {
    f"SELECT sym, price FROM {SAMPLE}": "no column of the answer is an estimate",
    "SELECT count(*) AS n FROM trades": "no column of the answer is an estimate",
    f"SELECT sum(size) / count(*) AS r FROM {SAMPLE}": "r has no interval",
    f"SELECT -count(*) AS r FROM {SAMPLE}": "r has no interval",
    f"SELECT count(*) AS n, 5 AS n_low FROM {SAMPLE}": "the column n_low is there twice",
    f"SELECT sum(size) AS s FROM (SELECT size FROM {SAMPLE} UNION ALL SELECT size FROM {OTHER}) AS u": "there are no",
    f"SELECT count(*) AS n, first(q.size) AS f FROM {SAMPLE} AS q JOIN trades AS t ON q.sym = t.sym": "first(q.size)",
}


@pytest.mark.parametrize("sql", WITHOUT_BOUNDS)
def test_what_has_no_interval_is_refused_with_the_reason(sql: str) -> None:
    assert WITHOUT_BOUNDS[sql] in refused(sql, with_error=True)


def test_what_has_no_interval_has_a_value() -> None:
    for sql in [*WITHOUT_BOUNDS][2:]:
        assert estimated(sql).estimates


def test_bounds_follow_rounding_and_constants() -> None:
    found = estimated(
        f"SELECT round(avg(price), 1) * 2 + 1 AS m, CAST(count(*) AS int) AS n FROM {SAMPLE}", with_error=True
    )
    assert found.columns == ["m", "m_low", "m_high", "n", "n_low", "n_high"]
    assert [str(each.type) for each in found.plan.visible] == ["double"] * 3 + ["int"] * 3


def test_equal_rows_of_one_group_are_told_apart() -> None:
    assert [key for key, _ in groupby(estimated(VALUES["groups"]).columns)] == ["sym", *"ncsmdlh"]
