"""What came of queries that were taken further: the part that runs and sweeps tell alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from errata.catalog.leases import Holder
from errata.errors import ErrataError
from errata.flows.answering.evaluate import Evaluated
from errata.flows.correcting.sweeping import Sweeping
from errata.flows.taking.revise import RevisedReport
from errata.model.evaluation import Fault


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of queries in rounds."""

    evaluated: Sequence[Evaluated] = ()
    current: Sequence[str] = ()
    """Queries of which nothing was to be done."""
    stopped: Sequence[tuple[str, Fault]] = ()
    """Queries that cannot go on, and why: they wait for a person."""
    failed: Sequence[tuple[str, ErrataError]] = ()
    """Queries that could not be taken further, and why: the next run tries again."""
    held: Sequence[tuple[str, str]] = ()
    """Queries that wait for another one, and for which."""
    busy: Sequence[str] = ()
    """Queries that another runner is at work on, or has just taken further."""
    holders: Mapping[str, Holder] = field(default_factory=dict)
    """Of busy queries who is at work on them, if somebody is."""
    deferred: Sequence[Sweeping] = ()
    """Corrections that wait, as their queries declare; only where what is due was asked for."""
    revised: Sequence[RevisedReport] = ()
    """Streams to whose history what was pending was applied."""
