"""`errata apply` refuses feeds whose queries do not fit their stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from errata.declare.apply import plan_apply
from errata.declare.project import load_project
from errata.errors import UsageError

YAML = """
project: p
streams:
  ticks: {columns: {at: timestamp, symbol: string, price: double}, key: [symbol, at], order: at}
  best:
    columns: {at: timestamp, symbol: string, total: TYPE}
    key: [symbol, at]
    order: at
    feeds: {old: {query: old_plan}, new: {query: new_plan}}
queries: {old_plan: old.sql, new_plan: new.sql}
"""


def write_project(folder: Path, kind: str) -> None:
    (folder / "errata.yaml").write_text(YAML.replace("TYPE", kind))
    for name, value in (("old", "price"), ("new", "price * 2")):
        (folder / f"{name}.sql").write_text(f"SELECT at, symbol, {value} AS total FROM ticks\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_queries_that_fit_are_planned(here: Path) -> None:
    write_project(here, "double")
    planned = plan_apply(load_project(here, {}))
    assert [each.stream.name for each in planned.changes.creates] == ["best", "ticks"]
    assert sorted(planned.checked) == ["new_plan", "old_plan"]


def test_each_feed_that_does_not_fit_is_told(here: Path) -> None:
    write_project(here, "bigint")
    with pytest.raises(UsageError) as raised:
        plan_apply(load_project(here, {}))
    told = str(raised.value)
    assert told.startswith(
        "errata.yaml has 2 mistakes\nerrata.yaml: feed old of stream best: column total of the query"
    )
    assert "errata.yaml: feed new of stream best: column total of the query is a double" in told
    assert told.count("how to mend: ") == 2
