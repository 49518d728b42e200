"""`errata ingest`: files into an archive, and what became of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.options import StreamName, given
from errata.cli.talk import say, steps
from errata.errors import EXIT_QUARANTINE
from errata.flows.site import Site, at_site
from errata.flows.taking.append import SHOWN, AppendReport, Batch, append
from errata.flows.taking.deliveries import standing_before, undone_before
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
        str | None, typer.Option("--batch-id", metavar="ID", help="The batch's name; else made from its files.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="One bad row fails the batch whole.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Take files in once more, as if said anew.")] = False,
) -> int:
    """Take files into a stream's archive: CSV, JSON lines, Parquet, also gzipped.

    Bad rows, and landed files that cannot be read, go to quarantine and the rest goes in: then the exit code is 3. The
    same files again change nothing; equal ones under other names are another delivery.
    """
    batch = Batch(stream, files or (), landed, batch_id, strict, again)
    with at_site(given(context).project) as site:
        with steps(f"taking in {stream}") as on_step:
            report = append(site, batch, on_step)
        for line in report_lines(report, site.project.streams[stream]):
            say(line)
        if report.already and batch_id is None:
            say("  files that say it anew: give them another name, or take them in with --again")
        if report.commit_id is None and not report.set_aside:
            say(_nothing(site, stream))
    if report.trouble is not None:
        raise report.trouble
    return EXIT_QUARANTINE if report.incomplete else 0


def report_lines(report: AppendReport, stream: Stream) -> Iterator[str]:
    """What became of a batch's rows and files, in words."""
    yield from earlier_lines(report)
    if report.commit_id is not None and not report.already:
        yield from taken_lines(report, stream)


def earlier_lines(report: AppendReport) -> Iterator[str]:
    """Which files were set aside, and what has been here before."""
    yield from _set_aside_lines(report)
    if report.already:
        batch = f"batch {batch_name(report.batch_id)}"
        yield f"{report.stream}: {batch} was taken in before, in commit {report.commit_id}; nothing was changed"
    for each in report.left_out[:SHOWN]:
        yield f"{report.stream}: {near(each.name)} left out, taken in before with batch {batch_name(each.batch_id)}"
    if len(report.left_out) > SHOWN:
        yield f"{report.stream}: {len(report.left_out) - SHOWN:,} more files left out, taken in before"
    for batch_id, undone_in in undone_before(report.repeated).items():
        yield f"{report.stream}: batch {batch_name(batch_id)} had been undone in commit {undone_in}; taken in again"
    standing = standing_before(report.repeated)
    if standing:
        said = ", ".join(map(batch_name, standing[-SHOWN:]))
        yield f"{report.stream}: another delivery of what batch {said} said before"


def taken_lines(report: AppendReport, stream: Stream) -> Iterator[str]:
    """What became of the rows of a batch that was taken in, in words."""
    batch = f"batch {batch_name(report.batch_id)}"
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


def _set_aside_lines(report: AppendReport) -> Iterator[str]:
    if not report.set_aside:
        return
    yield f"{report.stream}: {counted(len(report.set_aside), 'file')} set aside, nothing of which can be taken in:"
    for file in report.set_aside[:SHOWN]:
        yield f"  {near(f'{file.name}: {file.reason}')}"
        if file.how:
            yield f"    how to mend: {file.how}"
    if len(report.set_aside) > SHOWN:
        yield f"  and {len(report.set_aside) - SHOWN:,} more"
    yield f"  each is left where it is until it is written anew or retried: errata quarantine ls {report.stream}"


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
