"""What vacuum does for the smaller versions of archives, in words, for the command line and for logs of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from errata.errors import count_text
from errata.model.reduction import rate_text
from errata.read.wording import byte_size_text, event_time_text
from errata.reduce.copy_plan import CopyReport
from errata.reduce.purge import PurgeReport
from errata.reduce.vacuum import FullVacuumReport


def reduction_lines(report: FullVacuumReport, *, plan: bool) -> Iterator[str]:
    """What was done for copies and summaries, or would be."""
    for each in report.copies:
        yield from copy_lines(each, plan=plan)
    for of in report.summaries:
        if of.built:
            built = f"{count_text(of.built, 'part')} of summaries"
            yield f"{of.stream}: {'would build' if plan else 'built'} {built}, reading {byte_size_text(of.bytes_read)}"
        if of.dropped:
            yield f"{of.stream}: {'would drop' if plan else 'dropped'} {count_text(of.dropped, 'part')} of summaries"
    for purged in report.purged:
        yield purge_line(purged, plan=plan)


def copy_lines(report: CopyReport, *, plan: bool) -> Iterator[str]:
    """What was built and dropped of a stream's copies, or would be."""
    for each in report.changes:
        does = ("would drop" if plan else "dropped") if each.dropped else ("would build" if plan else "built")
        about = "about " if plan and not each.dropped else ""
        what = f"{count_text(each.copies, 'copy', 'copies')} at {rate_text(each.rate)}"
        yield f"{report.stream}: {does} {what}, {about}{byte_size_text(each.bytes)}: {each.reason}"


def purge_line(report: PurgeReport, *, plan: bool) -> str:
    """What was purged of a stream, or would be."""
    place = event_time_text(report.purged_to, report.timed)
    what = f"{count_text(report.buckets, 'bucket')} before {place}, {byte_size_text(report.bytes)}"
    held = f"; query {report.held_by} has still to read what comes next" if report.held_by else ""
    stays = f"{'up to ' if plan else ''}{byte_size_text(report.remaining_bytes)}"
    return f"{report.stream}: {'would purge' if plan else 'purged'} {what}, of which {stays} stay{held}"
