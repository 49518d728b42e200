"""Queries of every route whose past is corrected: what is published is right at every instant after each sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.flows.sweep import SweepReport, sweep
from errata.revise.technique import Technique
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
    assert not (report.stopped or report.held or report.busy), report
    return report


@pytest.mark.parametrize("technique", [Technique.AUTO, Technique.MINIMAL, Technique.ALL])
def test_a_course_of_corrections_is_right_after_each(tmp_path: Path, spark: SparkSession, technique: Technique) -> None:
    there = begun(tmp_path)
    for title, rows in CORRECTIONS.items():
        there.take(**rows)
        report = swept(there, technique)
        assert report.swept, title
        print(
            title,
            [
                (
                    e.name,
                    e.swept and e.swept.revisions,
                    e.swept and e.swept.changed,
                    e.published.last.data_commit,
                    e.commit_id,
                )
                for e in report.swept
            ],
        )
        there.check()
        assert swept(there).swept == [], f"{title}: it is done"
    there.take(quotes=["13,a,4", "14,b,5"], ticks=["15,a"])
    there.run()
    there.check()
