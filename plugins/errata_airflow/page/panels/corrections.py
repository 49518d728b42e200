"""Panel of corrections, by sweeps and replays, with a report of each and of each task's commits."""

from __future__ import annotations

from errata.declare.site import Site
from errata.read.correction_report import CorrectionReport, correction_report
from errata.read.corrections import (
    CorrectionPage,
    CorrectionSummary,
    TaskCommits,
    correction_page,
    find_replay,
    task_commits,
)
from errata_airflow.page.panel import Page, PageRequest, Panel

PLAIN = (
    "When a source says something anew about the past, a sweep works out the results that this touches and publishes "
    "those that come out different. A replay does the same for a range that a person names."
)


def _course(site: Site, asked: PageRequest) -> CorrectionPage:
    return correction_page(site, asked.number("before"), asked.text("query"))


def _report(site: Site, asked: PageRequest) -> CorrectionReport:
    return correction_report(site, asked.needed("query"), int(asked.needed("commit")), asked.number("page") or 1)


def _replay(site: Site, asked: PageRequest) -> CorrectionSummary:
    return find_replay(site, int(asked.needed("number")))


def _deeds(site: Site, asked: PageRequest) -> TaskCommits:
    task = asked.needed("dag_id"), asked.needed("run_id"), asked.needed("task_id")
    return task_commits(site, *task, asked.number("try_number"))


PANEL = Panel(
    30,
    Page("corrections", "Corrections", PLAIN, _course, "corrections.html"),
    (
        Page(
            "corrections/{query}/{commit:int}",
            "Correction",
            "What one correction has changed: each result as it was and as it is, and what the source had said anew.",
            _report,
            "report.html",
        ),
        Page(
            "replays/{number:int}",
            "Replay",
            "A range of results that a person had worked out again from history.",
            _replay,
            "replay.html",
        ),
        Page("run", "Task", "What a task of Airflow has done here, commit by commit.", _deeds, "run.html"),
    ),
)
