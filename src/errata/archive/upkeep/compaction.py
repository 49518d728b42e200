"""Compaction: overlays are folded into base buckets and small buckets are merged; one commit for each stream.

What is due is decided in `model.compaction` from the index; `rewrite` plans and writes. Scans see the same rows before
and after. An overlay whose revisions a query has still to read waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from errata.archive.upkeep import rewrite as archive
from errata.archive.upkeep.rewrite import CompactionPlan
from errata.catalog import buckets, pins, streams
from errata.catalog.maintenance import CompactionCommit, commit_compaction, last_foldable_revision
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, give_up, optimistic
from errata.declare.site import ProgressCallback, Site
from errata.engine.failures import spark_errors_in_words
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.compaction import DueCompaction, RewriteReason, due_compaction


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What was compacted in one stream, or would be."""

    stream: str
    commit_id: int | None = None
    """None if nothing was due, or if it was only planned."""
    replaced: Sequence[Bucket] = ()
    """Base buckets that were rewritten, or would be examined."""
    folded: Sequence[Bucket] = ()
    """Overlays that were folded."""
    written: Sequence[NewBucket] = ()
    """The buckets that replace them."""
    reasons: Sequence[tuple[RewriteReason, Sequence[Bucket]]] = ()
    """The base buckets that were examined, by reason."""
    held: Sequence[Bucket] = ()
    """Overlays that wait for queries that have still to read their revisions."""

    @property
    def is_empty(self) -> bool:
        return not self.reasons and not self.folded


def compact_streams(
    site: Site,
    names: Sequence[str] = (),
    *,
    everything: bool = False,
    plan_only: bool = False,
    on_step: ProgressCallback = lambda _: None,
) -> list[CompactionReport]:
    """Compact the streams named, or all; with `everything`, also where it is hardly worth it."""
    return [_compact_stream(site, name, everything, plan_only, on_step) for name in site.named(names)]


def _compact_stream(
    site: Site, name: str, everything: bool, plan_only: bool, on_step: ProgressCallback
) -> CompactionReport:
    def attempt(_: int) -> CompactionReport:
        basis = streams.stream_state(site.catalog, name)
        with pins.hold_pin(site.catalog, basis.changed_in, f"compaction of {name}"), spark_errors_in_words():
            if streams.stream_state(site.catalog, name).changed_in != basis.changed_in:
                raise BasisConflict  # what it stood on may have been removed before it was pinned
            found = _due_plan(site, basis, everything)
            report = _plan_report(name, *found)
            if plan_only or report.is_empty:
                return report
            made = _rewrite_plan(site, basis, found[1], on_step)
        on_step(f"committing {name}")
        tell = partial(on_step, f"another writer moved {name} first; beginning again")
        with site.discard_on_conflict(made.written, tell):
            commit_id = commit_compaction(site.catalog, basis, made, site.caused_by("compact"))
        done = (made.replaced, made.folded, made.written)
        return CompactionReport(name, commit_id, *done, report.reasons, report.held)

    what = f"writer moved stream {name} first; nothing was compacted"
    return optimistic(attempt, give_up(what, "run it again when fewer corrections come in"))


def _due_plan(site: Site, basis: StreamState, everything: bool) -> tuple[DueCompaction, CompactionPlan]:
    """What is due, and the buckets to rewrite."""
    wanted = due_compaction(
        buckets.visible_buckets(site.catalog, basis.stream_id, basis.changed_in),
        _live_overlays(site, basis),
        basis.stream,
        aged_to=basis.aged_to,
        inline_bytes=basis.inline_bytes,
        up_to=last_foldable_revision(site.catalog, basis),
        everything=everything,
    )
    return wanted, archive.plan_compaction(site.catalog, site.warehouse, basis, wanted)


def _live_overlays(site: Site, basis: StreamState) -> list[Bucket]:
    return buckets.visible_buckets(site.catalog, basis.stream_id, basis.changed_in, role=Role.OVERLAY)


def _plan_report(name: str, wanted: DueCompaction, plan: CompactionPlan) -> CompactionReport:
    reasons: defaultdict[RewriteReason, list[Bucket]] = defaultdict(list)
    for run in plan.runs:
        reasons[run.why].extend(run.buckets)
    looked = [bucket for found in reasons.values() for bucket in found]
    return CompactionReport(name, None, looked, plan.overlays, reasons=sorted(reasons.items()), held=wanted.held)


def _rewrite_plan(site: Site, basis: StreamState, plan: CompactionPlan, on_step: ProgressCallback) -> CompactionCommit:
    """Write the compaction, without committing it."""
    count = sum(len(run.buckets) for run in plan.runs)
    on_step(f"rewriting {count:,} bucket{'' if count == 1 else 's'} of {basis.stream.name}")
    overlays = _live_overlays(site, basis)
    done = archive.rewrite_runs(site.session, site.catalog, site.warehouse, basis, plan, overlays)
    written = [bucket for each in done for bucket in each.written]
    return CompactionCommit(
        [bucket for each in done for bucket in each.replaced],
        plan.overlays,
        written,
        [bucket.masked for bucket in written],
        plan.up_to,
    )
