"""Applies pending revisions to history: claim by claim, each in one commit.

A claim is the first pending buckets of a stream, in the order of revision numbers. Revisions of rows that may still
come are left waiting; when a claim only waits, a larger one is tried, so that waiting revisions do not block later
ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from errata.archive.revisions.decide import CorrectionContext, claim_pending, decide_claim
from errata.archive.upkeep.ageing import age_out_if_lazy
from errata.catalog import streams
from errata.catalog.stream_commits import RevisionCommit, commit_revisions
from errata.catalog.transaction import BasisConflict, give_up, optimistic
from errata.declare.site import ProgressCallback, Site, pinned_stream
from errata.engine.failures import spark_errors_in_words
from errata.model.batch import BadRevision, RevisionCounts

SHOWN_REVISIONS = 5
"""Refused revisions that a report quotes."""


@dataclass(frozen=True, slots=True)
class ReviseReport:
    """The outcome for the pending revisions of a stream."""

    stream: str
    commits: Sequence[int] = ()
    counts: RevisionCounts = field(default_factory=RevisionCounts)
    bad: Sequence[BadRevision] = ()
    """The first few that were refused."""


def apply_revisions(
    site: Site, names: Sequence[str] = (), on_step: ProgressCallback = lambda _: None
) -> list[ReviseReport]:
    """Apply the pending revisions of the streams named, or of all."""
    return [apply_stream_revisions(site, name, on_step) for name in site.named(names)]


def apply_stream_revisions(site: Site, name: str, on_step: ProgressCallback = lambda _: None) -> ReviseReport:
    """Apply the pending revisions of one stream. Those of rows that may still come stay pending."""
    report = ReviseReport(name)
    end = streams.stream_state(site.catalog, name).revisions
    while (done := _apply_claim(site, name, end, on_step)) is not None:
        commit_id, decided = done
        commits = [*report.commits, *([] if commit_id is None else [commit_id])]
        bad = [*report.bad, *decided.bad][:SHOWN_REVISIONS]
        report = ReviseReport(name, commits, report.counts + decided.counts, bad)
        if commit_id is None or streams.stream_state(site.catalog, name).applied >= end:
            break
    return report


def _apply_claim(
    site: Site, name: str, end: int, on_step: ProgressCallback
) -> tuple[int | None, RevisionCommit] | None:
    """Settle one claim: the commit, and what was decided. No commit when all of it goes on waiting; None when nothing
    is left of what was numbered up to `end`."""

    def attempt(number: int) -> tuple[int | None, RevisionCommit] | None:
        with pinned_stream(site, name, "corrections of") as basis, spark_errors_in_words():
            place = CorrectionContext(site.session, site.catalog, site.warehouse, basis)
            claimed = claim_pending(place)
            if not claimed or (claimed[0].revision_first or 0) > end:
                return None
            if not number and age_out_if_lazy(site, name).commit_id is not None:
                raise BasisConflict  # the stream has just been moved by this run itself
            on_step(f"looking up the rows of {sum(bucket.rows for bucket in claimed):,} revisions")
            decided = decide_claim(place, claimed)
            while not decided.settles and (more := claim_pending(place, 2 * decided.count)) != claimed:
                # What only waits must not hold up what stands behind it.
                claimed, decided = more, decide_claim(place, more)
        if not decided.settles:
            return None, decided
        on_step("committing")
        batches = {bucket.batch_id for bucket in claimed}
        batch_id = batches.pop() if len(batches) == 1 else None
        written = (*decided.overlays, *(bucket for _, bucket in decided.waiting))
        with site.discard_on_conflict(written, partial(on_step, "another writer came first; looking again")):
            return commit_revisions(site.catalog, basis, decided, site.caused_by("revise"), batch_id), decided

    what = f"writer moved stream {name} first; its revisions are still pending"
    return optimistic(attempt, give_up(what, "run it again, or let batches of the stream come one after the other"))
