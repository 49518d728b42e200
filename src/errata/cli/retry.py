"""`errata quarantine retry`: rows and files in quarantine taken in again."""

from __future__ import annotations

import typer

from errata.cli.ingest import report_lines
from errata.cli.options import StreamName, given
from errata.cli.quarantine import BatchId, Ids, InFile, Reason, nothing
from errata.cli.talk import say, steps
from errata.errors import EXIT_QUARANTINE
from errata.flows.site import at_site
from errata.flows.taking import quarantine as flow
from errata.flows.taking.quarantine import Selection
from errata.flows.taking.retry import retry as retry_rows
from errata.serve.words import counted, near


def retry(
    context: typer.Context,
    stream: StreamName,
    batch: BatchId = None,
    ids: Ids = None,
    reason: Reason = None,
    file: InFile = None,
) -> int:
    """Take rows and landed files in quarantine in again: all of the stream, or those that fit the options.

    They are judged as things are now: late rows become pending revisions, and what is still bad is in quarantine
    again. Then the exit code is 3.
    """
    with at_site(given(context).project) as site:
        selected = flow.select(site, Selection(stream, batch, tuple(ids or ()), reason, file))
        if nothing(selected):
            return 0
        with steps(f"retrying {stream}") as on_step:
            report = retry_rows(site, selected, on_step)
        for each in report.batches:
            for line in report_lines(each, selected.stream):
                say(line)
            if each.trouble is not None:
                raise each.trouble
            if each.commit_id is None and not each.set_aside:
                say(f"{stream}: {'the file is' if len(selected.files) == 1 else 'the files are'} gone")
    if report.left:
        say(f"{stream}: {counted(len(report.left), 'row')} left in quarantine, since they cannot be read again:")
        for row, why in report.left[: flow.SHOWN]:
            say(f"  {row.quarantine_id}: {near(row.row.file)}:{row.row.line}: {why}")
        say("  mend them in their files, and take these in with errata ingest")
    return EXIT_QUARANTINE if report.quarantined else 0
