"""How far the sources of a query reach, which corrections only a sweep takes up, and what readers are told of a query
without results.

Light: no Spark, no SQL. A revision that concerns rows before the frontier is deferred to a sweep; those after it wait,
too, since revisions are taken up in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter

from errata.catalog import queries, streams
from errata.catalog.database import Catalog
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive, read_archive
from errata.catalog.streams import StreamState
from errata.catalog.vacuum import longest_horizon
from errata.errors import ErrataError, UsageError, unknown_name_error
from errata.model.bucket import Bucket
from errata.model.query import transitive_inputs
from errata.model.time import format_instant


def input_watermark(bases: Iterable[StreamState]) -> int | None:
    """The least stable point of the streams; None where one of them has none yet. Relations are left out, since their
    versions are valid until others come, which may be never."""
    stable = [each.stable for each in bases if each.stream.relation is None]
    known = [each for each in stable if each is not None]
    return min(known) if len(known) == len(stable) and known else None


def deferred_overlays(overlays: Sequence[Bucket], known: int, answered: int) -> list[Bucket]:
    """The overlays after revision `known` that the next evaluation does not take up: from the first one on that has or
    masks rows before `answered`. Revisions are taken up in their order, so that all later ones wait with it."""
    later = sorted((each for each in overlays if (each.revision_last or 0) > known), key=_first_revision)
    for at, each in enumerate(later):
        if any(ends[0] < answered for ends in (each.masks, each.content) if ends is not None):
            return later[at:]
    return []


def queries_with_inputs(known: Mapping[str, RecordedQuery], names: Sequence[str]) -> Mapping[str, RecordedQuery]:
    """The queries named, and those that they read; all, if none is named."""
    for name in names:
        if name not in known:
            raise unknown_name_error("query", name, list(known))
    reads = {name: each.checked.reads for name, each in known.items()}
    wanted = dict.fromkeys([*names, *transitive_inputs(names, reads)])
    return {name: known[name] for name in wanted if name in known} if names else known


def evaluation_order(reads: Mapping[str, Sequence[str]]) -> list[str]:
    """The queries, each after those that it reads. `reads`: what each query reads directly."""
    graph = {name: [other for other in some if other in reads] for name, some in reads.items()}
    return list(TopologicalSorter(graph).static_order())


def _first_revision(overlay: Bucket) -> int:
    return overlay.revision_first or 0


# Queries as readers of results name them.


def resolve_query(catalog: Catalog, name_given: str, commit_id: int) -> str:
    """The name of a query, from one written in any case: a current query, or one that had results at a commit."""
    known = queries.recorded_queries(catalog)
    written = {name.lower(): name for name in known}
    if name_given.lower() in written:
        return written[name_given.lower()]
    if read_archive(catalog, name_given, commit_id) is not None:
        return name_given
    for each in streams.stream_states(catalog):
        if name_given.lower() == each.stream.name.lower():
            how = f"`errata archive scan {each.stream.name}` reads its rows"
            raise UsageError(f"{each.stream.name} is a {each.stream.noun}, and no query", how=how)
    raise unknown_name_error("query", name_given, known)


def no_results_error(catalog: Catalog, name: str) -> ErrataError:
    """Why a current query has no results."""
    fault = queries.stopped_queries(catalog).get(queries.recorded_queries(catalog)[name].query_id)
    if fault is None:
        return ErrataError(
            f"query {name} has not been evaluated yet", how="run `errata run`; `errata ask` answers it at once"
        )
    found = fault.fault
    return ErrataError(
        f"query {name} has stopped before its first result",
        why=found.reason + (f" in {found.expression}" if found.expression else ""),
        how="correct the row or change the query, then run `errata run`",
    )


def reader_notes(catalog: Catalog, some: Sequence[ResultArchive]) -> list[str]:
    """What a reader of the newest results has to know: that a query was edited since, or has stopped."""
    known, halted = queries.recorded_queries(catalog), queries.stopped_queries(catalog)
    notes = []
    for of in some:
        now = known.get(of.name)
        if now is None:
            continue
        found = halted.get(now.query_id)
        reason = None if found is None else found.fault.reason
        if now.query_id != of.query_id:
            mend = "run `errata run`" if reason is None else f"the new one has stopped: {reason}"
            notes.append(
                f"{of.name} was edited in commit {now.added_in} and is still answered in its former form; {mend}"
            )
        elif reason is not None:
            notes.append(f"{of.name} has stopped at {event_time_text(of.frontier, of)}: {reason}")
    return notes


def result_horizon(catalog: Catalog) -> int:
    """For how long past states of results stay readable, in microseconds: as long as those of any stream."""
    with catalog.reading() as connection:
        return longest_horizon(connection)


def event_time_text(at: int, of: ResultArchive) -> str:
    """An event time of a query, as text."""
    return format_instant(at) if of.shape.timed else str(at)
