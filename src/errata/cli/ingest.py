"""`errata ingest`: takes files into an archive, and reports what became of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.archive.ingest.batch import SHOWN_ROWS, IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.landing import earlier_live, earlier_undone, unsettled_file_count
from errata.cli.console import print_message, step_status
from errata.cli.options import StreamName, global_options
from errata.declare.site import Site, open_site
from errata.errors import EXIT_QUARANTINE, count_text
from errata.model.batch import BadRow
from errata.model.stream import Stream
from errata.read.wording import event_time_text, relative_paths, short_batch_id


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
    feed: Annotated[
        str | None, typer.Option("--feed", metavar="FEED", help="The feed that says it, of a stream with feeds.")
    ] = None,
) -> int:
    """Take files into a stream's archive: CSV, JSON lines, Parquet, also gzipped.

    Bad rows, and landed files that cannot be read, go to quarantine and the rest goes in: then the exit code is 3. The
    same files again change nothing; equal ones under other names are another delivery.
    """
    batch = IngestRequest(stream, files or (), landed, batch_id, strict, again, feed=feed)
    with open_site(global_options(context).project) as site:
        with step_status(f"taking in {stream}") as on_step:
            report = ingest_batch(site, batch, on_step)
        for line in append_lines(report, site.project.streams[stream]):
            print_message(line)
        if report.already_ingested and batch_id is None:
            print_message("  files that say it anew: give them another name, or take them in with --again")
        if report.commit_id is None and not report.held_files:
            print_message(_nothing_lines(site, stream))
    if report.clearing_error is not None:
        raise report.clearing_error
    return EXIT_QUARANTINE if report.incomplete else 0


def append_lines(report: IngestReport, stream: Stream) -> Iterator[str]:
    """What became of a batch's rows and files, in words."""
    yield from repeated_delivery_lines(report)
    if report.commit_id is not None and not report.already_ingested:
        yield from ingested_lines(report, stream)


def repeated_delivery_lines(report: IngestReport) -> Iterator[str]:
    """Files that were set aside, and deliveries that had been ingested before, in words."""
    yield from _set_aside_file_lines(report)
    if report.already_ingested:
        batch = f"batch {short_batch_id(report.batch_id)}"
        yield f"{report.stream}: {batch} was taken in before, in commit {report.commit_id}; nothing was changed"
    for each in report.skipped_files[:SHOWN_ROWS]:
        yield (
            f"{report.stream}: {relative_paths(each.name)} left out, taken in before with batch "
            f"{short_batch_id(each.batch_id)}"
        )
    if len(report.skipped_files) > SHOWN_ROWS:
        yield f"{report.stream}: {len(report.skipped_files) - SHOWN_ROWS:,} more files left out, taken in before"
    for batch_id, undone_in in earlier_undone(report.repeated).items():
        yield f"{report.stream}: batch {short_batch_id(batch_id)} had been undone in commit {undone_in}; taken in again"
    standing = earlier_live(report.repeated)
    if standing:
        said = ", ".join(map(short_batch_id, standing[-SHOWN_ROWS:]))
        yield f"{report.stream}: another delivery of what batch {said} said before"


def ingested_lines(report: IngestReport, stream: Stream) -> Iterator[str]:
    """What became of the rows of a batch that was taken in, in words."""
    batch = f"batch {short_batch_id(report.batch_id)}"
    counts = report.counts
    files = count_text(report.files, "file")
    yield (
        f"{stream.name}: {count_text(counts.appended, 'row')} appended in commit {report.commit_id} ({batch}, {files})"
    )
    if counts.pending:
        yield f"  {count_text(counts.pending, 'row')} late or correcting earlier ones: kept as pending revisions"
    if counts.dropped:
        yield f"  {count_text(counts.dropped, 'row')} dropped: the same is there already"
    if counts.replaced:
        overwritten = "by later ones of the same key in the batch" if stream.merged.is_empty else "by another feed's"
        yield f"  {count_text(counts.replaced, 'row')} overwritten {overwritten}"
    if counts.held > 0:
        yield f"  {count_text(counts.held, 'statement')} remembered by the merge, and not passed on"
    if counts.held < 0:
        yield f"  {count_text(-counts.held, 'row')} more than it said: the merge had held them back"
    if counts.quarantined:
        yield f"  {count_text(counts.quarantined, 'row')} in quarantine:"
        yield from (
            f"    {relative_paths(f'{row.file}:{row.line}: {row.reason}')}"
            for row in sorted(report.bad, key=_row_place)
        )
        if counts.quarantined > len(report.bad):
            more = counts.quarantined - len(report.bad)
            yield f"    and {more:,} more: errata quarantine ls {stream.name}"
    if report.stable is not None:
        yield f"  stable point {event_time_text(report.stable, stream.timed)}: what comes from before it is late"


def _set_aside_file_lines(report: IngestReport) -> Iterator[str]:
    if not report.held_files:
        return
    yield f"{report.stream}: {count_text(len(report.held_files), 'file')} set aside, nothing of which can be taken in:"
    for file in report.held_files[:SHOWN_ROWS]:
        yield f"  {relative_paths(f'{file.name}: {file.reason}')}"
        if file.how:
            yield f"    how to mend: {file.how}"
    if len(report.held_files) > SHOWN_ROWS:
        yield f"  and {len(report.held_files) - SHOWN_ROWS:,} more"
    yield f"  each is left where it is until it is written anew or retried: errata quarantine ls {report.stream}"


def _row_place(row: BadRow) -> tuple[str, int]:
    return row.file, row.line


def _nothing_lines(site: Site, stream: str) -> str:
    fresh = unsettled_file_count(site, stream)
    if not fresh:
        return f"{stream}: nothing has landed"
    return (
        f"{stream}: nothing to take yet; {count_text(fresh, 'file')} changed a moment ago and "
        f"{'is' if fresh == 1 else 'are'} left until settled (`settle` in errata.yaml)"
    )
