"""The examples of merged feeds: what fails, lags or begins later shows nowhere in the merged stream."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import errata

EXAMPLE = Path(__file__).parents[2] / "examples" / "feeds"
PROGRAMS = ("high_availability", "congestion", "jump_start", "cut_over")
A_MINUTE = 300
"""Quotes of a minute."""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """One of the example's programs, in a copy of its folder."""
    folder = tmp_path / "feeds"
    left_out = shutil.ignore_patterns("landing", "warehouse", "errata.db*", "*.parquet", "__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=left_out)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ERRATA_CATALOG", "ERRATA_WAREHOUSE", "ERRATA_PROJECT"):
            patch.delenv(name, raising=False)
        patch.syspath_prepend(str(folder))
        yield import_module
    for name in ("market", *PROGRAMS):
        sys.modules.pop(name, None)


def test_a_site_that_fails_is_not_noticed(program: Callable[[str], ModuleType]) -> None:
    example = program("high_availability")
    with errata.open(example.HERE) as project:
        minutes = list(example.run_minutes(project))
        answers = project.results("per_minute")["quotes"].to_pylist()
    assert [each.london for each in minutes] == [300, 300, 300, 0, 0, 0, 600, 300, 300, 300]
    assert [each.new_york < A_MINUTE for each in minutes] == [number in example.LOSSES for number in range(10)]
    assert [each.merged for each in minutes] == [each.written for each in minutes]
    assert answers == [A_MINUTE] * 9


def test_congestion_is_masked(program: Callable[[str], ModuleType]) -> None:
    example = program("congestion")
    with errata.open(example.HERE) as project:
        minutes = list(example.run_minutes(project))
        answers = project.results("slow_or_not")["quotes"].to_pylist()
    assert sorted({each.arrived.count(0) for each in minutes}) == [0, 1, 2]
    assert {count for each in minutes for count in each.arrived} == {0, 300, 900, 1_200}
    assert [each.merged for each in minutes] == [A_MINUTE] * 10
    assert answers == [A_MINUTE] * 9


def test_the_first_answer_is_right_at_once(program: Callable[[str], ModuleType]) -> None:
    example = program("jump_start")
    with errata.open(example.HERE) as project:
        answers = example.jump_start(project)
        rows = project.scan("started").num_rows
    assert rows == (len(example.STORED) + 5) * A_MINUTE
    assert [each.until for each in answers] == [f"10:{minute:02}" for minute in range(10)]
    assert [each.quotes for each in answers] == [each.written for each in answers] == [3_600] * 10


def test_a_reader_does_not_notice_the_cut_over(program: Callable[[str], ModuleType]) -> None:
    example = program("cut_over")
    with errata.open(example.HERE) as project:
        minutes = list(example.run_minutes(project))
        found = project.results("two_minutes").to_pylist()
        highs = project.scan("highs").to_pylist()
    # An answer comes when its minute has closed, which the slack puts off to the next minute.
    assert [each.answers for each in minutes] == [5 * number for number in range(9)]
    assert [each.feeding for each in minutes] == ["old"] * 3 + ["old, new"] * 3 + ["new"] * 3
    assert {each.corrected for each in minutes} == {0}
    market = import_module("market")
    right = [_highest(market.minute_of_quotes(minute).to_pylist()) for minute in range(8)]
    assert [row["highest"] for row in highs] == [high for each in right for high in each.values()]
    assert {row["ticks"] for row in highs} == {60}
    assert len(found) == 3 * 5
    for row in found:
        first = 2 * ((row["window_start"] - market.OPENING).seconds // 120)
        assert row["highest"] == max(right[first][row["symbol"]], right[first + 1][row["symbol"]])
        assert row["ticks"] == 120


def _highest(quotes: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in sorted(quotes, key=lambda each: each["symbol"]):
        found[each["symbol"]] = max(each["price"], found.get(each["symbol"], 0.0))
    return found
