"""Whether a query has to be evaluated: the instant up to which, and the revisions up to which it reads its streams.

A query goes from its frontier, the last instant that it has answered, up to its watermark, the least stable point of
its streams, but not past the queries that it reads. One that gets feedback (`answer.feedback`) stays behind while the
stream that it feeds has all that it could say. Told from the catalog, without Spark and without the plan: how the
step is carried out is planned in `answer.task`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from errata.answer.progress import deferred_overlays, input_watermark
from errata.answer.unread_changes import SourceStates, current_basis, unread_corrections, upstream_archives
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class DueEvaluation:
    """The evaluation of a query that is due."""

    until: int
    basis: ResultArchive | None
    """Its results so far, which it continues; None where there are none, or where it replaces them."""
    replaces: ResultArchive | None
    """The results that it replaces."""
    revisions: Mapping[str, int]
    """For each stream the revision up to which it is read."""
    begins: int
    """Where it does not continue results, the first instant that it may answer, as far as the plan does not decide."""


def due_evaluation(
    query: RecordedQuery,
    bases: Mapping[str, StreamState],
    view: SourceStates,
    *,
    anew: bool = False,
    earlier: Mapping[str, DueEvaluation] = {},
) -> DueEvaluation | None:
    """The evaluation that is due for a query over the streams `bases`; None where it is up to date. `anew`: from the
    first instant, for results that replace the query's. `earlier`: of queries that it reads, the evaluations that come
    before: they go as far as their streams, so that they do not limit this one."""
    below = [each for each in upstream_archives(query.checked.reads, view) if each.name not in earlier]
    watermark = input_watermark(bases.values())
    if watermark is None:
        return None
    until = min([watermark, *(each.frontier for each in below)])
    there = view.published.get(query.checked.name)
    anew |= any(each.basis is None for each in earlier.values())
    basis = None if anew else current_basis(query, query.checked.reads, view)
    revisions = _revisions_to_read(query, bases, below, basis, view)
    if basis is not None:
        wanted = view.wanted_from(query.checked.name)
        if wanted is not None and until <= wanted:
            return None  # the stream that it feeds has all that it could say
        due = _is_behind(basis, bases.values(), until, view) or any(
            revision != basis.last.revisions.get(name, revision) for name, revision in revisions.items()
        )
        return DueEvaluation(until, basis, None, revisions, basis.last.begins) if due else None
    if any(each not in bases and each not in view.published and each not in earlier for each in query.checked.reads):
        return None
    declared = query.checked.query.begins(timed=all(each.stream.timed for each in bases.values()))
    above = [each.begins for each in earlier.values()] + [each.last.begins for each in below]
    begins = max([LOWEST if declared is None else declared, *above])
    return DueEvaluation(until, None, there, revisions, begins) if begins <= until else None


def _is_behind(basis: ResultArchive, bases: Iterable[StreamState], until: int, view: SourceStates) -> bool:
    """Whether anything has come since a query was evaluated: later instants, or rows of the last one. Compaction and
    ageing change a stream, too, and bring no rows."""
    came = {stream_id for stream_id, _, _ in view.batches_since(basis.last.data_commit)}
    return until > basis.frontier or any(each.stream_id in came for each in bases)


def _revisions_to_read(
    query: RecordedQuery,
    bases: Mapping[str, StreamState],
    below: Sequence[ResultArchive],
    basis: ResultArchive | None,
    view: SourceStates,
) -> dict[str, int]:
    """For each stream the revision up to which it is read: no further than by the queries that are read, or two states
    of the past would be mixed."""
    waits = basis is not None and any(unread_corrections(each, basis, view) for each in below)
    found = {}
    for name, each in bases.items():
        upstream = [other.last.revisions[name] for other in below if name in other.last.revisions]
        # A stream that is read only through queries is read as far as by them, once their corrections are taken up.
        through = name not in query.checked.reads and bool(upstream) and not waits
        found[name] = min([*([] if through else [_readable_revision(each, basis, view)]), *upstream])
    return found


def _readable_revision(of: StreamState, basis: ResultArchive | None, view: SourceStates) -> int:
    """The revision up to which the next evaluation could read a stream. Revisions of rows before the frontier, and all
    after them, wait for a sweep."""
    known = of.applied if basis is None else basis.last.revisions.get(of.stream.name, of.applied)
    if basis is None or known >= of.applied:
        return known
    waiting = deferred_overlays(view.overlays(of), known, basis.frontier)
    return of.applied if not waiting else max(known, (waiting[0].revision_first or 1) - 1)
