"""Compaction: overlays worked in and small buckets merged, as far as it is worth it; one commit for each stream."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from errata.archive import compact as archive
from errata.archive.compact import Plan
from errata.catalog import buckets, pins, streams
from errata.catalog.append import BasisMovedError
from errata.catalog.compact import Compacted, commit_compaction, foldable
from errata.catalog.streams import Standing
from errata.engine.failures import spark_failures
from errata.errors import ErrataError
from errata.flows.site import Site
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.compaction import Due, Why, due

TRIES = 8
"""Other writers can come first this often before we give up and say so."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What was compacted in one stream, or would be."""

    stream: str
    commit_id: int | None = None
    """None when nothing was due, or when it was only looked at."""
    replaced: Sequence[Bucket] = ()
    """Base buckets that were rewritten, or would be looked through."""
    folded: Sequence[Bucket] = ()
    """Overlays that were worked in."""
    written: Sequence[NewBucket] = ()
    """What stands there instead."""
    reasons: Sequence[tuple[Why, Sequence[Bucket]]] = ()
    """The base buckets that were looked through, by the reason."""
    held: Sequence[Bucket] = ()
    """Overlays that have to wait for who still has to consume their revisions."""

    @property
    def nothing(self) -> bool:
        return not self.reasons and not self.folded


def compact(
    site: Site,
    names: Sequence[str] = (),
    *,
    everything: bool = False,
    plan_only: bool = False,
    on_step: OnStep = lambda _: None,
) -> list[CompactReport]:
    """Compact the streams named, or all; `everything` also where it is hardly worth it."""
    return [_compact(site, name, everything, plan_only, on_step) for name in site.named(names)]


def _compact(site: Site, name: str, everything: bool, plan_only: bool, on_step: OnStep) -> CompactReport:
    for attempt in range(TRIES):
        basis = streams.standing(site.catalog, name)
        with pins.pinned(site.catalog, basis.changed_in, f"compaction of {name}"), spark_failures():
            if streams.standing(site.catalog, name).changed_in != basis.changed_in:
                continue  # what it stood on may have been removed before it was pinned
            found = _found(site, basis, everything)
            report = _report(name, *found)
            if plan_only or report.nothing:
                return report
            made = _rewritten(site, basis, found[1], on_step)
        on_step(f"committing {name}")
        try:
            commit_id = commit_compaction(site.catalog, basis, made, site.caused_by("compact"))
        except BasisMovedError:
            site.discard(made.written)
            on_step(f"another writer moved {name} first; beginning again")
            time.sleep(0.05 * attempt)
        else:
            done = (made.replaced, made.folded, made.written)
            return CompactReport(name, commit_id, *done, report.reasons, report.held)
    raise ErrataError(
        f"{TRIES} times another writer moved stream {name} first; nothing was compacted",
        how="run it again when fewer corrections come in",
    )


def _found(site: Site, basis: Standing, everything: bool) -> tuple[Due, Plan]:
    """What is due, and which buckets it concerns."""
    wanted = due(
        buckets.visible(site.catalog, basis.stream_id, basis.changed_in),
        _overlays(site, basis),
        basis.stream,
        aged_to=basis.aged_to,
        inline_bytes=basis.inline_bytes,
        up_to=foldable(site.catalog, basis),
        everything=everything,
    )
    return wanted, archive.plan(site.catalog, site.warehouse, basis, wanted)


def _overlays(site: Site, basis: Standing) -> list[Bucket]:
    return buckets.visible(site.catalog, basis.stream_id, basis.changed_in, role=Role.OVERLAY)


def _report(name: str, wanted: Due, plan: Plan) -> CompactReport:
    reasons: defaultdict[Why, list[Bucket]] = defaultdict(list)
    for run in plan.runs:
        reasons[run.why].extend(run.buckets)
    looked = [bucket for found in reasons.values() for bucket in found]
    return CompactReport(name, None, looked, plan.overlays, reasons=sorted(reasons.items()), held=wanted.held)


def _rewritten(site: Site, basis: Standing, plan: Plan, on_step: OnStep) -> Compacted:
    """The compaction, written and not committed."""
    count = sum(len(run.buckets) for run in plan.runs)
    on_step(f"rewriting {count:,} bucket{'' if count == 1 else 's'} of {basis.stream.name}")
    overlays = _overlays(site, basis)
    done = archive.rewrite(site.session, site.catalog, site.warehouse, basis, plan, overlays)
    return Compacted(
        [bucket for each in done for bucket in each.replaced],
        plan.overlays,
        [bucket for each in done for bucket in each.written],
        [count for each in done for count in each.masked],
        plan.up_to,
    )
