"""What came of a run: whether all went well, and why queries have stopped."""

from __future__ import annotations

from collections.abc import Iterable

from errata.catalog import queries, streams
from errata.errors import EXIT_FAILED, EXIT_QUARANTINE, ErrataError
from errata.evaluate.faults import in_words
from errata.flows.answering.due import all_read
from errata.flows.running.run import RunReport
from errata.flows.running.sweep import SweepReport
from errata.flows.site import Site
from errata.model.evaluation import Fault


def exit_code(report: RunReport | SweepReport) -> int:
    """1 when a query has stopped, or waits for one that has; 3 when rows or corrections went to quarantine."""
    if report.stopped or report.held:
        return EXIT_FAILED
    batches = report.batches if isinstance(report, RunReport) else ()
    held = any(each.counts.quarantined and not each.already for each in batches)
    return EXIT_QUARANTINE if held or any(each.settled.refused for each in report.revised) else 0


def told(site: Site, stopped: Iterable[tuple[str, Fault]]) -> list[ErrataError]:
    """What a person is told of each query that has stopped: what, why, and how to mend it."""
    faults = list(stopped)
    if not faults:
        return []
    reads = {name: each.checked.reads for name, each in queries.recorded(site.catalog).items()}
    untimed = {each.stream.name for each in streams.standings(site.catalog) if not each.stream.timed}
    return [in_words(fault, name, timed=untimed.isdisjoint(all_read(name, reads))) for name, fault in faults]
