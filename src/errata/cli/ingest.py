"""`errata ingest`: files into an archive, and what became of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.options import StreamName, given
from errata.cli.talk import say, steps
from errata.errors import EXIT_QUARANTINE
from errata.flows.site import Site, at_site
from errata.flows.taking.append import AppendReport, Batch, append
from errata.flows.telling.status import unsettled
from errata.model.batch import BadRow
from errata.model.stream import Stream
from errata.serve.words import batch_name, counted, near, place


def ingest(
    context: typer.Context,
    stream: StreamName,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="Files, folders or patterns.", show_default=False)
    ] = None,
    landed: Annotated[bool, typer.Option("--landed", help="Take what has landed in the stream's folder.")] = False,
    batch_id: Annotated[
        str | None, typer.Option("--batch-id", metavar="ID", help="The batch's name; else made from its content.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="One bad row fails the batch whole.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Take files although they were taken in before.")] = False,
) -> int:
    """Take files into a stream's archive: CSV, JSON lines, Parquet, also gzipped.

    Bad rows go to quarantine and the rest goes in: then the exit code is 3. The same batch again changes nothing.
    """
    batch = Batch(stream, files or (), landed, batch_id, strict, again)
    with at_site(given(context).project) as site:
        with steps(f"taking in {stream}") as on_step:
            report = append(site, batch, on_step)
        for line in report_lines(report, site.project.streams[stream]):
            say(line)
        if report.commit_id is None:
            say(_nothing(site, stream))
    return EXIT_QUARANTINE if report.counts.quarantined and not report.already else 0


def report_lines(report: AppendReport, stream: Stream) -> Iterator[str]:
    """What became of a batch's rows, in words."""
    if report.commit_id is None:
        return
    batch = f"batch {batch_name(report.batch_id)}"
    if report.already:
        yield f"{stream.name}: {batch} was taken in before, in commit {report.commit_id}; nothing was changed"
        return
    counts = report.counts
    files = counted(report.files, "file")
    yield f"{stream.name}: {counted(counts.appended, 'row')} appended in commit {report.commit_id} ({batch}, {files})"
    if counts.pending:
        yield f"  {counted(counts.pending, 'row')} late or correcting earlier ones: kept as pending revisions"
    if counts.dropped:
        yield f"  {counted(counts.dropped, 'row')} dropped: the same is there already"
    if counts.replaced:
        yield f"  {counted(counts.replaced, 'row')} overwritten by later ones of the same key in the batch"
    if counts.quarantined:
        yield f"  {counted(counts.quarantined, 'row')} in quarantine:"
        yield from (f"    {near(f'{row.file}:{row.line}: {row.reason}')}" for row in sorted(report.bad, key=_where))
        if counts.quarantined > len(report.bad):
            more = counts.quarantined - len(report.bad)
            yield f"    and {more:,} more: errata quarantine ls {stream.name}"
    if report.stable is not None:
        yield f"  stable point {place(report.stable, stream.timed)}: what comes from before it is late"


def _where(row: BadRow) -> tuple[str, int]:
    return row.file, row.line


def _nothing(site: Site, stream: str) -> str:
    fresh = unsettled(site, stream)
    if not fresh:
        return f"{stream}: nothing has landed"
    return (
        f"{stream}: nothing to take yet; {counted(fresh, 'file')} changed a moment ago and "
        f"{'is' if fresh == 1 else 'are'} left until settled (`settle` in errata.yaml)"
    )
