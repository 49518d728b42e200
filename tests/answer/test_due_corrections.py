"""What is told to those who wait for corrections: it is what a sweep of what is due then does, and nothing after it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from errata.answer.due_corrections import DueCorrections, DueRevisions, find_due_corrections
from errata.answer.runs import SweepReport, sweep
from errata.archive.revisions.apply import apply_revisions
from errata.catalog import leases
from errata.errors import UsageError
from errata.model.time import HOUR, MINUTE
from fixtures.catalog import NOW
from fixtures.chance import seeds
from fixtures.runs import DEAR, FIRMS, FIRST, MOST, QUERIES, SECOND, STREAMS, SUMS, UNSWEPT, Answering

PAST = ["3,a,9;replace", "1,b,;delete", "7,a,8;replace", "2,a,6;insert"]
TEXTS = {"dear": DEAR, "sums": SUMS, "most": MOST}
FAILING = {
    "dear": DEAR,
    "inverse": "SELECT of, 12 / price AS r, at FROM quotes",
    "top": "SELECT of, max(r) AS top FROM inverse GROUP BY of",
}

pytestmark = pytest.mark.usefixtures("spark")


@contextmanager
def answering(
    folder: Path, texts: Mapping[str, str] = TEXTS, options: Mapping[str, str] = {}, declared: str = STREAMS
) -> Iterator[Answering]:
    there = Answering.begin(folder, texts, options, declared=declared)
    for rows in (FIRST, SECOND):
        there.take(quotes=rows["quotes"])
        there.run()
    yield there
    there.close()


def did(report: SweepReport) -> bool:
    return bool(report.revised or report.swept or report.stopped)


def swept(there: Answering, *names: str) -> SweepReport:
    """What is told holds of the sweep that follows, and after it there is nothing left."""
    told = find_due_corrections(there.site, names)
    report = sweep(there.site, names, due=True)
    if told:
        assert did(report), told
    else:
        # Late versions may be taken up once more, before an evaluation has recorded that they were read.
        assert (report.revised, report.stopped) == ([], [])
        assert all(each.swept is not None and not each.swept.changed for each in report.swept), told
        return report
    assert {each.stream for each in report.revised} <= set(told.streams), told
    assert {each.name for each in report.swept} <= set(told.queries), told
    left = find_due_corrections(there.site, names)
    assert not left, left
    assert (left.streams, left.queries) == ({}, [])
    return report


def test_nothing_has_arrived(tmp_path: Path) -> None:
    with answering(tmp_path) as there:
        assert not find_due_corrections(there.site)
        there.take(quotes=["13,b,6"])
        assert not find_due_corrections(there.site), "what only goes on is no correction"


def test_what_is_pending_and_what_is_history(tmp_path: Path) -> None:
    with answering(tmp_path) as there:
        there.take(quotes=PAST)
        pending = find_due_corrections(there.site)
        assert pending.streams == {"quotes": DueRevisions(4, 1, 4)}
        assert pending.queries == ["dear", "most", "sums"]
        assert find_due_corrections(there.site) == pending, "to look changes nothing"
        apply_revisions(there.site)
        applied = find_due_corrections(there.site)
        assert applied.streams == {"quotes": DueRevisions(4, 1, 4)}
        assert applied.queries == ["dear", "most", "sums"]
        assert pending.fingerprint != applied.fingerprint
        there.take(quotes=["6,b,3;replace"])
        both = find_due_corrections(there.site)
        assert both.streams["quotes"].first == 1
        assert both.streams["quotes"].last == 5
        assert {each.name for each in swept(there).swept} == set(TEXTS)
        assert applied.record == {
            "streams": {"quotes": {"count": 4, "first": 1, "last": 4}},
            "queries": ["dear", "most", "sums"],
            "commit": applied.commit_id,
            "fingerprint": applied.fingerprint,
        }


def test_of_some_queries(tmp_path: Path) -> None:
    texts = {**TEXTS, "beats": "SELECT of, at FROM ticks"}
    with answering(tmp_path, texts) as there:
        there.take(ticks=FIRST["ticks"])
        there.run()
        there.take(quotes=PAST[:2])
        assert find_due_corrections(there.site, ["most"]).queries == ["most", "sums"]
        assert not find_due_corrections(there.site, ["beats"])
        swept(there, "beats")
        swept(there, "most")
        assert find_due_corrections(there.site).queries == ["dear"]
        swept(there)
        with pytest.raises(UsageError, match="unknown query 'mots'"):
            find_due_corrections(there.site, ["mots"])


def test_what_is_deferred_comes_when_it_is_due(tmp_path: Path) -> None:
    rules = {"sums": "queue >= 3", "most": "never", "late": "age >= 1 hour"}
    options = {name: f"sweep: {{when: {when}}}" for name, when in rules.items()}
    texts = {**TEXTS, "late": QUERIES["closed"]}
    with answering(tmp_path, texts, options, UNSWEPT) as there:
        there.take(quotes=PAST[:2])
        assert not find_due_corrections(there.site)
        swept(there)
        there.take(quotes=PAST[2:])
        # It has become due for sums; most is of its results, and cannot leave them out.
        assert find_due_corrections(there.site).streams == {"quotes": DueRevisions(4, 1, 4)}
        assert {each.name for each in swept(there).swept} == {"sums", "most"}
        there.at(NOW + HOUR - MINUTE)
        assert not find_due_corrections(there.site)
        there.at(NOW + HOUR)
        assert find_due_corrections(there.site).queries == ["late"]
        assert {each.name for each in swept(there).swept} == {"late"}
        there.at(NOW + 9 * HOUR)
        assert not find_due_corrections(there.site), "one waits for ever"


def test_corrections_of_rows_that_have_not_come(tmp_path: Path) -> None:
    declared = STREAMS.replace("order: at}", "order: at, slack: 3}", 1)
    with answering(tmp_path, declared=declared) as there:
        # Stable is 9. None of these rows is there.
        there.take(quotes=["11,a,9;replace", "12,c,;delete"])
        assert not find_due_corrections(there.site)
        swept(there)
        there.take(quotes=["12,a,9;replace"])
        assert find_due_corrections(there.site).streams["quotes"].count == 3, "that row is there, though not stable yet"
        assert [each.counts.replaced for each in swept(there).revised] == [1]
        # The overlay's row is there, too; the one that is deleted no longer is.
        there.take(quotes=["12,a,;delete"])
        assert find_due_corrections(there.site)
        swept(there)
        there.take(quotes=["12,a,;delete"])
        assert not find_due_corrections(there.site)
        swept(there)
        # Now one is behind the stable point, and wrong.
        there.take(quotes=["15,a,1"])
        assert find_due_corrections(there.site)
        assert [each.counts.refused for each in swept(there).revised] == [1]
        there.take(quotes=["12,c,3", "20,a,1"])
        swept(there)


def test_queries_that_have_stopped(tmp_path: Path) -> None:
    with answering(tmp_path, FAILING) as there:
        there.take(quotes=["3,a,0;replace", "1,b,6;replace"])
        assert find_due_corrections(there.site).queries == ["dear", "inverse", "top"]
        report = swept(there)
        assert ([name for name, _ in report.stopped], [name for name, _ in report.held]) == (["inverse"], ["top"])
        # Others go on; what has come may let the stopped one go on, which is tried once.
        there.take(quotes=["13,b,6"])
        assert find_due_corrections(there.site).queries == ["inverse", "top"]
        swept(there)
        there.take(quotes=["3,a,6;replace"])
        assert find_due_corrections(there.site).queries == ["dear", "inverse", "top"]
        assert {each.name for each in swept(there).swept} == set(FAILING)


def test_a_query_that_has_stopped_going_on_but_has_nothing_to_correct(tmp_path: Path) -> None:
    texts = {**FAILING, "least": "SELECT min(r) AS least FROM inverse"}
    with answering(tmp_path, texts) as there:
        there.take(quotes=["13,b,0"])
        assert [name for name, _ in there.run().stopped] == ["inverse"]
        assert not find_due_corrections(there.site)
        swept(there)


def test_queries_that_are_being_worked_on(tmp_path: Path) -> None:
    with answering(tmp_path) as there:
        there.take(quotes=PAST)
        with leases.hold_lease(there.site.catalog, "query sums"):
            assert find_due_corrections(there.site).queries == ["dear"]
            report = sweep(there.site, due=True)
            assert (report.busy, [name for name, _ in report.held]) == (["sums"], ["most"])
            assert not find_due_corrections(there.site)
        assert find_due_corrections(there.site).queries == ["most", "sums"]
        swept(there)


def test_late_versions_of_relations(tmp_path: Path) -> None:
    texts = {"named": QUERIES["named"], "known": QUERIES["named"].replace("names", "firms")}
    with answering(tmp_path, texts, declared=STREAMS + FIRMS) as there:
        there.take(names=["a,alpha,6"], firms=["a,alpha,6"])
        there.run()
        there.take(names=["a,early,2"])
        assert find_due_corrections(there.site).queries == ["named"]
        swept(there)
        # A batch that reaches from before the end of what is answered to behind it is not read to its end by a sweep.
        there.take(firms=["b,late,8", "b,later,20"])
        there.take(quotes=["12,b,4"])
        assert find_due_corrections(there.site).queries == ["known"]
        swept(there)
        there.take(firms=["b,last,9"])
        assert find_due_corrections(there.site).queries == ["known"]
        swept(there)
        there.take(names=["a,early,2;delete"], firms=["a,first,6;replace"])
        swept(there)
        there.run()
        there.check()


def test_corrections_of_a_query_that_is_further(tmp_path: Path) -> None:
    with answering(tmp_path) as there:
        there.take(quotes=["13,a,4", "15,b,6"])
        there.run("sums")
        there.take(quotes=["15,b,7;replace"])
        swept(there, "sums")
        assert not find_due_corrections(there.site, ["most"]), "it begins behind what most has answered"
        swept(there)
        there.take(quotes=["7,a,8;replace"])
        swept(there, "sums")
        assert find_due_corrections(there.site).queries == ["dear", "most"]
        swept(there)


def test_policies(tmp_path: Path) -> None:
    declared = STREAMS.replace("slack: 2", "slack: 2, on_revision: ignore")
    texts = {**TEXTS, "beats": "SELECT of, at FROM ticks"}
    with answering(tmp_path, texts, {"dear": "on_revision: history"}, declared) as there:
        there.take(ticks=FIRST["ticks"])
        there.run()
        there.take(ticks=["2,a;delete"], quotes=PAST)
        swept(there)


def test_queries_that_are_edited(tmp_path: Path) -> None:
    with answering(tmp_path) as there:
        there.take(quotes=PAST)
        there.edit({**TEXTS, "sums": SUMS.replace("5", "3"), "kinds": QUERIES["kinds"]})
        swept(there)
        there.run()
        there.take(quotes=["6,c,;delete"])
        swept(there)


@pytest.mark.parametrize("seed", seeds(__name__, 4))
def test_whatever_happens(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    options = {"sums": "sweep: {when: queue >= 3}", "closed": "sweep: {when: age >= 30 minutes}"}
    texts = {**TEXTS, "closed": QUERIES["closed"], "named": QUERIES["named"]}
    now = NOW
    with answering(tmp_path, texts, options) as there:
        for number in range(7):
            at = 12 + 2 * number
            match rng.choice(["correct", "late", "early", "versions", "go on", "run some", "time"]):
                case "correct":
                    there.take(quotes=rng.sample(PAST, rng.randint(1, 3)))
                case "late":
                    there.take(quotes=[f"{rng.randint(1, 11)},{rng.choice('xyz')}{number},5"])
                case "early":
                    there.take(quotes=[f"{at + 5},a,5;replace"])
                case "versions":
                    there.take(names=[f"{rng.choice('abc')},n{number},{rng.randint(1, at)}"])
                case "go on":
                    there.take(quotes=[f"{at},a,4"])
                    there.run()
                case "run some":
                    there.take(quotes=[f"{at},b,{number}"])
                    there.run(rng.choice(["sums", "named"]))
                case _:
                    now += 10 * MINUTE
                    there.at(now)
            if rng.random() < 0.7:
                swept(there)
        swept(there)


def test_nothing_at_all() -> None:
    nothing = DueCorrections()
    assert not nothing
    assert nothing.record == {"streams": {}, "queries": [], "commit": 0, "fingerprint": ""}


def test_to_look_is_cheap() -> None:
    """Triggers look, in a process that they share: Spark and the parser of SQL are too heavy for it."""
    seen = "[each for each in ('pyspark', 'sqlglot') if each in sys.modules]"
    code = f"import sys, errata.answer.due_corrections, errata.read.watch; print({seen})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
