"""`errata revise`: ingests and applies corrections, and reports what became of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.revisions.apply import ReviseReport, apply_revisions
from errata.cli.console import print_message, step_status
from errata.cli.ingest import append_lines, ingested_lines, repeated_delivery_lines
from errata.cli.options import global_options
from errata.declare.site import Site, open_site
from errata.errors import EXIT_QUARANTINE, UsageError, count_text
from errata.model.batch import Op
from errata.model.stream import Stream
from errata.read.wording import relative_paths, short_batch_id

_OUTCOME_WORDS = (
    ("inserted", "late row", "put in"),
    ("replaced", "row", "changed"),
    ("deleted", "row", "deleted"),
    ("dropped", "correction", "dropped: it is so already"),
    ("ignored", "correction", "ignored, as the stream declares (`on_revision: ignore`)"),
    ("waiting", "correction", "waiting for rows that have not come yet"),
)


def revise_command(
    context: typer.Context,
    stream: Annotated[
        str | None, typer.Argument(metavar="STREAM", help="The stream; else all of them.", show_default=False)
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILES", help="Files, folders or patterns of corrections.", show_default=False),
    ] = None,
    batch_id: Annotated[
        str | None, typer.Option("--batch-id", metavar="ID", help="The batch's name; else made from its files.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="One unreadable row fails the files whole.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Take files in once more, as if said anew.")] = False,
) -> int:
    """Correct history: take files of corrections in, and apply all that is pending.

    A row of the files replaces the one of its key; `_op` says delete or insert instead, columns left out stay as they
    are, and `_old_COLUMN` is checked. Without files, what is pending is applied. Wrong corrections go to quarantine:
    then the exit code is 3.
    """
    if not files and (batch_id is not None or strict or again):
        raise UsageError("--batch-id, --strict and --again are about files, and none is named")
    with open_site(global_options(context).project) as site:
        held = (
            _ingest_batch(site, IngestRequest(stream or "", files, False, batch_id, strict, again, Op.REPLACE))
            if files
            else 0
        )
        with step_status("applying corrections") as on_step:
            reports = apply_revisions(site, [stream] if stream else [], on_step)
        for report in reports:
            for line in revision_lines(report):
                print_message(line)
        if not any(report.commits or report.counts.waiting for report in reports):
            print_message("nothing is pending")
    return EXIT_QUARANTINE if held or any(report.counts.refused for report in reports) else 0


def _ingest_batch(site: Site, batch: IngestRequest) -> int:
    """Ingest files; the number of rows that went to quarantine."""
    with step_status(f"taking in corrections of {batch.stream}") as on_step:
        report = ingest_batch(site, batch, on_step)
    for line in _corrections_taken_lines(report, site.project.streams[batch.stream]):
        print_message(line)
    return 0 if report.already_ingested else report.counts.quarantined


def _corrections_taken_lines(report: IngestReport, stream: Stream) -> Iterator[str]:
    """What was ingested, in words: mostly corrections, rarely new rows."""
    counts = report.counts
    if report.already_ingested or counts.appended or not counts.pending:
        yield from append_lines(report, stream)
        return
    yield from repeated_delivery_lines(report)
    files = f"batch {short_batch_id(report.batch_id)}, {count_text(report.files, 'file')}"
    yield f"{stream.name}: {count_text(counts.pending, 'correction')} taken in, in commit {report.commit_id} ({files})"
    # Lines about appended rows, pending corrections and the stable point are left out.
    yield from list(ingested_lines(report, stream))[2:-1]


def revision_lines(report: ReviseReport) -> Iterator[str]:
    """What became of a stream's corrections, in words."""
    settled = report.counts
    if not report.commits and not settled.waiting:
        return
    where = f" in commit {', '.join(map(str, report.commits))}" if report.commits else ""
    yield f"{report.stream}: {count_text(settled.applied, 'correction')} applied{where}"
    for name, thing, words in _OUTCOME_WORDS:
        if count := getattr(settled, name):
            yield f"  {count_text(count, thing)} {words}"
    if settled.refused:
        yield f"  {count_text(settled.refused, 'correction')} in quarantine:"
        yield from (f"    {relative_paths(f'{bad.file}:{bad.line}: {bad.reason}')}" for bad in report.bad)
        if settled.refused > len(report.bad):
            more = settled.refused - len(report.bad)
            yield f"    and {more:,} more: errata quarantine ls {report.stream}"
