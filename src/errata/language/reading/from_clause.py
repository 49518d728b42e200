"""The FROM clause and the JOINs of one SELECT, from left to right; outer joins and USING included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from errata.errors import candidates_text
from errata.language.coercion import common_type
from errata.language.expr import TRUE, Expr, Ref
from errata.language.nodes import Join, RelationJoin, Scan, scans_of
from errata.language.outer_joins import MergedColumn, OuterSide, outer_join
from errata.language.plan import Plan, SourceKind
from errata.language.reading.expressions import ExpressionReader, coerce_expr
from errata.language.reading.inputs import FromInputs, is_relation
from errata.language.reading.mistakes import SqlText
from errata.language.reading.parser import refuse_unknown_parts
from errata.language.reading.scope import (
    CommonTables,
    FromItem,
    SelectScope,
    StatementScope,
    UsingColumn,
    is_call_of,
    own_time_argument,
    short_name,
)
from errata.language.times import OwnTime, row_times

USING_PREFIX = "_using"
"""Suffix to the name of the right side, for a column under USING of a FULL JOIN."""


@dataclass(frozen=True)
class FromClause:
    """Reads the FROM and JOINs of one SELECT."""

    statement: StatementScope
    commons: CommonTables

    @property
    def text(self) -> SqlText:
        return self.statement.text

    @property
    def inputs(self) -> FromInputs:
        return FromInputs(self.statement, self.commons)

    def lower(self, select: exp.Select) -> tuple[Plan, SelectScope]:
        """The joined inputs, and what names mean over them."""
        begin = select.args.get("from_")
        if begin is None:
            raise self.text.mistake(
                select, "there is no FROM", "an answer changes with what is read", "name a stream, relation or query"
            )
        refuse_unknown_parts(self.text, begin, {"this"})
        first = self.inputs.part(begin.this)
        if is_relation(first.plan):
            raise self._alone(begin.this, first)
        plan, scope = first.plan, SelectScope.of(self.text, first)
        for join in select.args.get("joins") or ():
            plan, scope = self._joined(plan, scope, join)
        return plan, scope

    def _alone(self, place: exp.Expression, part: FromItem) -> Exception:
        return self.text.mistake(
            place,
            f"the relation {part.name} stands alone or on the left",
            "a relation only says more about rows of a stream or query: its changes are no events",
            f"begin FROM with a stream or a query, and JOIN {part.name} to it",
        )

    # joins

    def _joined(self, left: Plan, scope: SelectScope, join: exp.Join) -> tuple[Plan, SelectScope]:
        side = self._side(join)
        refuse_unknown_parts(self.text, join, {"this", "on", "using"} | _join_kind(join, side))
        part = self.inputs.part(join.this)
        if any(each.name.lower() == part.name.lower() for each in scope.items):
            raise self.text.mistake(
                join.this, f"{part.name} is in FROM twice", how=f"give it another name: {part.name} AS {part.name}_2"
            )
        pairs, columns = self._pairs(left, scope, part, join)
        if side is None:
            return pairs, scope.joined(part, [UsingColumn(name, mine, theirs, mine) for name, mine, theirs in columns])
        return self._outer(pairs, side, scope, part, columns, join)

    def _pairs(
        self, left: Plan, scope: SelectScope, part: FromItem, join: exp.Join
    ) -> tuple[Join | RelationJoin, list[tuple[str, Ref, Ref]]]:
        """The inner join, and the columns that USING names: that of the left, and that of the right."""
        using = [
            (each, scope.unqualified_column(each, each.name), self._of(part, each))
            for each in join.args.get("using") or ()
        ]
        condition = self._condition(join, scope.joined(part), using)
        columns = [(node.name.lower(), mine, theirs) for node, mine, theirs in using]
        if not is_relation(part.plan):
            return Join(left, part.plan, condition), columns
        return self._relation_join(left, part, condition, join), columns

    # outer joins

    def _side(self, join: exp.Join) -> OuterSide | None:
        """The sides whose rows are kept without a partner; None for a join that is not an outer one."""
        if not join.side or (join.kind or "OUTER").upper() != "OUTER":
            return None
        return OuterSide(join.side.lower())

    def _outer(
        self,
        pairs: Join | RelationJoin,
        side: OuterSide,
        scope: SelectScope,
        part: FromItem,
        columns: Sequence[tuple[str, Ref, Ref]],
        join: exp.Join,
    ) -> tuple[Plan, SelectScope]:
        self._check_outer(side, part, join)
        shared = [self._shared(side, part, join, *each) for each in columns]
        merged = [
            MergedColumn(
                each.whole.name, coerce_expr(each.left, each.whole.type), coerce_expr(each.right, each.whole.type)
            )
            for each in shared
            if side is OuterSide.FULL
        ]
        plan = outer_join(pairs, side, self.statement, merged)
        for _ in range(len(scans_of(plan)) - len(scans_of(pairs))):
            self.statement.count_input(join.this)
        return plan, scope.joined(part, shared)

    def _check_outer(self, side: OuterSide, part: FromItem, join: exp.Join) -> None:
        if is_relation(part.plan) and side is not OuterSide.LEFT:
            raise self.text.mistake(
                join.this,
                f"the relation {part.name} would stand alone in a {side.upper()} JOIN",
                "a relation only says more about rows of a stream or query: its changes are no events",
                f"write LEFT JOIN {part.name}, which keeps the rows that it says nothing about",
            )

    def _shared(
        self, side: OuterSide, part: FromItem, join: exp.Join, name: str, mine: Ref, theirs: Ref
    ) -> UsingColumn:
        """A column under USING: that of the side whose rows are all kept; in a FULL JOIN a column of its own."""
        if side is not OuterSide.FULL:
            return UsingColumn(name, mine, theirs, mine if side is OuterSide.LEFT else theirs)
        kind = common_type((mine.type, theirs.type))
        if kind is None:
            raise self.text.mistake(
                join.this,
                f"{name} is {mine.type} on the left and {theirs.type} on the right",
                "no type holds the values of both",
                "write ON with CAST(... AS type) in place of USING",
            )
        return UsingColumn(
            name, mine, theirs, Ref(f"{self.statement.alias(f'{part.name}{USING_PREFIX}')}.{short_name(theirs)}", kind)
        )

    def _relation_join(self, left: Plan, part: FromItem, condition: Expr | None, join: exp.Join) -> RelationJoin:
        nrr = isinstance(part.plan, Scan) and part.plan.source.kind is SourceKind.NRR
        if nrr and row_times(left).own is OwnTime.NONE:
            raise self.text.mistake(
                join.this,
                f"{part.name} cannot be joined to rows without a time of their own",
                "a row sees the version of a non-retroactive relation that was valid when the row happened",
                f"join {part.name} before grouping, DISTINCT or INTERSECT, or declare it as retroactive",
            )
        return RelationJoin(left, part.plan, condition)

    def _of(self, part: FromItem, name: exp.Expression) -> Ref:
        found = part.columns.get(name.name.lower())
        if found is None:
            known = list(part.columns)
            raise self.text.mistake(
                name, f"unknown column {name.name!r} of {part.name}", how=candidates_text(name.name, known)
            )
        return found

    def _condition(
        self, join: exp.Join, wider: SelectScope, using: Sequence[tuple[exp.Expression, Ref, Ref]]
    ) -> Expr | None:
        whole: exp.Expression | None = join.args.get("on")
        columns: dict[int, Ref] = {}
        for name, mine, theirs in using:
            sides = [exp.Column(this=name.copy()) for _ in range(2)]
            columns |= {id(node): ref for node, ref in zip(sides, (mine, theirs), strict=True)}
            equal = exp.EQ(this=sides[0], expression=sides[1])
            whole = equal if whole is None else exp.And(this=whole, expression=equal)
        if whole is None:
            return None
        expressions = ExpressionReader(
            self.text, wider.column, lambda node: columns.get(id(node)) or self._own_time(node, wider)
        )
        condition = expressions.condition(whole)
        return None if condition == TRUE else condition

    def _own_time(self, node: exp.Expression, scope: SelectScope) -> Expr | None:
        if not is_call_of(node, "event_time"):
            return None
        if not node.expressions:
            names = " or ".join(f"event_time({each.name})" for each in scope.items)
            raise self.text.mistake(node, "event_time() can be that of either side here", how=f"write {names}")
        return own_time_argument(self.text, node, scope)


def _join_kind(join: exp.Join, side: OuterSide | None) -> set[str]:
    """JOIN, INNER JOIN, CROSS JOIN, the comma, and the words of an outer join."""
    if side is not None:
        return {"kind", "side"}
    return {"kind"} if (join.kind or "").upper() in ("INNER", "CROSS") and not join.side else set()
