"""`errata quarantine retry`: rows and files in quarantine taken in again."""

from __future__ import annotations

import typer

from errata.archive.ingest.quarantine import SHOWN_IDS, QuarantineSelection, select_items
from errata.archive.ingest.retry import retry_items
from errata.cli.console import print_message, step_status
from errata.cli.ingest import append_lines
from errata.cli.options import StreamName, global_options
from errata.cli.quarantine import BatchOption, FileOption, IdsOption, ReasonOption, report_if_nothing
from errata.declare.site import open_site
from errata.errors import EXIT_QUARANTINE, count_text
from errata.read.wording import relative_paths


def retry(
    context: typer.Context,
    stream: StreamName,
    batch: BatchOption = None,
    ids: IdsOption = None,
    reason: ReasonOption = None,
    file: FileOption = None,
) -> int:
    """Take rows and landed files in quarantine in again: all of the stream, or those that fit the options.

    They are judged as things are now: late rows become pending revisions, and what is still bad is in quarantine
    again. Then the exit code is 3.
    """
    with open_site(global_options(context).project) as site:
        selected = select_items(site, QuarantineSelection(stream, batch, tuple(ids or ()), reason, file))
        if report_if_nothing(selected):
            return 0
        with step_status(f"retrying {stream}") as on_step:
            report = retry_items(site, selected, on_step)
        for each in report.batches:
            for line in append_lines(each, selected.stream):
                print_message(line)
            if each.clearing_error is not None:
                raise each.clearing_error
            if each.commit_id is None and not each.held_files:
                print_message(f"{stream}: {'the file is' if len(selected.files) == 1 else 'the files are'} gone")
    if report.unreadable:
        rows = count_text(len(report.unreadable), "row")
        print_message(f"{stream}: {rows} left in quarantine, since they cannot be read again:")
        for row, why in report.unreadable[:SHOWN_IDS]:
            print_message(f"  {row.quarantine_id}: {relative_paths(row.row.file)}:{row.row.line}: {why}")
        print_message("  mend them in their files, and take these in with errata ingest")
    return EXIT_QUARANTINE if report.quarantined else 0
