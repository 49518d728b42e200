"""Registered queries in the catalog: recorded, unregistered, found by their handles.

One transaction makes all queries of a registration visible, or none. It takes the lock of the head first, by recording
its commit, and then numbers: of queries and of conjunctions each, the next ones. So they become visible in the order of
their numbers, and registering, unregistering and forgetting exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, insert, select, update

from errata.catalog.database import Catalog
from errata.catalog.match_segments import forget_from
from errata.catalog.registered_tables import conjunctions, registered_queries, statements
from errata.catalog.tables import commits, streams
from errata.catalog.transaction import Conflict, Transaction
from errata.model.commit import Cause
from errata.model.registered import Conjunction, QueryCost, RegisteredPlan, RegisteredQuery, ResultStrategy
from errata.model.registered_records import (
    conjunction_from_record,
    conjunction_to_record,
    parameters_to_record,
    plan_from_record,
    record_digest,
    statement_from_record,
    statement_to_record,
)

VALUES_PER_STATEMENT = 500
"""Values in one statement, below the limits of the databases on parameters."""


MAX_COMMITS_LOOKED_AT = 100
"""Commits that `changed_between` looks at; of more it is supposed that one has changed something."""

CHANGES = frozenset({"unregistered", "strategy"})
"""What the summaries of commits tell that change queries in force."""


class StreamsConflict(Conflict):
    """A stream that a query reads was dropped while the query was being registered."""


@dataclass(frozen=True, slots=True)
class NewRegistration:
    """A query that is to be registered."""

    handle: str
    text: str
    plan: RegisteredPlan
    strategy: ResultStrategy


def record_registrations(
    catalog: Catalog, cause: Cause, owner: str, wanted: Sequence[NewRegistration], stream_ids: Mapping[str, int]
) -> list[int]:
    """Record queries, all by one commit, and return their numbers. `stream_ids` are of the streams that the plans were
    read with; a conflict if one has been dropped since."""
    now = catalog.clock.now()
    with catalog.writing() as connection:
        commit_id = Transaction(cause=cause, summary={"registered": len(wanted)}).commit(connection, now)
        _check_live(connection, stream_ids.values())
        by_statement = _find_or_add_statements(connection, [each.plan for each in wanted])
        by_conjunction = _find_or_add_conjunctions(connection, [each.plan for each in wanted], stream_ids)
        kept = [each.plan for each in wanted if each.strategy is not ResultStrategy.NONE]
        _match_again(connection, {by_conjunction[key] for plan in kept for key in _conjunction_keys(plan, stream_ids)})
        number = _next_number(connection, registered_queries.c.number)
        rows: list[dict[str, Any]] = [
            {
                "number": number + place,
                "handle": each.handle,
                "owner": owner,
                "statement_id": by_statement[_statement_digest(each.plan)],
                "text": each.text,
                "parameters": parameters_to_record(each.plan),
                "conjunctions": [by_conjunction[key] for key in _conjunction_keys(each.plan, stream_ids)],
                "strategy": each.strategy.value,
                "registered_at": now,
                "added_in": commit_id,
                "invocations": 0,
                "invocation_micros": 0,
            }
            for place, each in enumerate(wanted)
        ]
        connection.execute(insert(registered_queries), rows)
        return [row["number"] for row in rows]


def record_unregistered(catalog: Catalog, cause: Cause, handle: str, owner: str | None) -> int | None:
    """Mark a query as removed; the commit, or None if there is no such query in force (of the owner)."""
    with catalog.writing() as connection:
        mine = _in_force(connection, handle, owner)
        if mine is None:
            return None
        commit_id = Transaction(cause=cause, summary={"unregistered": 1}).commit(connection, catalog.clock.now())
        gone = connection.execute(update(registered_queries).where(mine).values(removed_in=commit_id)).rowcount
        if not gone:
            raise StreamsConflict
        return commit_id


def record_strategy(
    catalog: Catalog, cause: Cause, handle: str, strategy: ResultStrategy, owner: str | None
) -> int | None:
    """Change the strategy of a query in force (of the owner); the commit, or None if there is no such query. What was
    not matched for it, since nothing was kept, is to be matched again."""
    with catalog.writing() as connection:
        mine = _in_force(connection, handle, owner)
        if mine is None:
            return None
        changed = Transaction(cause=cause, summary={"strategy": strategy.value})
        commit_id = changed.commit(connection, catalog.clock.now())
        numbers = connection.execute(select(registered_queries.c.conjunctions).where(mine)).scalar()
        if numbers is None:
            raise StreamsConflict
        if strategy is not ResultStrategy.NONE:
            _match_again(connection, numbers)
        connection.execute(update(registered_queries).where(mine).values(strategy=strategy.value))
        return commit_id


def _in_force(connection: Connection, handle: str, owner: str | None) -> ColumnElement[bool] | None:
    """What is true of the query in force (of the owner) alone; None if there is none."""
    mine = (registered_queries.c.handle == handle) & registered_queries.c.removed_in.is_(None)
    if owner is not None:
        mine &= registered_queries.c.owner == owner
    found = connection.execute(select(registered_queries.c.number).where(mine)).first()
    return None if found is None else mine


def unkept_conjunctions(catalog: Catalog) -> set[int]:
    """The conjunctions that only queries have of which nothing is kept."""
    with catalog.reading() as connection:
        return _unkept_conjunctions(connection)


def _unkept_conjunctions(connection: Connection) -> set[int]:
    table = registered_queries.c
    query = select(table.conjunctions, table.strategy).where(table.removed_in.is_(None))
    unkept, kept = set[int](), set[int]()
    for numbers, strategy in connection.execute(query):
        (unkept if strategy == ResultStrategy.NONE.value else kept).update(numbers)
    return unkept - kept


def _match_again(connection: Connection, wanted: Iterable[int]) -> None:
    """Delete the segments that lack these conjunctions because nothing was kept for them."""
    missing = _unkept_conjunctions(connection) & set(wanted)
    own = conjunctions.c
    for number in sorted(missing):
        stream_id = connection.execute(select(own.stream_id).where(own.conjunction_id == number)).scalar_one()
        forget_from(connection, stream_id, number)


def live_registrations(
    catalog: Catalog, owner: str | None = None, strategy: ResultStrategy | None = None
) -> list[RegisteredQuery]:
    """All queries in force, in the order of their numbers; of one owner or one strategy only, if given."""
    query = _select_live()
    if owner is not None:
        query = query.where(registered_queries.c.owner == owner)
    if strategy is not None:
        query = query.where(registered_queries.c.strategy == strategy.value)
    return _read_queries(catalog, query)


def count_registrations(catalog: Catalog, owner: str) -> int:
    """How many queries of an owner are in force."""
    mine = (registered_queries.c.owner == owner) & registered_queries.c.removed_in.is_(None)
    with catalog.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(registered_queries).where(mine)).scalar_one())


def registration(catalog: Catalog, handle: str) -> RegisteredQuery | None:
    """The query in force with this handle."""
    return next(iter(_read_queries(catalog, _select_live().where(registered_queries.c.handle == handle))), None)


def registrations_by_number(catalog: Catalog, numbers: Sequence[int]) -> list[RegisteredQuery]:
    """The queries in force with these numbers."""
    found: list[RegisteredQuery] = []
    for some in _chunks(numbers):
        found += _read_queries(catalog, _select_live().where(registered_queries.c.number.in_(some)))
    return found


def removed_since(catalog: Catalog, handle: str) -> int | None:
    """The commit by which a query was unregistered; None if no query ever had the handle, or it is in force."""
    query = select(registered_queries.c.removed_in).where(registered_queries.c.handle == handle)
    with catalog.reading() as connection:
        return connection.execute(query).scalar()


def stream_conjunctions(catalog: Catalog, stream_id: int, after: int = 0) -> dict[int, Conjunction]:
    """The conjunctions over a stream with greater numbers than `after`, by number, in their order."""
    query = select(conjunctions.c.conjunction_id, conjunctions.c.factors)
    query = query.where(conjunctions.c.stream_id == stream_id, conjunctions.c.conjunction_id > after)
    with catalog.reading() as connection:
        rows = connection.execute(query.order_by(conjunctions.c.conjunction_id))
        return {row.conjunction_id: conjunction_from_record(row.factors) for row in rows}


def changed_between(catalog: Catalog, known: int, newest: int) -> bool:
    """Whether a commit after `known` may have changed a query that was in force then."""
    query = select(commits.c.summary).where(commits.c.commit_id > known, commits.c.commit_id <= newest)
    with catalog.reading() as connection:
        summaries = list(connection.execute(query.limit(MAX_COMMITS_LOOKED_AT + 1)).scalars())
    return len(summaries) > MAX_COMMITS_LOOKED_AT or any(not CHANGES.isdisjoint(each) for each in summaries)


def conjunction_streams(catalog: Catalog) -> dict[int, int]:
    """The streams that have conjunctions, and the greatest number of those of each."""
    query = select(conjunctions.c.stream_id, func.max(conjunctions.c.conjunction_id)).group_by(conjunctions.c.stream_id)
    with catalog.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def kept_conjunction_streams(catalog: Catalog) -> dict[int, int]:
    """The same, of the conjunctions of queries in force whose matches are kept."""
    own, asked = conjunctions.c, registered_queries.c
    kept = select(asked.conjunctions).where(asked.removed_in.is_(None), asked.strategy != ResultStrategy.NONE.value)
    found: dict[int, int] = {}
    with catalog.reading() as connection:
        wanted = {number for numbers in connection.execute(kept).scalars() for number in numbers}
        for stream_id, number in connection.execute(select(own.stream_id, own.conjunction_id)):
            if number in wanted:
                found[stream_id] = max(number, found.get(stream_id, 0))
    return found


@dataclass(frozen=True, slots=True)
class InvocationCount:
    """Invocations of one query that have not been recorded yet."""

    number: int
    invocations: int
    micros: int
    last: int


def record_invocations(catalog: Catalog, counts: Iterable[InvocationCount]) -> None:
    """Add invocations to what the queries have cost."""
    table = registered_queries
    with catalog.writing(durable=False) as connection:
        for each in counts:
            connection.execute(
                update(table)
                .where(table.c.number == each.number)
                .values(
                    invocations=table.c.invocations + each.invocations,
                    invocation_micros=table.c.invocation_micros + each.micros,
                    last_asked=each.last,
                )
            )


def _check_live(connection: Connection, stream_ids: Iterable[int]) -> None:
    wanted = set(stream_ids)
    live = select(streams.c.stream_id).where(streams.c.stream_id.in_(wanted), streams.c.removed_in.is_(None))
    if set(connection.execute(live).scalars()) != wanted:
        raise StreamsConflict


def _statement_digest(plan: RegisteredPlan) -> str:
    return record_digest(plan.statement, statement_to_record(plan))


def _find_or_add_statements(connection: Connection, plans: Sequence[RegisteredPlan]) -> dict[str, int]:
    """The ids of the plans' statements, by digest."""
    wanted = {_statement_digest(plan): plan for plan in plans}
    found: dict[str, int] = {}
    for some in _chunks(list(wanted)):
        query = select(statements.c.digest, statements.c.statement_id).where(statements.c.digest.in_(some))
        found.update({row.digest: row.statement_id for row in connection.execute(query)})
    for digest, plan in wanted.items():
        if digest not in found:
            values = {"digest": digest, "text": plan.statement, "plan": statement_to_record(plan)}
            added = insert(statements).values(values).returning(statements.c.statement_id)
            found[digest] = connection.execute(added).scalar_one()
    return found


def _conjunction_keys(plan: RegisteredPlan, stream_ids: Mapping[str, int]) -> list[tuple[int, str]]:
    return [
        (stream_ids[source.stream], record_digest(conjunction_to_record(conjunction)))
        for source, conjunction in zip(plan.sources, plan.conjunctions, strict=True)
    ]


def _find_or_add_conjunctions(
    connection: Connection, plans: Sequence[RegisteredPlan], stream_ids: Mapping[str, int]
) -> dict[tuple[int, str], int]:
    """The numbers of the plans' conjunctions, by stream and digest."""
    wanted: dict[tuple[int, str], Conjunction] = {}
    for plan in plans:
        wanted.update(zip(_conjunction_keys(plan, stream_ids), plan.conjunctions, strict=True))
    found: dict[tuple[int, str], int] = {}
    for some in _chunks([digest for _, digest in wanted]):
        known = select(conjunctions.c.stream_id, conjunctions.c.digest, conjunctions.c.conjunction_id)
        for row in connection.execute(known.where(conjunctions.c.digest.in_(some))):
            found[row.stream_id, row.digest] = row.conjunction_id
    number = _next_number(connection, conjunctions.c.conjunction_id)
    new = [key for key in wanted if key not in found]
    rows = [
        {"conjunction_id": place, "stream_id": key[0], "digest": key[1], "factors": conjunction_to_record(wanted[key])}
        for place, key in enumerate(new, number)
    ]
    if rows:
        connection.execute(insert(conjunctions), rows)
    return found | {key: place for place, key in enumerate(new, number)}


def _next_number(connection: Connection, column: Any) -> int:
    return int(connection.execute(select(func.max(column))).scalar() or 0) + 1


def _select_live() -> Select[Any]:
    table = registered_queries
    query = select(table, statements.c.text.label("statement"), statements.c.plan)
    query = query.join(statements, statements.c.statement_id == table.c.statement_id)
    return query.where(table.c.removed_in.is_(None)).order_by(table.c.number)


def _read_queries(catalog: Catalog, query: Select[Any]) -> list[RegisteredQuery]:
    with catalog.reading() as connection:
        rows = connection.execute(query).all()
        wanted = sorted({each for row in rows for each in row.conjunctions})
        known: dict[int, tuple[int, Conjunction]] = {}
        for some in _chunks(wanted):
            factors = select(conjunctions).where(conjunctions.c.conjunction_id.in_(some))
            for each in connection.execute(factors):
                known[each.conjunction_id] = each.stream_id, conjunction_from_record(each.factors)
    shared = {row.statement_id: row for row in rows}
    of = {each: statement_from_record(row.statement, row.plan) for each, row in shared.items()}
    return [_query_from_row(row, of[row.statement_id], known) for row in rows]


def _query_from_row(
    row: Row[Any], statement: RegisteredPlan, known: Mapping[int, tuple[int, Conjunction]]
) -> RegisteredQuery:
    numbers = tuple(row.conjunctions)
    plan = plan_from_record(statement, row.parameters, [known[each][1] for each in numbers])
    cost = QueryCost(invocations=row.invocations, invocation_micros=row.invocation_micros, last_asked=row.last_asked)
    return RegisteredQuery(
        row.handle,
        row.number,
        row.owner,
        row.text,
        plan,
        row.statement_id,
        tuple(known[each][0] for each in numbers),
        numbers,
        ResultStrategy(row.strategy),
        row.added_in,
        row.registered_at,
        cost,
    )


def _chunks(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    for start in range(0, len(values), VALUES_PER_STATEMENT):
        yield values[start : start + VALUES_PER_STATEMENT]
