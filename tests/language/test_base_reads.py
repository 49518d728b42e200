"""Where the rows lie that an answer is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from errata.declare.query_plans import read_plans
from errata.language.plan import Plan
from errata.language.source_reads import base_inputs, base_reads_at
from errata.model.time import LOWEST, MINUTE, SECOND, Interval
from fixtures.projects import Written

AT = 100 * MINUTE
TEXTS = {
    "recent": "SELECT time, symbol, price FROM sliding(quotes, '5 seconds')",
    "both": "SELECT a.symbol FROM sliding(quotes, '5 seconds') AS a, sliding(quotes, '1 minute') AS b",
    "all_time": "SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol",
    "slid": "SELECT q.time, c.name FROM sliding(quotes, '1 minute') AS q JOIN companies AS c ON q.symbol = c.symbol",
    "through": "SELECT symbol, count(*) AS n FROM recent GROUP BY symbol",
    "mixed": "SELECT r.symbol, t.n FROM recent AS r JOIN through AS t ON r.symbol = t.symbol",
}
DIAMONDS = {"d0": "SELECT DISTINCT symbol FROM sliding(quotes, '5 seconds')"} | {
    f"d{n}": f"SELECT a.symbol FROM d{n - 1} AS a JOIN d{n - 1} AS b ON a.symbol = b.symbol GROUP BY a.symbol"
    for n in range(1, 13)
}


@pytest.fixture
def plans(tmp_path: Path) -> dict[str, Plan]:
    project = Written(tmp_path).write(TEXTS | DIAMONDS)
    return read_plans(project.streams, project.texts(), project.queries)


@pytest.mark.parametrize(
    ("name", "reach"), [("recent", 5 * SECOND), ("both", MINUTE), ("through", 5 * SECOND), ("mixed", 5 * SECOND)]
)
def test_what_slides_needs_little_more_than_its_window(plans: dict[str, Plan], name: str, reach: int) -> None:
    found = base_reads_at(plans[name], AT)
    assert list(found) == ["quotes"]
    assert found["quotes"].end == AT + 1
    assert AT - 2 * reach < found["quotes"].start <= AT - reach + 1


def test_what_does_not_expire_is_needed_for_ever(plans: dict[str, Plan]) -> None:
    assert base_reads_at(plans["all_time"], AT) == {"quotes": Interval(LOWEST, AT + 1)}


def test_a_version_may_have_begun_at_any_time(plans: dict[str, Plan]) -> None:
    assert base_reads_at(plans["slid"], AT) == {
        "quotes": Interval(AT - MINUTE + 1, AT + 1),
        "companies": Interval(LOWEST, AT + 1),
    }


def test_where_there_are_too_many_ways_everything_is_read(plans: dict[str, Plan]) -> None:
    assert base_reads_at(plans["d3"], AT) == {"quotes": Interval(AT - 5 * SECOND + 1, AT + 1)}
    assert base_reads_at(plans["d12"], AT) == {"quotes": Interval(LOWEST, AT + 1)}
    assert base_inputs(plans["d12"]) == ["quotes"]
