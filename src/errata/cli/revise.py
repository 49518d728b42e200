"""`errata revise`: corrections taken in and applied, and what became of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.ingest import earlier_lines, report_lines, taken_lines
from errata.cli.options import given
from errata.cli.talk import say, steps
from errata.errors import EXIT_QUARANTINE, UsageError
from errata.flows.site import Site, at_site
from errata.flows.taking.append import AppendReport, Batch, append
from errata.flows.taking.revise import RevisedReport, revise
from errata.model.revision import Op
from errata.model.stream import Stream
from errata.serve.words import batch_name, counted, near

_BECAME = (
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
    with at_site(given(context).project) as site:
        held = _taken_in(site, Batch(stream or "", files, False, batch_id, strict, again, Op.REPLACE)) if files else 0
        with steps("applying corrections") as on_step:
            reports = revise(site, [stream] if stream else [], on_step)
        for report in reports:
            for line in revised_lines(report):
                say(line)
        if not any(report.commits or report.settled.waiting for report in reports):
            say("nothing is pending")
    return EXIT_QUARANTINE if held or any(report.settled.refused for report in reports) else 0


def _taken_in(site: Site, batch: Batch) -> int:
    """Take files in; how many of their rows went to quarantine."""
    with steps(f"taking in corrections of {batch.stream}") as on_step:
        report = append(site, batch, on_step)
    for line in _taken_lines(report, site.project.streams[batch.stream]):
        say(line)
    return 0 if report.already else report.counts.quarantined


def _taken_lines(report: AppendReport, stream: Stream) -> Iterator[str]:
    """What was taken in, in words: mostly corrections, and seldom rows of their own."""
    counts = report.counts
    if report.already or counts.appended or not counts.pending:
        yield from report_lines(report, stream)
        return
    yield from earlier_lines(report)
    files = f"batch {batch_name(report.batch_id)}, {counted(report.files, 'file')}"
    yield f"{stream.name}: {counted(counts.pending, 'correction')} taken in, in commit {report.commit_id} ({files})"
    # Not the rows appended, that corrections are pending, and where the stable point is.
    yield from list(taken_lines(report, stream))[2:-1]


def revised_lines(report: RevisedReport) -> Iterator[str]:
    """What became of a stream's corrections, in words."""
    settled = report.settled
    if not report.commits and not settled.waiting:
        return
    where = f" in commit {', '.join(map(str, report.commits))}" if report.commits else ""
    yield f"{report.stream}: {counted(settled.applied, 'correction')} applied{where}"
    for name, thing, words in _BECAME:
        if count := getattr(settled, name):
            yield f"  {counted(count, thing)} {words}"
    if settled.refused:
        yield f"  {counted(settled.refused, 'correction')} in quarantine:"
        yield from (f"    {near(f'{bad.file}:{bad.line}: {bad.reason}')}" for bad in report.bad)
        if settled.refused > len(report.bad):
            more = settled.refused - len(report.bad)
            yield f"    and {more:,} more: errata quarantine ls {report.stream}"
