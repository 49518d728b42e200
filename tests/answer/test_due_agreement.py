"""What is due: the list of steps, and what becomes of it with the sensor (`find_due_corrections`), `sweep --plan`,
`status`, and a sweep or a run. Random courses of arrivals, corrections, faults and edits, compared after every step."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from errata.answer.catalog_view import CatalogView
from errata.answer.due_corrections import DueCorrections, find_due_corrections
from errata.answer.runs import RunReport, SweepReport, run, sweep
from errata.answer.steps import Step, StepKind, StepList, StepRequest
from errata.answer.sweep_plan import PlannedCorrection, SweepPlan, plan_sweep
from errata.model.time import MINUTE
from errata.read.status import QueryStatus, query_statuses
from fixtures.catalog import NOW
from fixtures.chance import seeds
from fixtures.runs import DEAR, FIRST, MOST, QUERIES, SECOND, STREAMS, SUMS, Answering

TEXTS = {"dear": DEAR, "sums": SUMS, "most": MOST, **{name: QUERIES[name] for name in ("closed", "twos", "named")}}
OPTIONS = {
    "sums": "sweep: {when: queue >= 3}",
    "closed": "sweep: {when: age >= 30 minutes}",
    "twos": "sweep: {when: never}",
    "named": "sweep: {when: queue >= 2 or age >= 20 minutes}",
}
OVER_STREAMS = ("dear", "sums", "closed", "twos")
"""Queries that read one stream and nothing else, so that all they lack are its revisions."""

PAST = ["3,a,9;replace", "1,b,;delete", "7,a,8;replace", "2,a,6;insert", "12,a,7;replace", "6,c,;delete"]

pytestmark = pytest.mark.usefixtures("spark")


WHOLE = StepRequest(probes=True)
CORRECTING = StepRequest(evaluates=False, probes=True)


@dataclass(frozen=True)
class ListedSteps:
    """The list of steps before a run or a sweep."""

    steps: Sequence[Step]

    @classmethod
    def read(cls, there: Answering, request: StepRequest = WHOLE) -> ListedSteps:
        return cls(StepList(CatalogView(there.site), request).steps())

    @property
    def due(self) -> list[tuple[StepKind, str]]:
        return [(each.kind, each.name) for each in self.steps if each.due]

    @property
    def certain(self) -> set[tuple[StepKind, str]]:
        """The steps that no earlier one can change: they are the first to be carried out."""
        due = self.due
        first = {(each.kind, each.name) for each in self.steps if not any(name in each.after for _, name in due)}
        # A correction may take up all that an evaluation of the same query would.
        corrected = {name for kind, name in due if kind is StepKind.CORRECT}
        return {
            each for each in first.intersection(due) if each[0] is not StepKind.EVALUATE or each[1] not in corrected
        }

    def check(self, report: RunReport | SweepReport) -> None:
        """The list is empty exactly if nothing was done; its first steps were, and no query without any."""
        done = {(StepKind.APPLY, each.stream) for each in report.revised}
        for each in report.evaluated:
            done.add((StepKind.EVALUATE if each.swept is None else StepKind.CORRECT, each.name))
        idle = {(each.kind, each.name) for each in self.steps if each.ready and each.idle}
        assert bool(self.due) == bool(done - idle or (report.stopped and self.due)), (self.due, done)
        faulty, blocked = {name for name, _ in report.stopped}, {name for name, _ in report.held}
        assert {each for each in self.certain if each[1] not in faulty | blocked} <= done, (self.certain, done)
        assert {name for _, name in done} <= {name for _, name in (*self.due, *idle)}, (self.due, done)
        held = {each.name for each in self.steps if each.held_by is not None}
        assert held.isdisjoint(name for _, name in done)
        assert held <= faulty | blocked


class Opinions:
    """What each of those who only look says is due."""

    def __init__(self, there: Answering, names: Collection[str] = ()) -> None:
        self.sensor: DueCorrections = find_due_corrections(there.site, list(names))
        self.plan: SweepPlan = plan_sweep(there.site, list(names))
        self.planned: Mapping[str, PlannedCorrection] = {each.query: each for each in self.plan.queries}
        self.listed = ListedSteps.read(there)
        self.status: Mapping[str, QueryStatus] = {each.name: each for each in query_statuses(there.site)}

    def agree(self) -> None:
        """Hold what is said of the same against each other."""
        evaluated = {name for kind, name in self.listed.due if kind is StepKind.EVALUATE}
        due = {name for name, each in self.status.items() if each.due}
        assert (
            due <= evaluated <= due | {name for name, each in self.status.items() if each.may_resume or each.waits_for}
        )
        assert set(self.sensor.queries) <= set(self.planned), "the sensor knows of more than the plan"
        for name in OVER_STREAMS:
            planned, status = self.planned.get(name), self.status[name]
            if not status.pending and not status.missing_revisions:
                # All that it may lack lies at its frontier, and is read by going on.
                assert status.deferred is None, name
                assert planned is None or status.due, name
                continue
            assert planned is not None, name
            assert status.deferred == planned.waits, name
            if planned is not None and planned.waits is None and self.settles:
                assert name in self.sensor.queries, name

    @property
    def settles(self) -> bool:
        """Whether what is pending speaks of rows that have come."""
        return not self.plan.pending or any(name in self.sensor.streams for name in self.plan.pending)

    def foretell(self, report: SweepReport | RunReport) -> None:
        """Hold them against what was done. A query may be looked at in vain, and no other is corrected. Late versions
        may be taken up once more, before an evaluation has recorded that they were read; of what is pending a part may
        prove to be without effect, so that too little is left to be due."""
        corrected = {
            each.name
            for each in report.evaluated
            if each.swept is not None and (each.swept.changed or each.name in self.sensor.queries)
        }
        assert corrected <= set(self.sensor.queries), self.sensor
        assert {each.stream for each in report.revised} <= set(self.sensor.streams), self.sensor
        assert corrected <= set(self.planned)
        assert {name for name, each in self.planned.items() if each.waits is not None}.isdisjoint(corrected)
        counts = [each.counts for each in report.revised]
        if not self.settles or any(each.dropped or each.refused or each.waiting for each in counts):
            return
        for name in OVER_STREAMS:
            if name in self.planned and self.planned[name].waits is None:
                assert name in corrected, name


def sweep_due(there: Answering, names: Collection[str] = ()) -> SweepReport:
    """Sweep what is due; nothing is due after that."""
    before = Opinions(there, names)
    before.agree()
    listed = ListedSteps.read(there, replace(CORRECTING, names=list(names)))
    report = sweep(there.site, list(names), due=True)
    listed.check(report)
    assert bool(report.revised or report.swept) or not before.sensor
    before.foretell(report)
    assert not find_due_corrections(there.site, list(names))
    return report


def run_due(there: Answering) -> None:
    """Do all that is due; what has been deferred is what the plan says still waits."""
    before = Opinions(there)
    before.agree()
    report = run(there.site)
    before.listed.check(report)
    before.foretell(report)
    after = Opinions(there)
    after.agree()
    assert not after.sensor
    assert not after.listed.due
    waiting = {name for name, each in after.planned.items() if each.waits is not None}
    # A revision of the frontier alone is deferred, and then read by the evaluation of the same run.
    read_on = {each.name for each in report.deferred} - waiting
    assert not any(after.status[name].missing_revisions for name in read_on)
    behind = {name for name in OVER_STREAMS if after.status[name].missing_revisions}
    assert behind <= {each.name for each in report.deferred}


@pytest.mark.parametrize("seed", seeds(__name__, 4))
def test_those_who_look_agree_with_those_who_do(tmp_path: Path, seed: int) -> None:
    rng, now = random.Random(seed), NOW
    there = Answering.begin(tmp_path, TEXTS, OPTIONS, declared=STREAMS)
    for rows in (FIRST, SECOND):
        there.take(quotes=rows["quotes"], names=SECOND["names"] if rows is SECOND else ["a,first,1"])
        there.run()
    for number in range(6):
        at = 13 + 2 * number
        match rng.choice(["correct", "late", "versions", "forward", "some", "time"]):
            case "correct":
                there.take(quotes=rng.sample(PAST, rng.randint(1, 3)))
            case "late":
                there.take(quotes=[f"{rng.randint(1, 11)},{rng.choice('xyz')}{number},5"])
            case "versions":
                there.take(names=[f"{rng.choice('abc')},n{number},{rng.randint(1, at)}"])
            case "forward":
                there.take(quotes=[f"{at},a,4", f"{at},b,{number}"])
            case "some":
                there.take(quotes=[f"{rng.randint(1, 11)},{rng.choice('xyz')}{number},6"])
                sweep(there.site, [rng.choice(["dear", "sums"])])
            case _:
                now += 10 * MINUTE
                there.at(now)
        match rng.randint(0, 3):
            case 0:
                run_due(there)
            case 1:
                sweep_due(there)
            case _:
                Opinions(there).agree()
    sweep(there.site)
    Opinions(there).agree()
    assert not find_due_corrections(there.site)
    there.close()


FAULTY = {
    "dear": DEAR,
    "inverse": "SELECT of, 12 / price AS r, at FROM quotes",
    "top": "SELECT of, max(r) AS top FROM inverse GROUP BY of",
    "most": MOST,
    "sums": SUMS,
    "late": "SELECT of, price, at FROM quotes",
}
EDITS = ("5", "3", "4")
"""Spans of the windows of `sums`."""


def happen(there: Answering, rng: random.Random, action: str, at: int) -> None:
    """Let something come, or be edited, or one query be run."""
    match action:
        case "forward":
            there.take(quotes=[f"{at},a,4"])
        case "zero":
            there.take(quotes=[rng.choice([f"{at},b,0", "3,a,0;replace"])])
        case "mend":
            there.take(quotes=["3,a,5;replace", *(f"{each},b,2;replace" for each in range(13, at))])
        case "correct":
            there.take(quotes=rng.sample(PAST, 1))
        case "early":
            there.take(quotes=[f"{at + 9},c,5;replace"])
        case "edit":
            there.edit({**FAULTY, "sums": SUMS.replace("5", rng.choice(EDITS))})
        case _:
            there.run(rng.choice(["sums", "top"]))


@pytest.mark.parametrize("seed", seeds(__name__, 3))
def test_the_list_is_what_is_done_whatever_stops_or_is_edited(tmp_path: Path, seed: int) -> None:
    rng, at = random.Random(seed), 13
    there = Answering.begin(tmp_path, FAULTY, {"sums": "sweep: {when: queue >= 2}", "late": "since: 17"})
    there.take(quotes=FIRST["quotes"])
    for _ in range(7):
        for action in rng.sample(["forward", "zero", "mend", "correct", "early", "edit", "one"], 2):
            at += 1
            happen(there, rng, action, at)
        if rng.random() < 0.3:
            listed, report = ListedSteps.read(there, CORRECTING), sweep(there.site, due=True)
        else:
            listed, report = ListedSteps.read(there), there.run()
        listed.check(report)
        # A query that a sweep corrects, and that stops when it goes on, no longer holds others in the next sweep.
        if isinstance(report, RunReport) or not report.held:
            assert not ListedSteps.read(there, WHOLE if isinstance(report, RunReport) else CORRECTING).due
    there.run()
    assert not ListedSteps.read(there).due
    left = there.run()
    assert (left.evaluated, left.revised) == ([], [])
    there.close()
