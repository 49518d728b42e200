"""What the jobs under jobs/ call: one function each, from arguments to an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.errors import EXIT_QUARANTINE
from errata.flows.age_out import age_out
from errata.flows.append import Batch, append
from errata.flows.site import at_site
from errata.model.commit import Cause


def add_cause_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments by which a scheduler says who runs the job; they end up in the commit."""
    told = parser.add_argument_group("who runs this", "what each commit is to say of its making")
    told.add_argument("--dag-id", default="")
    told.add_argument("--run-id", default="")
    told.add_argument("--task-id", default="")
    told.add_argument("--try-number", type=int)


def cause_of(given: argparse.Namespace) -> Cause:
    """What those arguments said."""
    return Cause("", dag_id=given.dag_id, run_id=given.run_id, task_id=given.task_id, try_number=given.try_number)


def append_job(project: Path, batch: Batch, cause: Cause) -> int:
    """Take a batch in."""
    with at_site(project, cause) as site:
        report = append(site, batch, _say)
    if report.commit_id is None:
        _say(f"{batch.stream}: nothing has landed")
        return 0
    if report.already:
        _say(f"{batch.stream}: batch {report.batch_id} was taken in before, in commit {report.commit_id}")
        return 0
    counts = report.counts
    _say(
        f"{batch.stream}: commit {report.commit_id}, {counts.appended:,} rows appended, {counts.pending:,} pending, "
        f"{counts.dropped:,} dropped, {counts.replaced:,} replaced, {counts.quarantined:,} in quarantine"
    )
    return EXIT_QUARANTINE if counts.quarantined else 0


def age_out_job(project: Path, names: Sequence[str], cause: Cause) -> int:
    """Drop what streams no longer keep."""
    with at_site(project, cause) as site:
        for aged in age_out(site, names):
            done = f"commit {aged.commit_id}" if aged.commit_id else "nothing due"
            _say(f"{aged.stream}: {done}, {len(aged.buckets):,} buckets with {aged.rows:,} rows dropped")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
