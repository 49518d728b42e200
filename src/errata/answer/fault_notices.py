"""Whoever wants to know is called when a query stops, once for each fault, and once more when that is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from errata.answer.runs import stopped_query_errors as in_words
from errata.catalog import leases, queries
from errata.catalog.leases import WaitPolicy
from errata.catalog.queries import FaultNotice
from errata.declare.site import Site
from errata.model.time import format_instant

STOPPED, OVER = "stopped", "over"

NOTICE_LEASE = "telling of faults"

LEASE_WAIT_SECONDS = 10.0
"""Seconds that one who has something to tell waits for another who is just telling."""

FaultCallback = Callable[[Mapping[str, Any]], object]


def notify_faults(site: Site, call: FaultCallback) -> int:
    """Call with what is to be told; how often that was.

    What is told is JSON: `event` (stopped, over), `fault_id`, `project`, `query`, `since` (when it stopped), `words`,
    and `fault`, the record that `errata status --format json` has. It is told at least once: who is killed between the
    call and the catalog's note of it tells it again, under the same `fault_id`. Where the call fails, it is told the
    next time.
    """
    with leases.hold_lease(site.catalog, NOTICE_LEASE, site.cause.owner, WaitPolicy(LEASE_WAIT_SECONDS)) as lease:
        if not lease.ours:
            return 0  # what there is to tell the next one tells
        begun, over = queries.due_fault_notices(site.catalog)
        for each in over:
            call(_notice(site, OVER, each, _recovery_text(each)))
            queries.drop_fault_notice(site.catalog, each)
        for each in begun:
            (error,) = in_words(site, [(each.query, each.fault)])
            call(_notice(site, STOPPED, each, str(error)))
            queries.mark_fault_reported(site.catalog, each)
        return len(over) + len(begun)


def _recovery_text(fault: FaultNotice) -> str:
    since = f"query {fault.query}, which had stopped at {format_instant(fault.since)[:19]},"
    at = f" at {fault.fault.expression}" if fault.fault.expression else ""
    return f"{since} is no longer stopped{at}"


def _notice(site: Site, event: str, fault: FaultNotice, words: str) -> dict[str, Any]:
    return {
        "event": event,
        "fault_id": fault.fault_id,
        "project": site.project.name,
        "query": fault.query,
        "since": format_instant(fault.since),
        "words": words,
        "fault": fault.fault.record(),
    }
