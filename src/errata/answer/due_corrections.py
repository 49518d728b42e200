"""Which corrections are due: the steps that `sweep(due=True)` would find to do, as the sensor reports them.

The sensor asks again and again, so that Spark and SQL are not loaded. Steps that a sweep would leave as they are do not
count, or the sensor would never come to rest: corrections that are deferred, that speak of rows which have not come
yet, or that only concern queries which have stopped, wait for one that has, or are being worked on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from errata.answer.catalog_view import CatalogView
from errata.answer.steps import Step, StepKind, StepList, StepRequest
from errata.answer.unread_changes import LateVersions, UnreadChange, UnreadRevisions, UpstreamCorrections
from errata.catalog import commits, leases
from errata.declare.site import Site


@dataclass(frozen=True, slots=True)
class DueRevisions:
    """Corrections of one stream that are due."""

    count: int
    first: int
    """The number of the first of them, and of the last."""
    last: int

    def __or__(self, other: DueRevisions) -> DueRevisions:
        first, last = min(self.first, other.first), max(self.last, other.last)
        return DueRevisions(max(self.count, other.count), first, last)


@dataclass(frozen=True, slots=True)
class DueCorrections:
    """What a sweep of what is due would find to do; false where that is nothing."""

    streams: Mapping[str, DueRevisions] = field(default_factory=dict)
    """Streams whose corrections are to be applied, or to reach results."""
    queries: Sequence[str] = ()
    """Queries that they concern, also those whose results may prove to be right already."""
    commit_id: int = 0
    """The newest commit when this was looked up."""
    fingerprint: str = ""
    """Identifies the work that is due; empty where there is none."""

    def __bool__(self) -> bool:
        return bool(self.fingerprint)

    @property
    def record(self) -> dict[str, object]:
        """As JSON can hold it."""
        found = {
            name: {"count": each.count, "first": each.first, "last": each.last} for name, each in self.streams.items()
        }
        return {
            "streams": found,
            "queries": list(self.queries),
            "commit": self.commit_id,
            "fingerprint": self.fingerprint,
        }


def find_due_corrections(site: Site, names: Sequence[str] = ()) -> DueCorrections:
    """What is due of the queries named, and of those that they read; without names, of all."""
    commit_id = commits.newest_commit(site.catalog)
    view, held = CatalogView(site), leases.living_lease_names(site.catalog)
    busy = [name for name in view.queries if f"query {name}" in held]
    steps = StepList(view, StepRequest(names, evaluates=False, busy=busy, probes=True)).steps()
    due = [each for each in steps if each.due and each.kind is not StepKind.EVALUATE]
    found: dict[str, DueRevisions] = {}
    for name, revisions in (each for step in due for each in _due_revisions(step, view)):
        found[name] = found[name] | revisions if name in found else revisions
    names_due = sorted(each.name for each in due if each.kind is StepKind.CORRECT)
    parts = [part for each in due if (part := _fingerprint_part(each, view)) is not None]
    fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else ""
    return DueCorrections(dict(sorted(found.items())), names_due, commit_id, fingerprint)


def _due_revisions(step: Step, view: CatalogView) -> Iterator[tuple[str, DueRevisions]]:
    """The revisions of streams that a step takes up."""
    if step.kind is StepKind.APPLY:
        of = view.standings[step.name]
        yield step.name, DueRevisions(of.revisions - of.applied, of.applied + 1, of.revisions)
    for each in step.changes:
        if isinstance(each, UnreadRevisions):
            ends = [(bucket.revision_first or 0, bucket.revision_last or 0) for bucket in each.overlays]
            first, last = max(each.known + 1, min(ends)[0]), min(each.up_to, max(end for _, end in ends))
            yield each.source, DueRevisions(sum(bucket.rows for bucket in each.overlays), first, last)


def _fingerprint_part(step: Step, view: CatalogView) -> str | None:
    """The work of a step; None where all of it comes of earlier ones."""
    if step.kind is StepKind.APPLY:
        return f"stream {step.name} {view.standings[step.name].revisions}"
    if not step.changes:
        return None
    return " ".join([f"query {step.name} {view.published[step.name].last.number}", *map(_change_part, step.changes)])


def _change_part(change: UnreadChange) -> str:
    match change:
        case UnreadRevisions():
            return f"{change.source} {change.known} {change.up_to}"
        case LateVersions():
            return f"{change.source} late {max(each.added_in for each in change.buckets)}"
        case UpstreamCorrections():
            return f"{change.source} {change.evaluations[-1].number}"
