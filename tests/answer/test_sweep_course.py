"""Queries of every route whose past is corrected: what is published is right at every instant after each sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.answer import correction, evaluation, window_corrections
from errata.answer.runs import SweepReport, sweep
from errata.model.technique import Technique
from fixtures.runs import FIRST, SECOND, Answering

CORRECTIONS = {
    "a replacement": {"quotes": ["3,a,9;replace"]},
    "a deletion": {"quotes": ["1,b,;delete"]},
    "a late insertion": {"quotes": ["2,a,6"]},
    "several on one key": {"quotes": ["3,a,6;replace", "3,a,;delete", "3,a,2;insert"]},
    "at the last instant": {"quotes": ["12,a,3;replace"]},
    "of two streams": {"quotes": ["7,a,9;replace", "4,b,5"], "ticks": ["4,b,;delete", "5,a"]},
    "of a relation": {"names": ["b,gamma,8;replace", "a,early,2"]},
}
"""Corrections of what `FIRST` and `SECOND` bring."""


def begun(folder: Path) -> Answering:
    """All queries answered over both portions."""
    there = Answering.begin(folder)
    there.take(**FIRST)
    there.run()
    there.take(**SECOND)
    there.run()
    return there


def swept(there: Answering, technique: Technique = Technique.AUTO) -> SweepReport:
    report = sweep(there.site, technique=technique)
    assert (report.stopped, report.held, report.busy) == ([], [], [])
    return report


@pytest.mark.parametrize("technique", [Technique.AUTO, Technique.MINIMAL, Technique.ALL])
def test_a_course_of_corrections_is_right_after_each(tmp_path: Path, spark: SparkSession, technique: Technique) -> None:
    # One after the other, and some of them swept together.
    one_by_one = [[title] for title in CORRECTIONS]
    titles = list(CORRECTIONS)
    go_through(begun(tmp_path), technique, one_by_one if technique is Technique.AUTO else [titles[:3], titles[3:]])


@pytest.mark.parametrize("technique", [Technique.MINIMAL, Technique.ALL])
def test_where_results_are_many_they_are_laid_out_in_tasks(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, technique: Technique
) -> None:
    # So that everything counts as many.
    for module, name in (
        (correction, "SPARK_DIFF_ROWS"),
        (correction, "LOCAL_DIFF_ROWS"),
        (window_corrections, "REUSE_PARTS_ROWS"),
        (evaluation, "LOCAL_STEP_ROWS"),
    ):
        monkeypatch.setattr(module, name, 0)
    titles = list(CORRECTIONS)
    go_through(begun(tmp_path), technique, [titles[-2:] if technique is Technique.ALL else titles[:2]])


def go_through(there: Answering, technique: Technique, steps: Iterable[Sequence[str]]) -> None:
    """Take corrections in and sweep them, step by step."""
    for titles in steps:
        for title in titles:
            there.take(**CORRECTIONS[title])
        assert swept(there, technique).swept, titles
        there.check()
        assert swept(there).swept == [], f"{titles}: it is done"
    there.take(quotes=["13,a,4", "14,b,5"], ticks=["15,a"])
    there.run()
    there.check()
    there.close()
