"""Summaries in errata.yaml: what they cannot keep is a mistake of the file, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from errata.declare.explanation import explain_query
from errata.declare.project import load_project
from errata.declare.summary_words import declared_forms, summary_section
from errata.errors import UsageError

DECLARED = """\
project: p
streams:
  quotes:
    columns: {time: timestamp, symbol: string, price: double}
    key: [time, symbol]
    order: time
    reduce:
      summaries:
        hourly: {window: 1 hour, group: [symbol], select: {n: count(*), total: SUM}}
"""


def test_what_a_summary_cannot_keep_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "errata.yaml").write_text(DECLARED.replace("SUM", "sum(pric)"), encoding="utf-8")
    with pytest.raises(UsageError, match="did you mean price") as error:
        load_project(tmp_path, {})
    assert "errata.yaml:9" in str(error.value)
    (tmp_path / "errata.yaml").write_text(DECLARED.replace("SUM", "sum(price)"), encoding="utf-8")
    (found,) = load_project(tmp_path, {}).streams["quotes"].reduced.summaries
    assert (found.name, found.window, found.aggregates["total"]) == ("hourly", 3_600_000_000, "sum(price)")


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (("key: [time, symbol]", "key: [time, symbl]"), "did you mean symbol"),
        (("select: {n:", "when: soon, select: {n:"), "'soon' is not a choice"),
        (("symbol: string, price", "symbol: string, price: text, cost"), None),
    ],
)
def test_mistakes_of_a_summary_are_told_with_those_of_its_stream(
    tmp_path: Path, mistake: tuple[str, str], told: str | None
) -> None:
    daily = "\n        daily: {window: 1 day, select: {most: max(pric)}}\n"
    text = DECLARED.replace("SUM", "sum(price)").rstrip() + daily
    (tmp_path / "errata.yaml").write_text(text.replace(*mistake), encoding="utf-8")
    with pytest.raises(UsageError) as error:
        load_project(tmp_path, {})
    if told is None:  # with columns of unknown types nothing can be said of what is computed from them
        assert "daily" not in str(error.value)
    else:
        assert "errata.yaml has 2 mistakes" in str(error.value)
        assert told in str(error.value)
        assert "errata.yaml:10 (streams.quotes.reduce.summaries.daily)" in str(error.value)
        assert "did you mean price" in str(error.value)


def test_explain_says_which_columns_of_a_summary_a_correction_rebuilds(tmp_path: Path) -> None:
    select = "sum(price), low: approx_percentile(price, 0.1), top: impact(price, 5)"
    text = DECLARED.replace("SUM", select).replace("approx_percentile(price, 0.1)", "'approx_percentile(price, 0.1)'")
    (tmp_path / "errata.yaml").write_text(text.replace("impact(price, 5)", "'impact(price, 5)'"), encoding="utf-8")
    project = load_project(tmp_path, {})
    forms = declared_forms(project)
    told = summary_section(explain_query(project, None, "SELECT symbol, total FROM hourly", "--sql"), forms)
    assert "What a correction does to summary hourly" in told
    assert "n, total: parts add up" in told
    assert "low: sketches, kept by vacuum. They do not subtract" in told
    assert "impact(price): for errata sweep --estimate alone" in told
    assert summary_section(explain_query(project, None, "SELECT symbol FROM quotes", "--sql"), forms) == ""
