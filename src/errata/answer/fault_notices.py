"""Calls back once when a query stops, and once when it is no longer stopped; each at least once.

The catalog notes what has been reported. A lease keeps two callers from reporting the same fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from errata.answer.runs import stopped_query_errors
from errata.catalog import leases, queries
from errata.catalog.leases import WaitPolicy
from errata.catalog.queries import FaultNotice
from errata.declare.site import Site
from errata.model.time import format_instant

STOPPED, OVER = "stopped", "over"

NOTICE_LEASE = "telling of faults"

LEASE_WAIT_SECONDS = 10.0
"""Seconds to wait for another caller that is reporting faults."""

FaultCallback = Callable[[Mapping[str, Any]], object]


def notify_faults(site: Site, call: FaultCallback) -> int:
    """Call with each notice that is due, and return the number of calls.

    A notice is JSON: `event` (stopped, over), `fault_id`, `project`, `query`, `since` (when it stopped), `words`, and
    `fault`, the record that `errata status --format json` has. A process that is killed after the call and before the
    catalog notes it causes a second call with the same `fault_id`. After a call that fails, the next run calls again.
    """
    with leases.hold_lease(site.catalog, NOTICE_LEASE, site.cause.owner, WaitPolicy(LEASE_WAIT_SECONDS)) as lease:
        if not lease.is_held:
            return 0  # the next run reports what is left
        begun, over = queries.due_fault_notices(site.catalog)
        for each in over:
            call(_notice(site, OVER, each, _recovery_text(each)))
            queries.drop_fault_notice(site.catalog, each)
        for each in begun:
            (error,) = stopped_query_errors(site, [(each.query, each.fault)])
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
