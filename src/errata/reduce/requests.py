"""What readers leave behind: which rates, or which summary, they asked for, and what it cost them to get it.

A reader records its request once, when it has read. Modify on read (oscar-archives-2004, 4.1.2) builds, shrinks and
drops copies by it, at the next vacuum; nothing that is answered depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.catalog import reduction_requests
from errata.catalog.database import Catalog
from errata.declare.site import Site
from errata.model.reduction import SamplingRates
from errata.model.reduction_request import AskedReduction, ReductionRequest, RequestMethod
from errata.model.time import EVERYTHING, Interval


def record(
    site: Site,
    stream_id: int,
    asked: SamplingRates,
    interval: Interval = EVERYTHING,
    from_copies: int = 0,
    from_originals: int = 0,
) -> None:
    """Record that a reader has read a stream at these rates, and the bytes of copies and of originals that it read.
    An exact reading leaves nothing."""
    if not asked.exact:
        _record(site, stream_id, AskedReduction(asked, interval=interval), from_copies, from_originals)


def record_summary(
    site: Site,
    stream_id: int,
    summary: str,
    interval: Interval = EVERYTHING,
    from_copies: int = 0,
    from_originals: int = 0,
) -> None:
    """The same for a reader of a summary of the stream."""
    _record(site, stream_id, AskedReduction(summary=summary, interval=interval), from_copies, from_originals)


def pending(
    catalog: Catalog, stream_id: int, method: RequestMethod | None = RequestMethod.SAMPLE
) -> list[ReductionRequest]:
    """What has been asked of a stream: by readers since the last vacuum, and before."""
    return reduction_requests.recorded_requests(catalog, stream_id, method)


def settle(catalog: Catalog, stream_id: int, seen: Iterable[ReductionRequest]) -> None:
    """Vacuum has done what these readers asked for."""
    reduction_requests.settle_requests(catalog, stream_id, seen)


def _record(site: Site, stream_id: int, asked: AskedReduction, from_copies: int, from_originals: int) -> None:
    user = site.caused_by("read").user
    reduction_requests.record_request(site.catalog, stream_id, asked, user, from_copies, from_originals)
