"""A correction by direct adjustment, and a sweep that finds nothing to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench import errata_under_test as errata
from bench.bucket_index import STREAM
from bench.evaluate_day import frontier_of
from bench.measure import Metric, Outcome, Timings, talk
from bench.replay_day import (
    Archives,
    Contender,
    Stretch,
    check_same,
    in_turns,
    one_by_one,
    published,
    recomputed,
    swept,
)
from bench.replay_queries import QUERIES
from errata.answer.runs import sweep
from errata.archive.revisions.apply import apply_stream_revisions
from errata.declare.site import Site
from errata.model.technique import Technique


@dataclass(frozen=True, slots=True)
class DirectAmounts:
    """How much of everything is measured."""

    day: Stretch
    rounds: int
    warm_up: int = 2


def direct_figures(amounts: DirectAmounts, archives: Archives, folder: Path) -> Outcome:
    """All figures of direct adjustment, of Q1."""
    talk.print("direct adjustment …")
    asked = QUERIES[0]
    some = one_by_one(asked, amounts.day.picked(amounts.warm_up + amounts.rounds), folder / "corrections")
    whole, applied = archives.copy(amounts.day), archives.copy(amounts.day)
    idle = archives.copy(amounts.day)

    def take_in(number: int) -> None:
        errata.take_in_corrections(whole, some[number].file)

    def apply(number: int) -> None:
        errata.take_in_corrections(applied, some[number].file)
        apply_stream_revisions(applied, STREAM)

    contenders = {
        "direct": Contender(lambda _: swept(whole, asked.name, Technique.DIRECT), take_in),
        "adjusted": Contender(lambda _: swept(applied, asked.name, Technique.DIRECT), apply),
        "trivial": Contender(lambda _: trivial_job(idle)),
        "commit": Contender(lambda _: errata.commit_nothing(idle)),
        "nothing": Contender(lambda _: sweep_nothing(idle)),
    }
    times = in_turns(amounts.rounds, contenders, warm_up=amounts.warm_up)
    right = recomputed(whole, asked, frontier_of(whole), some)
    for site in (whole, applied):
        check_same(asked.name, published(site, asked.name), right)
    archives.clear()
    return Outcome(metrics(times))


def trivial_job(site: Site) -> None:
    """The least that Spark does for a job."""
    site.session().range(1).selectExpr("sum(id)").collect()


def sweep_nothing(site: Site) -> None:
    """A sweep of all queries that finds nothing pending, and nothing to correct."""
    report = sweep(site)
    if report.swept or report.revised or len(report.current) != len(QUERIES):
        raise AssertionError(f"there is nothing to sweep, and this came of it: {report}")


_COMMIT_AND_JOB = {"commit": 1.0, "trivial": 1.0}


def metrics(times: Timings) -> list[Metric]:
    return [
        Metric(
            "one correction by direct adjustment, beside a commit and a trivial Spark job",
            times.beside_sum("direct", _COMMIT_AND_JOB),
            "times",
            "<= 2",
        ),
        Metric("the same, once it is part of history", times.beside_sum("adjusted", _COMMIT_AND_JOB), "times"),
        Metric("one correction by direct adjustment", 1_000 * times.median("direct"), "ms", "< 30"),
        Metric("a trivial Spark job", 1_000 * times.median("trivial"), "ms"),
        Metric("a commit of nothing", 1_000 * times.median("commit"), "ms"),
        Metric("a sweep that finds nothing", 1_000 * times.median("nothing"), "ms", "< 200"),
    ]
