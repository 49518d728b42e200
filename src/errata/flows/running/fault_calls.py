"""Whoever wants to know is called when a query stops, once for each fault, and once more when that is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from errata.catalog import leases, told_faults
from errata.catalog.leases import Patience
from errata.catalog.told_faults import ToldFault
from errata.flows.running.outcome import told as in_words
from errata.flows.site import Site
from errata.model.instants import format_instant

STOPPED, OVER = "stopped", "over"

LEASE = "telling of faults"

WAITS = 10.0
"""Seconds that one who has something to tell waits for another who is just telling."""

Call = Callable[[Mapping[str, Any]], object]


def tell_faults(site: Site, call: Call) -> int:
    """Call with what is to be told; how often that was.

    What is told is JSON: `event` (stopped, over), `fault_id`, `project`, `query`, `since` (when it stopped), `words`,
    and `fault`, the record that `errata status --format json` has. It is told at least once: who is killed between the
    call and the catalog's note of it tells it again, under the same `fault_id`. Where the call fails, it is told the
    next time.
    """
    with leases.held(site.catalog, LEASE, site.cause.owner, Patience(WAITS)) as lease:
        if not lease.ours:
            return 0  # what there is to tell the next one tells
        begun, over = told_faults.to_tell(site.catalog)
        for each in over:
            call(_record(site, OVER, each, _over_in_words(each)))
            told_faults.mark_over(site.catalog, each)
        for each in begun:
            (error,) = in_words(site, [(each.query, each.fault)])
            call(_record(site, STOPPED, each, str(error)))
            told_faults.mark_told(site.catalog, each)
        return len(over) + len(begun)


def _over_in_words(fault: ToldFault) -> str:
    since = f"query {fault.query}, which had stopped at {format_instant(fault.since)[:19]},"
    at = f" at {fault.fault.expression}" if fault.fault.expression else ""
    return f"{since} is no longer stopped{at}"


def _record(site: Site, event: str, fault: ToldFault, words: str) -> dict[str, Any]:
    return {
        "event": event,
        "fault_id": fault.fault_id,
        "project": site.project.name,
        "query": fault.query,
        "since": format_instant(fault.since),
        "words": words,
        "fault": fault.fault.record(),
    }
