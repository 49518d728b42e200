"""What came of a run: whether all went well, and why queries have stopped."""

from __future__ import annotations

from collections.abc import Container, Iterable

from errata.catalog import queries, streams
from errata.errors import EXIT_DECISION, EXIT_FAILED, EXIT_QUARANTINE, ErrataError
from errata.evaluate.faults import in_words
from errata.flows.answering.due import all_read
from errata.flows.running.run import RunReport
from errata.flows.running.sweep import SweepReport
from errata.flows.site import Site
from errata.model.evaluation import Fault


def exit_code(report: RunReport | SweepReport) -> int:
    """Of a command: 1 when a query has stopped, waits for one that has, or could not be taken further, or a stream's
    landed files could not be taken; 3 when rows, files or corrections went to quarantine."""
    code = job_exit_code(report)
    return EXIT_FAILED if code == EXIT_DECISION else code


def job_exit_code(report: RunReport | SweepReport, accepted: Container[int] = ()) -> int:
    """Of a job: what may pass is told from what waits for a person, and of that the job's caller may accept some."""
    failed, quarantined = bool(report.failed), any(each.settled.refused for each in report.revised)
    if isinstance(report, RunReport):
        failed |= bool(report.not_taken)
        quarantined |= any(each.incomplete for each in report.batches)
    waiting = [other for _, other in report.held if other not in report.busy]
    found = {
        EXIT_FAILED: failed,
        EXIT_DECISION: bool(report.stopped or waiting),
        EXIT_QUARANTINE: quarantined,
    }
    return next((code for code, so in found.items() if so and code not in accepted), 0)


def told(site: Site, stopped: Iterable[tuple[str, Fault]]) -> list[ErrataError]:
    """What a person is told of each query that has stopped: what, why, and how to mend it."""
    faults = list(stopped)
    if not faults:
        return []
    reads = {name: each.checked.reads for name, each in queries.recorded(site.catalog).items()}
    untimed = {each.stream.name for each in streams.standings(site.catalog) if not each.stream.timed}
    return [in_words(fault, name, timed=untimed.isdisjoint(all_read(name, reads))) for name, fault in faults]
