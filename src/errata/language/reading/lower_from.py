"""FROM: what a SELECT reads, joined from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from errata.errors import candidates
from errata.language.expr import TRUE, Expr, Ref
from errata.language.nodes import Join, RelationJoin, Scan, scans
from errata.language.outer import Merged, Side, outer_join
from errata.language.plan import Plan, SourceKind
from errata.language.reading.expressions import Expressions, coerced
from errata.language.reading.lower_inputs import Inputs, is_relation
from errata.language.reading.mistakes import Text
from errata.language.reading.parse import only_known
from errata.language.reading.scope import Item, Scope, Shared, is_call, own_time_of, shown
from errata.language.reading.statement import Commons, Statement
from errata.language.times import Own, timing
from errata.language.widening import common_type

USING = "_using"
"""A column under USING of a FULL JOIN is called by the name of the right side and this."""


@dataclass(frozen=True)
class FromClause:
    """Reads the FROM and JOINs of one SELECT."""

    statement: Statement
    commons: Commons

    @property
    def text(self) -> Text:
        return self.statement.text

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.statement, self.commons)

    def lower(self, select: exp.Select) -> tuple[Plan, Scope]:
        """The joined inputs, and what names mean over them."""
        begin = select.args.get("from_")
        if begin is None:
            raise self.text.mistake(
                select, "there is no FROM", "an answer changes with what is read", "name a stream, relation or query"
            )
        only_known(self.text, begin, {"this"})
        first = self.inputs.part(begin.this)
        if is_relation(first.plan):
            raise self._alone(begin.this, first)
        plan, scope = first.plan, Scope.of(self.text, first)
        for join in select.args.get("joins") or ():
            plan, scope = self._joined(plan, scope, join)
        return plan, scope

    def _alone(self, place: exp.Expression, part: Item) -> Exception:
        return self.text.mistake(
            place,
            f"the relation {part.name} stands alone or on the left",
            "a relation only says more about rows of a stream or query: its changes are no events",
            f"begin FROM with a stream or a query, and JOIN {part.name} to it",
        )

    # joins

    def _joined(self, left: Plan, scope: Scope, join: exp.Join) -> tuple[Plan, Scope]:
        side = self._side(join)
        only_known(self.text, join, {"this", "on", "using"} | _plain_kind(join, side))
        part = self.inputs.part(join.this)
        if any(each.name.lower() == part.name.lower() for each in scope.items):
            raise self.text.mistake(
                join.this, f"{part.name} is in FROM twice", how=f"give it another name: {part.name} AS {part.name}_2"
            )
        pairs, columns = self._pairs(left, scope, part, join)
        if side is None:
            return pairs, scope.joined(part, [Shared(name, mine, theirs, mine) for name, mine, theirs in columns])
        return self._outer(pairs, side, scope, part, columns, join)

    def _pairs(
        self, left: Plan, scope: Scope, part: Item, join: exp.Join
    ) -> tuple[Join | RelationJoin, list[tuple[str, Ref, Ref]]]:
        """The inner join, and what USING names: the column of the left, and that of the right."""
        using = [(each, scope.bare(each, each.name), self._of(part, each)) for each in join.args.get("using") or ()]
        condition = self._condition(join, scope.joined(part), using)
        columns = [(node.name.lower(), mine, theirs) for node, mine, theirs in using]
        if not is_relation(part.plan):
            return Join(left, part.plan, condition), columns
        return self._relation_join(left, part, condition, join), columns

    # outer joins

    def _side(self, join: exp.Join) -> Side | None:
        """Whose rows stand without a partner, too; None for a join that is not an outer one."""
        if not join.side or (join.kind or "OUTER").upper() != "OUTER":
            return None
        return Side(join.side.lower())

    def _outer(
        self,
        pairs: Join | RelationJoin,
        side: Side,
        scope: Scope,
        part: Item,
        columns: Sequence[tuple[str, Ref, Ref]],
        join: exp.Join,
    ) -> tuple[Plan, Scope]:
        self._check_outer(side, part, join)
        shared = [self._shared(side, part, join, *each) for each in columns]
        merged = [
            Merged(each.whole.name, coerced(each.left, each.whole.type), coerced(each.right, each.whole.type))
            for each in shared
            if side is Side.FULL
        ]
        plan = outer_join(pairs, side, self.statement, merged)
        for _ in range(len(scans(plan)) - len(scans(pairs))):
            self.statement.count(join.this)
        return plan, scope.joined(part, shared)

    def _check_outer(self, side: Side, part: Item, join: exp.Join) -> None:
        if is_relation(part.plan) and side is not Side.LEFT:
            raise self.text.mistake(
                join.this,
                f"the relation {part.name} would stand alone in a {side.upper()} JOIN",
                "a relation only says more about rows of a stream or query: its changes are no events",
                f"write LEFT JOIN {part.name}, which keeps the rows that it says nothing about",
            )

    def _shared(self, side: Side, part: Item, join: exp.Join, name: str, mine: Ref, theirs: Ref) -> Shared:
        """A column under USING: that of the side whose rows all stand; in a FULL JOIN a column of its own."""
        if side is not Side.FULL:
            return Shared(name, mine, theirs, mine if side is Side.LEFT else theirs)
        kind = common_type((mine.type, theirs.type))
        if kind is None:
            raise self.text.mistake(
                join.this,
                f"{name} is {mine.type} on the left and {theirs.type} on the right",
                "no type holds the values of both",
                "write ON with CAST(... AS type) in place of USING",
            )
        return Shared(name, mine, theirs, Ref(f"{self.statement.alias(f'{part.name}{USING}')}.{shown(theirs)}", kind))

    def _relation_join(self, left: Plan, part: Item, condition: Expr | None, join: exp.Join) -> RelationJoin:
        nrr = isinstance(part.plan, Scan) and part.plan.source.kind is SourceKind.NRR
        if nrr and timing(left).own is Own.NONE:
            raise self.text.mistake(
                join.this,
                f"{part.name} cannot be joined to rows without a time of their own",
                "a row sees the version of a non-retroactive relation that was valid when the row happened",
                f"join {part.name} before grouping, DISTINCT or INTERSECT, or declare it as retroactive",
            )
        return RelationJoin(left, part.plan, condition)

    def _of(self, part: Item, name: exp.Expression) -> Ref:
        found = part.columns.get(name.name.lower())
        if found is None:
            known = list(part.columns)
            raise self.text.mistake(
                name, f"unknown column {name.name!r} of {part.name}", how=candidates(name.name, known)
            )
        return found

    def _condition(self, join: exp.Join, wider: Scope, using: Sequence[tuple[exp.Expression, Ref, Ref]]) -> Expr | None:
        whole: exp.Expression | None = join.args.get("on")
        columns: dict[int, Ref] = {}
        for name, mine, theirs in using:
            sides = [exp.Column(this=name.copy()) for _ in range(2)]
            columns |= {id(node): ref for node, ref in zip(sides, (mine, theirs), strict=True)}
            equal = exp.EQ(this=sides[0], expression=sides[1])
            whole = equal if whole is None else exp.And(this=whole, expression=equal)
        if whole is None:
            return None
        expressions = Expressions(
            self.text, wider.column, lambda node: columns.get(id(node)) or self._own_time(node, wider)
        )
        condition = expressions.condition(whole)
        return None if condition == TRUE else condition

    def _own_time(self, node: exp.Expression, scope: Scope) -> Expr | None:
        if not is_call(node, "event_time"):
            return None
        if not node.expressions:
            names = " or ".join(f"event_time({each.name})" for each in scope.items)
            raise self.text.mistake(node, "event_time() can be that of either side here", how=f"write {names}")
        return own_time_of(self.text, node, scope)


def _plain_kind(join: exp.Join, side: Side | None) -> set[str]:
    """JOIN, INNER JOIN, CROSS JOIN, the comma, and the words of an outer join."""
    if side is not None:
        return {"kind", "side"}
    return {"kind"} if (join.kind or "").upper() in ("INNER", "CROSS") and not join.side else set()
