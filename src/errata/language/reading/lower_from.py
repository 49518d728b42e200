"""FROM: what a SELECT reads, joined from left to right."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from errata.errors import candidates
from errata.language.expr import TRUE, Expr, Ref
from errata.language.nodes import Join, RelationJoin, Scan
from errata.language.plan import Plan, SourceKind
from errata.language.reading.expressions import Expressions
from errata.language.reading.lower_inputs import Inputs, is_relation
from errata.language.reading.mistakes import Text
from errata.language.reading.parse import only_known
from errata.language.reading.scope import Item, Scope, is_call, own_time_of
from errata.language.reading.statement import Commons, Statement
from errata.language.times import Own, timing


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
        only_known(self.text, join, {"this", "on", "using"} | _plain_kind(join))
        part = self.inputs.part(join.this)
        if any(each.name.lower() == part.name.lower() for each in scope.items):
            raise self.text.mistake(
                join.this, f"{part.name} is in FROM twice", how=f"give it another name: {part.name} AS {part.name}_2"
            )
        using = [(scope.bare(each, each.name), self._of(part, each)) for each in join.args.get("using") or ()]
        wider = scope.joined(part, using)
        condition = self._condition(join, scope, wider, part)
        if not is_relation(part.plan):
            return Join(left, part.plan, condition), wider
        return self._relation_join(left, part, condition, join), wider

    def _relation_join(self, left: Plan, part: Item, condition: Expr | None, join: exp.Join) -> Plan:
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

    def _condition(self, join: exp.Join, scope: Scope, wider: Scope, part: Item) -> Expr | None:
        whole: exp.Expression | None = join.args.get("on")
        if whole is None:
            for name in join.args.get("using") or ():
                left = next(each for each in scope.items if scope.bare(name, name.name) in each.columns.values())
                equal = exp.EQ(this=_column(left, name), expression=_column(part, name))
                whole = equal if whole is None else exp.And(this=whole, expression=equal)
        if whole is None:
            return None
        expressions = Expressions(self.text, wider.column, lambda node: self._own_time(node, wider))
        condition = expressions.condition(whole)
        return None if condition == TRUE else condition

    def _own_time(self, node: exp.Expression, scope: Scope) -> Expr | None:
        if not is_call(node, "event_time"):
            return None
        if not node.expressions:
            names = " or ".join(f"event_time({each.name})" for each in scope.items)
            raise self.text.mistake(node, "event_time() can be that of either side here", how=f"write {names}")
        return own_time_of(self.text, node, scope)


def _column(part: Item, name: exp.Expression) -> exp.Column:
    return exp.Column(this=name.copy(), table=exp.to_identifier(part.name, quoted=True))


def _plain_kind(join: exp.Join) -> set[str]:
    """JOIN, INNER JOIN, CROSS JOIN and the comma."""
    return {"kind"} if (join.kind or "").upper() in ("INNER", "CROSS") and not join.side else set()
