"""Queries with stored lineage: corrections in place read just the rows that the touched results were made of, and what
is published is right after any corrections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from errata.answer import correction, evaluation
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.runs import sweep
from errata.answer.sweep_plan import plan_sweep
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.doctor import run_doctor
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import streams
from errata.errors import UsageError
from errata.model.bucket import Role
from errata.model.commit import SweepSummary
from errata.model.results import VS
from errata.model.technique import Technique
from fixtures.projects import Written
from fixtures.read_counts import count_reads
from fixtures.runs import STREAMS, Answering

pytestmark = pytest.mark.usefixtures("spark")

SUMS = "SELECT of, window_no, sum(price) AS s FROM quotes GROUP BY of, row_window(4, 1)"
TWOS = "SELECT of, window_no, sum(price) AS s FROM quotes GROUP BY of, row_window(2)"
PAIRS = "SELECT q.price, t.at AS then FROM quotes AS q JOIN ticks AS t ON q.at < t.at AND q.of = t.of"
GROUPED = STREAMS.replace("key: [at, of], order: at}", "key: [at, of], order: at, group: [of]}", 1)
"""The stream's rows are found by what queries group by."""
AGEING = GROUPED.replace("group: [of]}", "group: [of], retention: 8 units, bucket_rows: 1}")
STORED = "lineage: stored"


class Killed(BaseException):
    """Nothing that the product would catch."""


Begin = Callable[..., Answering]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Queries with stored lineage, answered over thirty instants of two kinds of rows."""
    begun: list[Answering] = []

    def answered(
        texts: Mapping[str, str], declared: str = GROUPED, served: Mapping[str, str] | None = None
    ) -> Answering:
        options = dict.fromkeys(texts, STORED) if served is None else served
        there = Answering.begin(tmp_path / str(len(begun)), texts, options, declared=declared)
        begun.append(there)
        there.take(quotes=[f"{at},{of},{at % 7}" for at in range(1, 31) for of in "ab"], ticks=["3,a", "17,b", "29,a"])
        there.run()
        return there

    yield answered
    for each in begun:
        each.close()


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told exactly what is read."""
    count_reads(monkeypatch)


def swept(there: Answering, technique: Technique = Technique.AUTO) -> dict[str, tuple[EvaluationOutcome, SweepSummary]]:
    """What a sweep did."""
    report = sweep(there.site, technique=technique)
    assert (report.stopped, report.held, report.busy) == ([], [], [])
    return {each.name: (each, each.swept) for each in report.swept if each.swept is not None}


def is_stored(told: tuple[EvaluationOutcome, SweepSummary]) -> bool:
    return told[1].why.startswith("by stored lineage")


def why(told: tuple[EvaluationOutcome, SweepSummary]) -> list[str]:
    return [each.reason for each in told[1].refused]


def test_windows_of_rows_are_replayed_from_their_own_rows(begin: Begin) -> None:
    there = begin({"sums": SUMS, "twos": TWOS, "all": SUMS.replace("of, ", "")})
    there.take(quotes=["10,a,100;replace"])
    plan = {each.query: each for each in plan_sweep(there.site).queries}
    assert all(each.why.startswith("by stored lineage: about ") for each in plan.values()), plan
    done = swept(there)
    assert all(map(is_stored, done.values()))
    # Four windows of four rows that have the tenth; one window of two; and of all rows, of which there are two at each
    # instant, five, since one begins with the other row of that instant: what is kept of them are times.
    read = {name: (each.measures.rows_asked, told.compared, told.changed) for name, (each, told) in done.items()}
    assert read == {"sums": (7, 4, 4), "twos": (2, 1, 1), "all": (10, 5, 4)}
    assert all(there.buckets(name, Role.STATE) for name in done), "what is kept is right still"
    there.check()
    # A late row moves all windows that follow, and derived lineage tells which; then the new ones are known.
    there.take(quotes=["31,b,5"])
    there.run()
    there.take(quotes=["10,c,1", "9,a,;delete"])
    done = swept(there)
    assert not any(map(is_stored, done.values()))
    there.check()
    there.take(quotes=["31,c,5"])
    there.run()
    there.take(quotes=["21,a,50;replace"])
    done = swept(there)
    assert {name: each.measures.rows_asked for name, (each, _) in done.items()} == {"sums": 7, "twos": 2, "all": 10}
    there.check()
    # Rows of windows that are not full are kept by evaluation, too, and put right there.
    there.take(quotes=["30,a,60;replace", "30,b,70;replace"])
    done = swept(there)
    assert all(there.buckets(name, Role.STATE) for name in done)
    there.take(quotes=["32,a,5", "32,b,6"])
    there.run()
    there.check()


def test_sequences_that_lie_apart_are_replayed_apart(begin: Begin) -> None:
    there = begin({"threes": SUMS.replace("row_window(4, 1)", "row_window(3, 2)")})
    there.take(quotes=["4,a,70;replace", "5,a,80;replace", "20,a,90;replace", "12,b,60;replace"])
    done = swept(there)
    # Rows 3 to 7 and 19 to 21 of a, 11 to 13 of b, each read of both.
    assert is_stored(done["threes"])
    assert done["threes"][0].measures.rows_asked == 2 * (5 + 3 + 3)
    there.check()


def test_pairs_that_nothing_bounds_are_replayed_from_their_rows(begin: Begin) -> None:
    text = PAIRS.replace("q.at < t.at", "q.at + 1 < t.at AND q.at > 1")
    there = begin({"pairs": text}, STREAMS)
    assert there.buckets("pairs", Role.LINEAGE)
    there.take(quotes=["10,b,100;replace"])
    done = swept(there)
    assert is_stored(done["pairs"]), done
    assert (done["pairs"][1].compared, done["pairs"][1].changed) == (1, 1)
    assert done["pairs"][0].measures.rows_asked == 2 + 1
    there.check()
    there.take(quotes=["5,b,100;replace", "6,b,;delete"], ticks=["28,b", "17,b,;delete"])
    swept(there)
    there.check()
    there.take(quotes=["5,b,7;replace"])
    swept(there)
    there.check()


def test_what_is_replayed_in_tasks(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((correction, "SPARK_DIFF_ROWS"), (evaluation, "LOCAL_STEP_ROWS")):
        monkeypatch.setattr(module, name, 0)
    there = begin({"sums": SUMS, "pairs": PAIRS})
    for quotes in (["10,a,100;replace"], ["11,a,;delete", "9,c,3", "3,a,8;replace"], ["12,a,90;replace"]):
        there.take(quotes=quotes)
        swept(there)
        there.check()
    there.take(quotes=["10,a,1;replace"])
    assert swept(there, Technique.ALL)["sums"][1].technique == "all"
    there.check()


class TestAgedRows:
    """The beginning of groups has been aged out."""

    @pytest.fixture
    def there(self, begin: Begin) -> Answering:
        there = begin({"sums": SUMS}, AGEING)
        age_out(there.site, ["quotes"])
        assert streams.stream_state(there.site.catalog, "quotes").aged_to == 22
        return there

    def test_windows_of_rows_that_are_there_are_corrected(self, there: Answering) -> None:
        before = there.rows("sums")
        there.take(quotes=["25,a,100;replace"])
        done = swept(there)
        assert why(done["sums"]) == []
        assert "aged out" in done["sums"][1].why
        assert done["sums"][0].measures.rows_asked == 7
        changed = [(was, now) for was, now in zip(before, there.rows("sums"), strict=True) if was != now]
        assert [(now["window_no"], now["s"] - was["s"]) for was, now in changed] == [
            (at, 96) for at in (21, 22, 23, 24)
        ]
        # Of a window of which a row is gone it is refused, and so is what would move windows.
        there.take(quotes=["24,b,100;replace", "25,b,;delete", "29,b,70;replace"])
        stood = there.rows("sums")
        done = swept(there)
        gone = "the results are made of rows of quotes that have been aged out"
        told = [(each.first, each.last, each.count, each.reason) for each in done["sums"][1].refused]
        assert told == [(2, 3, 2, gone)]
        assert {each["of"] for each in stood if each not in there.rows("sums")} == {"b"}
        there.take(quotes=["31,a,1", "31,b,1"])
        there.run()
        assert [each["s"] for each in there.rows("sums") if each[VS] == 31] == [1 + 2 + 1 + 0, 1 + 2 + 70 + 0]

    def test_what_was_refused_is_not_taken_up_by_the_way(self, there: Answering) -> None:
        there.take(quotes=["25,c,4"])
        there.take(quotes=["26,a,;delete"])
        stood = there.rows("sums")
        assert len(why(swept(there)["sums"])) == 1
        assert there.rows("sums") == stood
        # The windows with that row cannot be made again, others can.
        there.take(quotes=["27,a,90;replace"])
        (told,) = why(swept(there)["sums"])
        assert told.startswith("the results were made before rows came or went")
        assert there.rows("sums") == stood
        there.take(quotes=["27,b,90;replace"])
        assert why(swept(there)["sums"]) == []
        assert there.rows("sums") != stood


def test_it_is_kept_up_beside_the_results(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.archive.upkeep.result_compaction.BUCKETS_PER_MERGE", 4)
    there = begin({"sums": SUMS, "whole": SUMS}, served={"sums": f"{STORED}, retention: 5 units"})
    for end in (40, 50):
        there.take(quotes=[f"{at},{of},1" for at in range(end - 9, end + 1) for of in "ab"])
        there.run()
    before = there.buckets("sums", Role.LINEAGE)
    assert [(each.vs_min, each.vs_max) for each in before] == [(1, 30), (27, 40), (37, 50)]
    age_out(there.site, ["sums"])
    with there.site.catalog.reading() as connection:
        gone = streams.aged_to_now(connection, there.of("sums").stream_id)
    assert gone == 40
    after = [each for each in there.buckets("sums", Role.LINEAGE) if each.removed_in is None]
    assert [(each.vs_min, each.vs_max) for each in after] == [(27, 40), (37, 50)]
    for at in range(51, 59):
        there.take(quotes=[f"{at},a,{at % 5}", f"{at},b,4"])
        there.run()
        there.take(quotes=[f"{at - 6},a,{at};replace", *([f"{at - 1},a,;delete"] if at % 3 == 0 else [])])
        swept(there)
    assert len(there.buckets("sums", Role.LINEAGE)) <= 4
    run_vacuum(there.site)
    assert [finding for each in run_doctor(there.site) for finding in each.findings] == []
    there.take(quotes=["47,a,77;replace"])
    assert is_stored(swept(there)["sums"])
    there.check("whole")
    assert there.rows("sums") == [each for each in there.rows("whole") if each[VS] >= gone]


def test_to_declare_it_works_the_answer_out_anew(begin: Begin) -> None:
    there = begin({"sums": SUMS}, served={})
    there.take(quotes=["10,a,100;replace"])
    assert not is_stored(swept(there)["sums"])
    stood = there.rows("sums")
    for declared in ({"sums": STORED}, {}, {"sums": STORED}):
        there.served = declared
        there.edit({"sums": SUMS})
        there.run()
        assert there.rows("sums") == stood
        assert bool(there.buckets("sums", Role.LINEAGE)) == bool(declared)
    there.take(quotes=["10,a,1;replace"])
    assert is_stored(swept(there)["sums"])
    there.check()


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_sweep_that_is_killed_keeps_results_and_lineage_together(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, afterwards: bool
) -> None:
    there, other = (begin({"sums": SUMS}) for _ in range(2))
    commit = "errata.catalog.result_archives.commit_evaluation"

    def dying(*given: Any) -> int:
        if afterwards:
            committed(*given)
        raise Killed

    from errata.catalog import result_archives  # noqa: PLC0415

    committed = result_archives.commit_evaluation
    stood = (there.rows("sums"), there.buckets("sums", Role.LINEAGE))
    late, in_place = ["10,a,;delete"], ["20,a,50;replace"]
    for each in (there, other):
        each.take(quotes=late)
    swept(other)
    with monkeypatch.context() as patched:
        patched.setattr(commit, dying)
        with pytest.raises(Killed):
            sweep(there.site)
    if not afterwards:
        assert (there.rows("sums"), there.buckets("sums", Role.LINEAGE)) == stood
    for each in (there, other):
        sweep(each.site)
        each.take(quotes=in_place)
        assert is_stored(swept(each)["sums"])
        each.check()
    assert there.rows("sums") == other.rows("sums")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT of, sum(price) AS s FROM quotes GROUP BY of", "of all rows of its group"),
        ("SELECT of, sum(price) AS s FROM quotes GROUP BY of, window(at, 4)", "of all rows of its group"),
        ("SELECT of, price FROM quotes WHERE price > 2", "exactly in which stretch of time"),
        ("SELECT of, price FROM sliding_rows(quotes, 2)", "rows that they are not made of"),
    ],
)
def test_it_is_refused_where_it_tells_nothing_more(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as told:
        Written(tmp_path).apply({"other": text}, {"other": STORED}, STREAMS)
    assert "queries.other.lineage" in str(told.value)
    assert "leave lineage out" in str(told.value)
