"""Queries as those know them who read their results: which is meant, whether it has results, and what is to be said of
them."""

from __future__ import annotations

from collections.abc import Sequence

from errata.catalog import queries, stopped, streams
from errata.catalog.open import Catalog
from errata.catalog.published import Published, published
from errata.catalog.vacuum import longest_horizon
from errata.errors import ErrataError, UsageError, unknown
from errata.model.instants import format_instant


def named(catalog: Catalog, said: str, commit_id: int) -> str:
    """The name of the query that is meant: one that there is, or one that had results at a commit."""
    known = queries.recorded(catalog)
    written = {name.lower(): name for name in known}
    if said.lower() in written:
        return written[said.lower()]
    if published(catalog, said, commit_id) is not None:
        return said
    for each in streams.standings(catalog):
        if said.lower() == each.stream.name.lower():
            how = f"`errata archive scan {each.stream.name}` reads its rows"
            raise UsageError(f"{each.stream.name} is a {each.stream.noun}, and no query", how=how)
    raise unknown("query", said, known)


def not_answered_yet(catalog: Catalog, name: str) -> ErrataError:
    """Why a query that is there has no results."""
    fault = stopped.all_stopped(catalog).get(queries.recorded(catalog)[name].query_id)
    if fault is None:
        return ErrataError(
            f"query {name} has not been evaluated yet", how="run `errata run`; `errata ask` answers it at once"
        )
    told = fault.fault
    return ErrataError(
        f"query {name} has stopped before its first result",
        why=told.reason + (f" in {told.expression}" if told.expression else ""),
        how="correct the row or change the query, then run `errata run`",
    )


def notes_on(catalog: Catalog, some: Sequence[Published]) -> list[str]:
    """What a reader of the newest results has to know of the queries."""
    known, halted = queries.recorded(catalog), stopped.all_stopped(catalog)
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
            notes.append(f"{of.name} has stopped at {words(of.frontier, of)}: {reason}")
    return notes


def horizon_of_results(catalog: Catalog) -> int:
    """For how long past states of results stay readable: as long as those of any stream."""
    with catalog.reading() as connection:
        return longest_horizon(connection)


def words(at: int, of: Published) -> str:
    """An event time of a query."""
    return format_instant(at) if of.shape.timed else str(at)
