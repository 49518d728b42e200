"""A parsed statement is lowered to a plan, SELECT by SELECT; queries under WITH are put where they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from errata.language.expr import Expr, Ref, expr_sql
from errata.language.nodes import Distinct, Filter, Output, Projection, TimeWindow
from errata.language.plan import Plan
from errata.language.reading.expressions import is_aggregate
from errata.language.reading.from_clause import FromClause
from errata.language.reading.group_clause import GroupClause, expressions_over, is_window_call
from errata.language.reading.mistakes import TOO_DEEP, SqlText
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.language.reading.samples import SampleClauses
from errata.language.reading.scope import (
    CommonTable,
    CommonTables,
    SelectScope,
    SourceCatalog,
    StatementScope,
    short_name,
)
from errata.language.reading.set_operations import lower_set

MAX_PLAN_DEPTH = 100
MAX_COLUMNS = 1_000
"""Of a result, hidden ones included."""
"""Depth of a plan, at most: code that reads a plan calls itself for each operator above another."""
NO_WINDOW_COLUMNS: Mapping[str, str] = {}
_SELECT_PARTS = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "with_"}


def lower_statement(
    tree: exp.Expression,
    text: SqlText,
    known: SourceCatalog,
    *,
    early: bool = False,
    samples: SampleClauses | None = None,
) -> Plan:
    """The plan of a statement over known sources. `early`: windows are published from their first row on; `samples`:
    the clauses that say which streams are sampled."""
    lowering = _StatementLowering(text, known, samples or SampleClauses(), early=early)
    try:
        plan = lowering.whole(tree)
    except RecursionError:
        raise text.mistake(0, *TOO_DEEP) from None
    lowering.statement.samples.check_read(text)
    if plan_depth(plan) > MAX_PLAN_DEPTH:
        raise text.mistake(0, *TOO_DEEP)
    if len(plan.fields) > MAX_COLUMNS:
        raise text.mistake(
            0,
            f"a result has {len(plan.fields):,} columns, with those that tell results apart",
            f"a query has {MAX_COLUMNS:,} at most; every input of a join and every branch of a union adds its key",
            "group the rows or take DISTINCT ones in a query below this one",
        )
    return plan


def plan_depth(plan: Plan) -> int:
    """The depth of a plan: operators above one another."""
    level, deep = [plan], 0
    while level:
        deep += 1
        level = [child for each in level for child in each.inputs]
    return deep


class _StatementLowering:
    """Lowers one statement, and each query within it."""

    def __init__(self, text: SqlText, known: SourceCatalog, samples: SampleClauses, *, early: bool) -> None:
        self.text = text
        self.early = early
        self.windows = 0
        self.statement = StatementScope(text, known, self.query, samples)

    def whole(self, tree: exp.Expression) -> Plan:
        plan = self.query(tree, "", {}, outermost=True)
        if self.early and not self.windows:
            raise self.text.mistake(
                tree,
                "early results are asked of a query without a window of time",
                "other answers are up to date at any time",
                "GROUP BY window(time, '5 minutes') in the outermost SELECT, or leave out emit: early",
            )
        return plan

    def query(
        self,
        node: exp.Expression,
        prefix: str,
        commons: CommonTables,
        *,
        outermost: bool = False,
        names: Sequence[str] = (),
    ) -> Plan:
        """A SELECT, a set operation, or either in brackets. `names`: for columns without a name of their own."""
        defined, commons = self._with(node, commons)
        match node:
            case exp.Subquery():
                refuse_unknown_parts(self.text, node, {"this", "with_"})
                plan = self.query(node.this, prefix, commons, outermost=outermost, names=names)
            case exp.SetOperation():
                plan = lower_set(
                    self.statement,
                    node,
                    lambda each, named: self.query(each, prefix, commons, outermost=outermost, names=named),
                    names,
                )
            case exp.Select():
                plan = self._select(node, prefix, commons, outermost=outermost, names=names)
            case _:
                raise unknown_construct(self.text, node)
        self._check_unused(defined)
        return plan

    # WITH

    def _with(self, node: exp.Expression, commons: CommonTables) -> tuple[list[CommonTable], CommonTables]:
        clause = node.args.get("with_")
        if clause is None:
            return [], commons
        refuse_unknown_parts(self.text, clause, {"expressions"})
        seen = dict(commons)
        defined: dict[str, CommonTable] = {}
        for each in clause.expressions:
            common = self._common(each, dict(seen))
            if common.name.lower() in defined:
                raise self.text.mistake(each.args["alias"], f"WITH names {common.name} twice")
            defined[common.name.lower()] = seen[common.name.lower()] = common
        return list(defined.values()), seen

    def _common(self, node: exp.Expression, seen: CommonTables) -> CommonTable:
        # MATERIALIZED changes how it is computed, not the result.
        refuse_unknown_parts(self.text, node, {"this", "alias", "materialized"})
        alias = node.args["alias"]
        if alias.args.get("columns"):
            raise self.text.mistake(
                alias, "columns are not named here", how="name them in the SELECT within: expression AS name"
            )
        self.statement.check_name(alias, "table", alias.name)
        return CommonTable(alias.name, node.this, seen)

    def _check_unused(self, defined: Sequence[CommonTable]) -> None:
        """Check queries under WITH that are never read: they must be right, too."""
        for each in defined:
            if id(each.query) not in self.statement.used:
                self.statement.used.add(id(each.query))
                self.query(each.query, "", each.seen)

    # SELECT

    def _select(
        self, node: exp.Select, prefix: str, commons: CommonTables, *, outermost: bool, names: Sequence[str]
    ) -> Plan:
        refuse_unknown_parts(self.text, node, _SELECT_PARTS)
        number = self._window_number(node)
        plan, scope = FromClause(self.statement, commons).lower(node)
        where = node.args.get("where")
        if where is not None:
            expressions = expressions_over(self.statement, scope, plan)
            plan = Filter(plan, expressions.condition(where.this))
        if _is_grouped(node):
            early = outermost and self.early
            aliases = {each.alias.lower(): each.this for each in node.expressions if isinstance(each, exp.Alias)}
            grouping = GroupClause(self.statement, scope, plan, aliases, number, early)
            plan = self._grouped(node, prefix, scope, names, grouping)
            self.windows += early and isinstance(grouping.window, TimeWindow)
        else:
            over = expressions_over(self.statement, scope, plan)
            plan = self._project(plan, prefix, self._items(node, scope, names, over.lower))
        return self._distinct(node, plan)

    def _window_number(self, node: exp.Select) -> int:
        """The number of the statement's window that this SELECT groups by: 1 where it has none."""
        group = node.args.get("group")
        if group is None or not any(is_window_call(each) for each in group.expressions):
            return 1
        return self.statement.next_window()

    def _grouped(
        self, node: exp.Select, prefix: str, scope: SelectScope, names: Sequence[str], grouping: GroupClause
    ) -> Plan:
        if (group := node.args.get("group")) is not None:
            refuse_unknown_parts(self.text, group, {"expressions"})
            grouping.group_by(group.expressions)
        for each in node.expressions:
            if each.is_star:
                raise self.text.mistake(
                    each,
                    "* has no meaning over groups",
                    "a group has many rows",
                    "name what is grouped by, and aggregates",
                )
        items = self._items(node, scope, names, grouping.lower, grouping.window_names)
        having = node.args.get("having")
        condition = None if having is None else grouping.lower_having(having.this)
        grouped: Plan = grouping.plan()
        return self._project(grouped if condition is None else Filter(grouped, condition), prefix, items)

    def _distinct(self, node: exp.Select, plan: Plan) -> Plan:
        distinct = node.args.get("distinct")
        if distinct is None:
            return plan
        refuse_unknown_parts(self.text, distinct, ())
        return Distinct(plan)

    def _items(
        self,
        node: exp.Select,
        scope: SelectScope,
        names: Sequence[str],
        lowered: Callable[[exp.Expression], Expr],
        windows: Mapping[str, str] = NO_WINDOW_COLUMNS,
    ) -> list[_SelectItem]:
        """The columns that SELECT lists, with names. `windows`: the names of a window's columns."""
        found: list[_SelectItem] = []
        for number, each in enumerate(node.expressions):
            if each.is_star:
                found += [_SelectItem(each, short_name(ref), ref) for ref in self._star(each, scope)]
            elif isinstance(each, exp.Alias):
                refuse_unknown_parts(self.text, each, {"this", "alias"})
                self.statement.check_alias_word(each.args["alias"])
                found.append(_SelectItem(each.args["alias"], each.alias, lowered(each.this)))
            else:
                expr = lowered(each)
                own = windows.get(expr.name) if isinstance(expr, Ref) else None
                found.append(_SelectItem(each, own or self._own_name(each, expr, names[number : number + 1]), expr))
        return found

    def _star(self, node: exp.Expression, scope: SelectScope) -> Sequence[Ref]:
        star = node.this if isinstance(node, exp.Column) else node
        refuse_unknown_parts(self.text, star, ())
        if not isinstance(node, exp.Column):
            return scope.star
        refuse_unknown_parts(self.text, node, {"this", "table"})
        return list(scope.item(node, node.table).columns.values())

    def _own_name(self, node: exp.Expression, expr: Expr, given: Sequence[str]) -> str:
        if isinstance(node, exp.Column) and isinstance(expr, Ref):
            return short_name(expr)
        if given:
            return given[0]
        raise self.text.mistake(node, "this column has no name", how="write expression AS name")

    def _project(self, plan: Plan, prefix: str, items: Sequence[_SelectItem]) -> Plan:
        there: dict[str, _SelectItem] = {}
        for each in items:
            self.statement.check_name(each.place, "column", each.name)
            first = there.setdefault(each.name.lower(), each)
            if first is not each:
                raise self._twice(first, each)
        outputs = tuple(Output(prefix + each.name, each.expr) for each in items)
        self._check_hidden(plan, outputs, items)
        return Projection(plan, outputs)

    def _check_hidden(self, plan: Plan, outputs: Sequence[Output], items: Sequence[_SelectItem]) -> None:
        """Refuse names of carried key columns: of windows, and of constants that are grouped by."""
        listed = {each.expr.name for each in outputs if isinstance(each.expr, Ref)}
        carried = {name.lower(): name for name in plan.key if name not in listed}
        for output, each in zip(outputs, items, strict=True):
            if output.name.lower() in carried:
                raise self.text.mistake(
                    each.place,
                    f"{each.name} is the name of a column that tells the results apart",
                    "it is carried along, whether SELECT lists it or not",
                    f"list {each.name} itself, or take another name",
                )

    def _twice(self, first: _SelectItem, second: _SelectItem) -> Exception:
        both = " and ".join(expr_sql(each.expr) for each in (first, second))
        return self.text.mistake(
            second.place,
            f"the output name {second.name} is there twice",
            f"{both} would not be told apart" if first.expr != second.expr else "columns are told apart by their names",
            f"leave one out, or give it another name: expression AS {second.name}_2",
        )


@dataclass(frozen=True)
class _SelectItem:
    """A column of a SELECT."""

    place: exp.Expression
    name: str
    expr: Expr


def _is_grouped(node: exp.Select) -> bool:
    clauses = (node.args.get("group"), node.args.get("having"))
    return any(each is not None for each in clauses) or any(
        is_aggregate(part) for each in node.expressions for part in each.walk()
    )
