"""The SELECT of a registered query as a view: the same answer from the rows that are known to match, by PostgreSQL.

Which rows satisfy a conjunction is looked up, not computed again; the view applies windows, joins and aggregates. NOW
is the least stable point of the sources as of the commit that their tables are of, so a view says what an invocation as
of that commit says. PostgreSQL compares as Errata does: NaN equals NaN and is greater than all numbers, NULL compares
with nothing. Where types differ, a number beside a floating one is a double, a date beside a timestamp its midnight.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    DateTime,
    Dialect,
    Double,
    FromClause,
    Numeric,
    Select,
    and_,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    text,
    true,
)

from errata.catalog.registered_tables import view_exclusions, view_streams
from errata.catalog.result_columns import sql_type
from errata.catalog.view_tables import ADDED_IN, BUCKET, CONJUNCTION, ORDER, POSITION, SCHEMA, ViewTables
from errata.model.columns import FLOATING_KINDS, WHOLE_KINDS, TypeKind
from errata.model.registered import AggregateFunction, Bound, Comparison, OutputItem, RegisteredQuery, Relation

_KEPT_FROM = """
CREATE OR REPLACE FUNCTION psoup.kept_from(stream bigint, wanted bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = %s, pg_temp AS $$
DECLARE cut bigint;
BEGIN
    SELECT aged_to INTO cut FROM view_streams WHERE stream_id = stream;
    IF wanted < cut THEN
        RAISE EXCEPTION 'the window reaches back further than the stream is kept'
            USING HINT = 'register a smaller window, or declare a longer retention';
    END IF;
    RETURN wanted;
END $$
"""
"""The begin of a window, if the stream still holds all rows from there on, and else an error: an answer that lacks rows
would be a wrong one."""

_FIRST_ROW = """
CREATE OR REPLACE FUNCTION psoup.first_row(query bigint, place integer) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = %s, pg_temp AS $$
DECLARE known record;
BEGIN
    SELECT first, lacks_rows INTO known FROM view_windows WHERE number = query AND source = place;
    IF known.lacks_rows THEN
        RAISE EXCEPTION 'the window reaches back further than the stream is kept'
            USING HINT = 'register a smaller window, or declare a longer retention';
    END IF;
    RETURN known.first;
END $$
"""
"""The same for a window that counts rows; NULL where there is no NOW yet."""

_DIALECT: Dialect = URL.create("postgresql+psycopg2").get_dialect()()
_OPERATORS = {
    Comparison.LESS: ColumnElement.__lt__,
    Comparison.AT_MOST: ColumnElement.__le__,
    Comparison.EQUAL: ColumnElement.__eq__,
    Comparison.AT_LEAST: ColumnElement.__ge__,
    Comparison.GREATER: ColumnElement.__gt__,
}


def function_sqls(schema: str) -> list[str]:
    """The statements that make the functions of the views, for catalog tables in a schema."""
    return [each.replace("%s", schema) for each in (_KEPT_FROM, _FIRST_ROW)]


def view_name(query: RegisteredQuery) -> str:
    """The name of a query's view."""
    return f"q_{query.handle}"


def create_view_sql(query: RegisteredQuery, sources: Sequence[ViewTables]) -> str:
    """The statement that makes the view of a query over the tables of its sources."""
    chosen = _ViewSelect(query, sources).whole()
    compiled = chosen.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
    return f'CREATE OR REPLACE VIEW "{SCHEMA}"."{view_name(query)}" AS {compiled}'


class _ViewSelect:
    def __init__(self, query: RegisteredQuery, sources: Sequence[ViewTables]) -> None:
        self.query = query
        self.plan = query.plan
        self.sources = sources
        self.now = self._now()
        self.parts: list[FromClause] = [self._source(at).subquery(f"s{at}") for at in range(len(sources))]

    def whole(self) -> Select[Any]:
        """The SELECT."""
        items = [self._item(each).label(each.output.name) for each in self.plan.items]
        found = select(*items).select_from(reduce(lambda one, other: one.join(other, true()), self.parts))
        found = found.where(*map(self._relation, self.plan.relations))
        return found.distinct() if self.plan.distinct else found

    def _now(self) -> ColumnElement[Any]:
        """The least stable point of the sources; NULL, so that no row counts, while one of them has none."""
        ids = sorted({each.stream_id for each in self.sources})
        stable = view_streams.c.stable
        least = case((func.count(stable) == len(ids), func.min(stable)))
        return select(least).where(view_streams.c.stream_id.in_(ids)).scalar_subquery()

    def _source(self, at: int) -> Select[Any]:
        """The rows of a source that its conjunction holds of, in its window."""
        tables, window = self.sources[at], self.plan.windows[at]
        rows, matches = tables.rows, tables.matches
        order = matches.c[ORDER]
        conditions = [
            matches.c[CONJUNCTION] == self.query.conjunctions[at],
            order < func.least(self._bound(window.end), self.now + 1),
        ]
        if window.begin is not None:
            begin = func.psoup.kept_from(tables.stream_id, self._bound(window.begin), type_=BigInteger())
            conditions.append(order >= begin)
        else:
            conditions += self._row_window(at, order, matches)
        same = and_(*(rows.c[name] == matches.c[name] for name in (BUCKET, ADDED_IN, POSITION)))
        columns = [rows.c[each.name] for each in tables.stream.columns]
        return select(*columns).select_from(matches.join(rows, same)).where(*conditions)

    def _row_window(self, at: int, order: ColumnElement[Any], matches: FromClause) -> list[ColumnElement[bool]]:
        """The conditions of a window that counts rows: where it begins as of the views' commit, less what is too many
        there."""
        number, known = self.query.number, view_exclusions.c
        same = and_(
            known.bucket_id == matches.c[BUCKET],
            known.added_in == matches.c[ADDED_IN],
            known.position == matches.c[POSITION],
        )
        excluded = select(literal(1)).where(known.number == number, known.source == at, same)
        first = func.psoup.first_row(number, at, type_=BigInteger())
        return [order >= first, ~excluded.exists()]

    def _bound(self, bound: Bound) -> ColumnElement[Any]:
        if bound.relative:
            return self.now + literal(1 - bound.value, BigInteger)
        return literal(bound.value, BigInteger)

    # items

    def _column(self, source: int, name: str) -> ColumnElement[Any]:
        return self.parts[source].c[name]

    def _item(self, item: OutputItem) -> ColumnElement[Any]:
        if item.function is None:
            return self._column(item.source, item.column or "")
        if item.column is None:
            return func.count(text("*"))
        column = self._column(item.source, item.column)
        kind = self.sources[item.source].stream.column(item.column).type.kind
        if item.function in (AggregateFunction.MIN, AggregateFunction.MAX) and kind is TypeKind.BOOLEAN:
            return func.bool_and(column) if item.function is AggregateFunction.MIN else func.bool_or(column)
        if item.function is AggregateFunction.SUM and kind in FLOATING_KINDS:
            column = cast(column, Double)
        if item.function is AggregateFunction.AVG and item.output.type.kind is not TypeKind.DECIMAL:
            column = cast(column, Double)
        found: ColumnElement[Any] = getattr(func, item.function.value)(column)
        sums = item.function in (AggregateFunction.SUM, AggregateFunction.AVG)
        return cast(found, sql_type(item.output.type)) if sums else found

    # relations

    def _relation(self, relation: Relation) -> ColumnElement[bool]:
        left = self._column(relation.left_source, relation.left)
        right = self._column(relation.right_source, relation.right)
        kinds = (
            self.sources[relation.left_source].stream.column(relation.left).type.kind,
            self.sources[relation.right_source].stream.column(relation.right).type.kind,
        )
        if set(kinds) & set(FLOATING_KINDS):
            left, right = cast(left, Double), cast(right, Double)
        elif set(kinds) == {TypeKind.DATE, TypeKind.TIMESTAMP}:
            left, right = _midnight(left, kinds[0]), _midnight(right, kinds[1])
        if relation.offset != 0:
            right = _moved(right, kinds, relation.offset)
        compared: ColumnElement[bool] = _OPERATORS[relation.comparison](left, right)
        return compared


def _midnight(column: ColumnElement[Any], kind: TypeKind) -> ColumnElement[Any]:
    if kind is not TypeKind.DATE:
        return column
    return func.timezone("UTC", cast(column, DateTime(timezone=False)), type_=DateTime(timezone=True))


def _moved(column: ColumnElement[Any], kinds: Sequence[TypeKind], offset: object) -> ColumnElement[Any]:
    """A column plus a constant, in a type that holds the sum."""
    match offset:
        case float():
            return column + literal(offset, Double)
        case Decimal():
            return column + literal(offset, Numeric)
        case int() if kinds[1] is TypeKind.TIMESTAMP:
            return column + literal_column(f"INTERVAL '{offset:d} microseconds'")
        case int():
            return cast(column, Numeric) + offset if kinds[1] in WHOLE_KINDS else column + offset
    raise TypeError(f"{offset!r} cannot be added to a column")
