"""Reduction functions: the rates that the built-in ones give, and functions of users with all that is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path

import pytest

from errata.errors import UsageError
from errata.language.reading.samples import read_reduction
from errata.model.bucket import Bucket, Groups, Role
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.reduction import SamplingRates
from errata.model.stream import Stream
from errata.model.time import DAY, EVERYTHING, LOWEST, Interval
from errata.reduce.functions import MAX_PORTIONS, Portion, cut_portions
from errata.reduce.rates import ReductionContext, describe_rates, rate_after_pilot, rate_for_error, resolve_rates

QUOTES = Stream(
    "quotes",
    (
        Column("time", ColumnType(TypeKind.TIMESTAMP)),
        Column("symbol", ColumnType(TypeKind.STRING)),
        Column("size", ColumnType(TypeKind.INT)),
        Column("price", ColumnType(TypeKind.DOUBLE)),
    ),
    ("time", "symbol"),
    "time",
)
TICKS = Stream("ticks", (Column("at", ColumnType(TypeKind.BIGINT)),), ("at",), "at")
NOW = 100 * DAY
PORTIONS = tuple(Portion(day * DAY, (day + 1) * DAY, 50, NOW) for day in range(90, 100))
CONTEXT = ReductionContext(QUOTES, NOW, PORTIONS)


def resolved(text: str, context: ReductionContext = CONTEXT) -> SamplingRates:
    return resolve_rates(read_reduction(text, "--reduce"), context)


def refused(text: str, context: ReductionContext = CONTEXT) -> str:
    with pytest.raises(UsageError) as caught:
        resolved(text, context)
    return str(caught.value)


@pytest.mark.parametrize("text", ["(10 PERCENT)", "uniform(0.1)", "UNIFORM(0.1)"])
def test_uniform(text: str) -> None:
    assert resolved(text).uniform == 0.1


def test_a_full_rate_is_exact() -> None:
    assert resolved("(100 PERCENT)").exact
    assert resolved("uniform(1)").exact
    assert resolved("by_age('1 day', 1)").exact


def test_by_age_halves_with_each_span() -> None:
    rates = resolved("by_age('1 day', 0.5)")
    assert [rates.rate_at(NOW - age) for age in (0, DAY, DAY + 1, 2 * DAY, 2 * DAY + 1, 5 * DAY)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.0625,
    ]
    assert rates.rate_at(NOW + DAY) == 1
    # Beyond the oldest rows there are no further steps.
    assert len(rates.starts) == 10
    assert rates.label == "by_age('1 day', 0.5)"


def test_by_age_ends_at_the_least_rate() -> None:
    rates = resolved("by_age('1 day', 0.1, 0.02)")
    assert rates.rates == (0.02, 0.1, 1)


def test_by_age_of_a_plain_number() -> None:
    rates = resolved("by_age(10, 0.5)", ReductionContext(TICKS, 100, (Portion(70, 101, 5, 100),)))
    assert (rates.starts, rates.rates) == ((LOWEST, 80, 90), (0.25, 0.5, 1))


def test_by_age_is_a_function_of_the_age_alone(chance: random.Random) -> None:
    rng = chance
    for _ in range(200):
        span, factor = rng.randrange(1, 5 * DAY), rng.uniform(0.05, 0.99)
        rates = resolved(f"by_age({span}, {factor})", ReductionContext(TICKS, NOW, PORTIONS))
        place = rng.randrange(PORTIONS[0].start, NOW)
        steps = max(0, -(-(NOW - place) // span) - 1)
        assert rates.rate_at(place) == pytest.approx(max(factor**steps, 1e-9))


def test_by_value() -> None:
    rates = resolved("by_value(symbol, 'A', 1, NULL, 0.5, 0.01)")
    assert (rates.column, dict(rates.by_value), rates.rates) == ("symbol", {"A": 1, None: 0.5}, (0.01,))
    assert dict(resolved("by_value(SIZE, 5, 0.5, -7, 0.25, 1)").by_value) == {"5": 0.5, "-7": 0.25}


def test_by_load_goes_from_all_to_the_least() -> None:
    loads = (0.0, 0.5, 1.0, 9.0)
    rates = [resolved("by_load(0.05)", replace(CONTEXT, load=partial(float, each))).uniform for each in loads]
    assert rates == [1, 0.53, 0.05, 0.05]


def test_by_load_reads_the_machine() -> None:
    rate = resolved("by_load(0.25)").uniform
    assert rate is not None
    assert 0.25 <= rate <= 1


def test_by_error_reads_as_many_rows_as_a_count_needs() -> None:
    rate = resolved("by_error(0.1)").uniform
    assert rate is not None
    # The half-width of the interval of a count: z sqrt(N (1 - p) / p), relative to N.
    assert 1.96 * ((1 - rate) / rate / 500) ** 0.5 == pytest.approx(0.1, rel=1e-3)
    assert resolved("by_error(0.1)", replace(CONTEXT, portions=())).exact


def test_by_error_asks_a_pilot_if_there_is_one() -> None:
    asked: list[tuple[float, str | None]] = []

    def pilot(error: float, column: str | None) -> float:
        asked.append((error, column))
        return 0.3

    assert resolved("by_error(0.1, mean)", replace(CONTEXT, error_rate=pilot)).uniform == 0.3
    assert asked == [(0.1, "mean")]


def test_a_pilot_leads_to_the_rate_that_its_width_asks_for() -> None:
    rng = random.Random(7)
    for _ in range(100):
        rows, error, pilot = rng.randrange(1_000, 10**8), rng.uniform(0.001, 0.2), rng.uniform(0.001, 0.5)
        width = 1.959963984540054 * ((1 - pilot) / pilot / rows) ** 0.5
        assert rate_after_pilot(error, pilot, width) == pytest.approx(rate_for_error(error, rows))
    assert rate_after_pilot(0.1, 0.5, float("inf")) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("uniform(0)", "a sampling rate of 0 cannot be read"),
        ("(0 PERCENT)", "a sampling rate of 0 cannot be read"),
        ("(101 PERCENT)", "a sampling rate of 1.01 cannot be read"),
        ("uniform(-0.1)", "a sampling rate of -0.1 cannot be read"),
        ("uniform('0.1')", "a rate is a number"),
        ("uniform(TRUE)", "a rate is a number"),
        ("uniform(0.1, 0.2)", "uniform takes 1 argument, not 2"),
        ("by_age('1 day')", "by_age takes 2 or 3 arguments, not 1"),
        ("by_age('soon', 0.5)", "soon"),
        ("by_age(1, 0.5)", "a span of time is a text, such as '1 day'"),
        ("by_age('1 day', 2)", "a sampling rate of 2 cannot be read"),
        ("by_age('1 day', 0)", "a sampling rate of 0 cannot be read"),
        ("by_age('1 second', 0.9999)", "the span is too short, or the factor too close to 1"),
        ("by_value(symbol)", "by_value takes a column, values each with its rate, and the rate of all others"),
        ("by_value(symbol, 'A', 1)", "by_value takes a column, values each with its rate, and the rate of all others"),
        ("by_value(sym, 'A', 1, 0.1)", "sym is no column of quotes"),
        ("by_value(price, 1, 1, 0.1)", "price is of type double"),
        ("by_value(symbol, 1, 1, 0.1)", "1 is no value of symbol"),
        ("by_value(symbol, 'A', 1, 'A', 0.5, 0.1)", "the value A is there twice"),
        ("by_load(0)", "a sampling rate of 0 cannot be read"),
        ("by_error(0)", "the error is relative: above 0 and below 1"),
        ("by_error(1)", "the error is relative: above 0 and below 1"),
        ("by_error(0.1, 5)", "the second argument is the name of a column of the answer"),
        ("bernoulli(10)", "there is no reduction bernoulli"),
        ("unifrom(0.1)", "did you mean uniform"),
    ],
)
def test_clauses_that_cannot_be_resolved(text: str, words: str) -> None:
    assert words in refused(text)


# Functions of users.

HEAD = "import errata\n\n\n@errata.reduction\n"


def project(folder: Path, *functions: str) -> ReductionContext:
    (folder / "reductions").mkdir(exist_ok=True)
    for number, text in enumerate(functions):
        (folder / "reductions" / f"own_{number}.py").write_text(HEAD + text)
    return replace(CONTEXT, root=folder)


def test_a_function_gives_a_rate_for_each_portion(tmp_path: Path) -> None:
    text = "def mine(portion, old):\n    return 1 if portion.age < 3 * 86_400_000_000 else old\n"
    rates = resolved("mine(0.2)", project(tmp_path, text))
    assert (rates.starts, rates.rates) == ((LOWEST, 97 * DAY), (0.2, 1))
    assert rates.label == "mine(0.2)"


def test_a_function_sees_the_portion(tmp_path: Path) -> None:
    text = (
        "def mine(portion, name):\n"
        "    told = (portion.end - portion.start, portion.rows, name, portion.start_time.year, portion.newest)\n"
        "    return 0.5 if told == (86_400_000_000, 50, 'symbol', 1970, 100 * 86_400_000_000) else 1.0\n"
    )
    assert resolved("mine(symbol)", project(tmp_path, text)).uniform == 0.5


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 0", "it gives 0, and a rate is the share of the rows that is read: above 0 and at most 1"),
        ("return 1.5", "it gives 1.5, and a rate is the share"),
        ("return float('nan')", "it is not deterministic"),
        ("return -0.1", "it gives -0.1, and a rate"),
        ("return None", "it gives None, which is no number"),
        ("return True", "it gives True, which is no number"),
        ("return 1 / 0", "it raises ZeroDivisionError: division by zero"),
        ("raise ValueError", "it raises ValueError"),
        ("import random; return random.random()", "it is not deterministic"),
    ],
)
def test_wrong_functions_are_refused_with_the_reason(tmp_path: Path, body: str, words: str) -> None:
    told = refused("mine()", project(tmp_path, f"def mine(portion):\n    {body}\n"))
    assert words in told
    assert "reduction mine() cannot be used" in told
    assert "own_0.py" in told
    assert "Traceback" not in told


def test_wrong_arguments_of_a_function_are_told(tmp_path: Path) -> None:
    assert "it raises TypeError" in refused("mine(1, 2)", project(tmp_path, "def mine(portion):\n    return 1\n"))


def test_a_file_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    told = refused("mine()", project(tmp_path, "def mine(portion):\n    return 1\n\n\nraise RuntimeError('no')\n"))
    assert "reductions cannot be loaded" in told
    assert "RuntimeError: no" in told


def test_a_name_in_two_files_is_refused(tmp_path: Path) -> None:
    text = "def mine(portion):\n    return 0.5\n"
    assert "reduction mine is there twice" in refused("mine()", project(tmp_path, text, text))


def test_a_function_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "errata.reductions"
        return [EntryPoint(name, "math:no_such" if name == "broken" else "math:exp", group)] if name else []

    monkeypatch.setattr("errata.reduce.functions.entry_points", points)
    assert "it raises TypeError" in refused("package_rate()")  # it was loaded, and is called with a portion
    told = refused("broken()")
    assert "reductions cannot be loaded" in told
    assert "no_such" in told


def test_only_functions_below_the_decorator_are_reductions(tmp_path: Path) -> None:
    text = "def mine(portion):\n    return 0.5\n\n\ndef other(portion):\n    return 0.5\n"
    told = refused("other()", project(tmp_path, text))
    assert "there is no reduction other" in told


def test_a_built_in_name_is_the_built_in(tmp_path: Path) -> None:
    assert resolved("uniform(0.25)", project(tmp_path, "def uniform(portion, x):\n    return 0.5\n")).uniform == 0.25


# Portions.


def bucket(low: int, high: int, rows: int = 10) -> Bucket:
    return Bucket(1, Role.BASE, None, rows, 1, low, high, Groups(), "", "", 1, None, None)


def test_portions_begin_where_buckets_do() -> None:
    found = [bucket(0, 9, 7), bucket(0, 12, 3), bucket(10, 19, 5)]
    assert cut_portions(found, EVERYTHING, 30) == [Portion(0, 10, 10, 30), Portion(10, 20, 5, 30)]
    assert cut_portions(found, Interval(4, 12), 30) == [Portion(4, 10, 10, 30), Portion(10, 12, 5, 30)]
    assert cut_portions(found, Interval(20, 30), 30) == []


def test_portions_are_few_and_lose_no_rows(chance: random.Random) -> None:
    rng = chance
    lows = [rng.randrange(10**6) for _ in range(5_000)]
    found = [bucket(low, low + rng.randrange(1_000), rng.randrange(1, 50)) for low in lows]
    portions = cut_portions(found, EVERYTHING, 10**7)
    assert len(portions) <= MAX_PORTIONS
    assert sum(each.rows for each in portions) == sum(each.rows for each in found)
    assert all(first.end == second.start for first, second in pairwise(portions))
    assert (portions[0].start, portions[-1].end) == (min(b.vs_min for b in found), max(b.vs_max for b in found) + 1)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        (lambda: resolved("uniform(0.1)"), "10%"),
        (lambda: resolved("by_value(symbol, 'A', 1, 0.001)"), "0.1% to 100%"),
    ],
)
def test_rates_in_words(rates: Callable[[], SamplingRates], words: str) -> None:
    assert describe_rates(rates()) == words
