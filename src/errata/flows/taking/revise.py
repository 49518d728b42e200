"""Applying revisions: what is pending becomes part of history, batch by batch, each in one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from errata.archive.correct import Place, claim, decide
from errata.catalog import streams
from errata.catalog.append import BasisMovedError
from errata.catalog.revise import Decided, commit_revisions
from errata.engine.failures import spark_failures
from errata.errors import ErrataError
from errata.flows.site import Site, on_basis
from errata.flows.upkeep.age_out import age_out_lazily
from errata.model.batch import BadRevision, Settled

TRIES = 8
"""Other writers can come first this often before we give up and say so."""

SHOWN = 5
"""Revisions found wrong that a report quotes."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RevisedReport:
    """What became of the pending revisions of a stream."""

    stream: str
    commits: Sequence[int] = ()
    settled: Settled = field(default_factory=Settled)
    bad: Sequence[BadRevision] = ()
    """The first few that were found wrong."""


def revise(site: Site, names: Sequence[str] = (), on_step: OnStep = lambda _: None) -> list[RevisedReport]:
    """Apply what is pending: of the streams named, else of all."""
    return [revise_stream(site, name, on_step) for name in site.named(names)]


def revise_stream(site: Site, name: str, on_step: OnStep = lambda _: None) -> RevisedReport:
    """Apply what is pending of one stream. What is of rows that may still come goes on waiting."""
    report = RevisedReport(name)
    end = streams.standing(site.catalog, name).revisions
    while (done := _apply_once(site, name, end, on_step)) is not None:
        commit_id, decided = done
        commits = [*report.commits, *([] if commit_id is None else [commit_id])]
        bad = [*report.bad, *decided.bad][:SHOWN]
        report = RevisedReport(name, commits, report.settled + decided.settled, bad)
        if commit_id is None or streams.standing(site.catalog, name).applied >= end:
            break
    return report


def _apply_once(site: Site, name: str, end: int, on_step: OnStep) -> tuple[int | None, Decided] | None:
    """Settle one claim: the commit, and what was decided. No commit when all of it goes on waiting; None when nothing
    is left of what was numbered up to `end`."""
    for attempt in range(TRIES):
        with on_basis(site, name, "corrections of") as basis, spark_failures():
            place = Place(site.session, site.catalog, site.warehouse, basis)
            claimed = claim(place)
            if not claimed or (claimed[0].revision_first or 0) > end:
                return None
            if not attempt and age_out_lazily(site, name).commit_id is not None:
                continue
            on_step(f"looking up the rows of {sum(bucket.rows for bucket in claimed):,} revisions")
            decided = decide(place, claimed)
            while not decided.settles and (more := claim(place, 2 * decided.count)) != claimed:
                # What only waits must not hold up what stands behind it.
                claimed, decided = more, decide(place, more)
        if not decided.settles:
            return None, decided
        on_step("committing")
        try:
            batches = {bucket.batch_id for bucket in claimed}
            batch_id = batches.pop() if len(batches) == 1 else None
            commit_id = commit_revisions(site.catalog, basis, decided, site.caused_by("revise"), batch_id)
        except BasisMovedError:
            site.discard((*decided.overlays, *(bucket for _, bucket in decided.waiting)))
            on_step("another writer came first; looking again")
            time.sleep(0.05 * attempt)
        else:
            return commit_id, decided
    raise ErrataError(
        f"{TRIES} times another writer moved stream {name} first; its revisions are still pending",
        how="run it again, or let batches of the stream come one after the other",
    )
