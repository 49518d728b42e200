"""What a sweep works out again and reads for it: the minimal sequence of the paper (replay-revisions, 2008, section 3),
or the superset that the docs state; and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from errata.answer.replay_sequence import (
    ReplaySequence,
    ResultScope,
    full_sequence,
    minimal_sequence,
    sequence_for_interval,
)
from errata.answer.source_revisions import (
    MAX_CLUSTERS,
    MAX_GROUPS,
    MAX_SINGLE_VERSIONS,
    OLD_VERSION,
    REVISION,
    SourceRevisions,
    cluster_revisions,
)
from errata.language.queries import read_query
from errata.language.rewrite import rewrite_plan
from errata.language.route import choose_route
from errata.model.commit import RefusedRevisions
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VE, VS
from errata.model.time import HIGHEST, LOWEST, MINUTE, Interval
from fixtures.paper_sources import paper_sources

UNTIL = 100 * MINUTE


def answered(text: str, **changed: int) -> ResultScope:
    plan = rewrite_plan(read_query(text, "q", paper_sources())).plan
    known = {"begins": LOWEST, "aged_to": None, "until": UNTIL} | changed
    return ResultScope(plan, choose_route(plan), **known)


def revised(
    source: str, rows: Sequence[Mapping[str, object]], *, at: str = "time", group: tuple[str, ...] = ()
) -> SourceRevisions:
    """Rows of which nothing is known but these columns."""
    told = [
        {**row, VS: row[at], VE: HIGHEST, REVISION: number, OLD_VERSION: True} for number, row in enumerate(rows, 1)
    ]
    return SourceRevisions(source, pa.Table.from_pylist(told), 0, len(rows), 1, group)


def quote(minute: int, symbol: str = "IBM") -> dict[str, object]:
    return {"time": minute * MINUTE, "symbol": symbol}


def work(text: str, *some: SourceRevisions, aged_to: int | None = None, **changed: int) -> ReplaySequence:
    return minimal_sequence(answered(text, **changed), some, {each.source: aged_to for each in some})


def minutes(reaches: Sequence[Extent]) -> list[tuple[float, float]]:
    return [(each.interval.start / MINUTE, each.interval.end / MINUTE) for each in reaches]


def test_a_sliding_average_replays_what_shares_a_window_with_the_row() -> None:
    # The average of five minutes, every minute: of t20 there are t16 to t24.
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes', '1 minute')"
    found = work(text, revised("quotes", [quote(20)]))
    assert minutes(found.reads["quotes"]) == [(16, 25)]
    assert [each.values for each in found.reads["quotes"]] == [{"symbol": "IBM"}]
    (region,) = found.regions
    assert (region.axis, region.interval.start, region.interval.end) == (ExtentAxis.START, 21 * MINUTE, 25 * MINUTE + 1)


def test_a_tumbling_window_replays_itself_alone() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    found = work(text, revised("quotes", [quote(22), quote(71, "GE")]))
    assert minutes(found.reads["quotes"]) == [(20, 25), (70, 75)]
    assert {repr(each.values) for each in found.reads["quotes"]} == {"{'symbol': 'IBM'}", "{'symbol': 'GE'}"}


def test_windows_that_several_rows_are_in_are_replayed_once() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    found = work(text, revised("quotes", [quote(21), quote(22), quote(24)]))
    assert len(found.regions) == 1


def test_a_join_replays_the_row_and_those_that_it_meets() -> None:
    text = """SELECT a.src, a.id, b.id AS other
FROM sliding(link1, '3 minutes') AS a JOIN sliding(link2, '5 minutes') AS b ON a.src = b.src"""
    found = work(text, revised("link1", [{"time": 20 * MINUTE, "id": 1, "src": "x"}]))
    assert minutes(found.reads["link1"])[0][0] <= 20 < minutes(found.reads["link1"])[0][1]
    # A row of the other side counts together with it if it began less than 5 minutes before, or 3 after.
    ((start, end),) = minutes(found.reads["link2"])
    assert (start >= 15 - 1e-6, end <= 23 + 1e-6) == (True, True)
    assert found.reads["link2"][0].values["src"] == "x"


def test_a_row_that_no_result_can_be_made_of_replays_nothing() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes WHERE symbol = 'GE' GROUP BY symbol, window(time, '5 minutes')"
    found = work(text, revised("quotes", [quote(20)]))
    assert (found.regions, found.reads["quotes"]) == ((), ())


def test_two_aggregates_replay_what_the_upper_one_needs() -> None:
    # Figure 4: the lower aggregate's unchanged result is made again, for the upper one is made of both.
    text = "SELECT avg(price) AS p FROM avg_5m GROUP BY window(window_end, '10 minutes')"
    results = pa.table({"symbol": ["IBM"], VS: [25 * MINUTE], VE: [HIGHEST], REVISION: [1], OLD_VERSION: [True]})
    found = work(text, SourceRevisions("avg_5m", results, 0, 1, 1))
    ((start, end),) = minutes(found.reads["avg_5m"])
    assert (start, end) == (20, 30)


def test_windows_of_rows_are_replayed_to_the_end() -> None:
    # Figure 5: a row that comes or goes moves all rows after it to other windows.
    text = "SELECT symbol, window_no, avg(price) AS p FROM quotes GROUP BY symbol, row_window(2)"
    found = work(text, revised("quotes", [quote(20)]))
    (region,) = found.regions
    assert region.interval.end > UNTIL
    assert region.values == {"symbol": "IBM"}
    (reach,) = found.reads["quotes"]
    assert reach.interval.start == LOWEST  # the superset: which rows make a window is known by counting from the first


def test_nothing_is_corrected_that_was_never_answered() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    assert work(text, revised("quotes", [quote(101), quote(120)])).regions == ()
    of_late = "SELECT symbol, count(*) AS n FROM sliding(quotes, '5 minutes') GROUP BY symbol"
    found = work(of_late, revised("quotes", [quote(20)]), begins=23 * MINUTE)
    (region,) = found.regions
    assert region.interval.start == 23 * MINUTE


def test_results_of_rows_that_have_been_aged_out_are_refused() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    found = work(text, revised("quotes", [quote(22), quote(24), quote(71)]), aged_to=21 * MINUTE)
    why = "the results are made of rows of quotes that have been aged out"
    assert found.refused == (RefusedRevisions("quotes", 1, 2, 2, why),)
    assert minutes(found.reads["quotes"]) == [(70, 75)]


def test_all_is_narrowed_to_the_groups_that_are_touched() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    of = answered(text)
    least = minimal_sequence(of, [revised("quotes", [quote(22), quote(71, "GE")])], {})
    narrowed = full_sequence(of, least, {})
    assert {repr(each.values) for each in narrowed.regions} == {"{'symbol': 'IBM'}", "{'symbol': 'GE'}"}
    (whole,) = full_sequence(of, least, {}, narrowed=False).regions
    assert whole.values == {}
    assert full_sequence(of, ReplaySequence((), {}), {}) == ReplaySequence((), {})
    assert full_sequence(of, least, {"quotes": 1}) is least


def test_a_range_is_made_of_its_own_rows() -> None:
    text = "SELECT symbol, avg(price) AS p FROM quotes GROUP BY symbol, window(time, '5 minutes')"
    found = sequence_for_interval(answered(text), Interval(21 * MINUTE, 31 * MINUTE), {})
    assert minutes(found.reads["quotes"]) == [(20, 30)]
    late = sequence_for_interval(answered(text), Interval(21 * MINUTE, 31 * MINUTE), {"quotes": 22 * MINUTE})
    assert late.refused[0].reason == "the results are made of rows of quotes that have been aged out"


@pytest.mark.parametrize("count", [1, MAX_SINGLE_VERSIONS, 10 * MAX_CLUSTERS, 100 * MAX_CLUSTERS])
def test_however_many_revisions_few_changes_are_followed(count: int) -> None:
    rows = [quote(place, symbol) for place, symbol in zip(range(count), ["IBM", "GE", "GM"] * count, strict=False)]
    found = cluster_revisions(revised("quotes", rows, group=("symbol",)))
    assert len(found) <= max(MAX_SINGLE_VERSIONS, MAX_CLUSTERS)
    assert sum(each.count for each in found) == count
    inside = [
        any(
            row["time"] in each.rows.interval and each.rows.values.get("symbol", row["symbol"]) == row["symbol"]
            for each in found
        )
        for row in rows
    ]
    assert all(inside)
    if count > MAX_SINGLE_VERSIONS:
        assert {each.rows.values.get("symbol") for each in found} == {"IBM", "GE", "GM"}


def test_revisions_of_many_groups_are_cut_where_nothing_happened() -> None:
    near, far = [quote(1 + place % 3, f"S{place}") for place in range(MAX_GROUPS + 30)], quote(90, "IBM")
    found = cluster_revisions(revised("quotes", [*near, far], group=("symbol",)))
    ends = sorted((each.rows.interval.start, each.rows.interval.end) for each in found)
    assert ends[-1] == (90 * MINUTE, 90 * MINUTE + 1)
    assert ends[0][0] == MINUTE
    assert all((each.rows.interval & Interval(4 * MINUTE, 89 * MINUTE)).empty for each in found)
