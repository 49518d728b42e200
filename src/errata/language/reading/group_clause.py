"""GROUP BY: groups, their windows, and the expressions that SELECT and HAVING may use over them.

Grouped expressions, window columns and aggregates of the SELECT become columns of one `Group`; other expressions over
its rows are made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import assert_never

from sqlglot import exp

from errata.language.expr import Call, Case, Cast, Expr, Lit, Ref, expr_sql, refs
from errata.language.nodes import (
    WINDOW_END,
    WINDOW_NUMBER,
    WINDOW_START,
    Aggregate,
    Group,
    RowWindow,
    TimeWindow,
)
from errata.language.plan import Field, Plan
from errata.language.reading.expressions import ExpressionReader, is_aggregate, lower_aggregate
from errata.language.reading.inputs import lower_span, lower_whole_number, own_time_obstacle
from errata.language.reading.mistakes import SqlText
from errata.language.reading.scope import (
    SelectScope,
    StatementScope,
    is_call_of,
    own_time_argument,
    own_time_mistake,
    short_name,
)
from errata.language.times import OwnTime, offset_of, own_time_expr, row_times

MAX_WINDOWS_PER_ROW = 100_000
"""Windows that a row can be in, at most."""
_WINDOW_COLUMNS = {"start": WINDOW_START, "end": WINDOW_END, "no": WINDOW_NUMBER}


def expressions_over(statement: StatementScope, scope: SelectScope, plan: Plan) -> ExpressionReader:
    """Reads expressions over the rows of a node: WHERE, GROUP BY and the arguments of aggregates."""
    text = statement.text

    def special(node: exp.Expression) -> Expr | None:
        if is_call_of(node, "event_time"):
            return _own_time_expr(text, node, scope, plan)
        for name in ("window", "row_window"):
            if is_call_of(node, name):
                raise text.mistake(
                    node,
                    f"{name}(...) stands in GROUP BY only",
                    how="elsewhere write window.start, window.end, window.no",
                )
        return None

    return ExpressionReader(text, scope.column, special)


def _own_time_expr(text: SqlText, node: exp.Expression, scope: SelectScope, plan: Plan) -> Expr:
    if node.expressions:
        return own_time_argument(text, node, scope)
    own = own_time_expr(plan)
    if own is None:
        raise own_time_mistake(text, node, plan)
    return own


@dataclass
class GroupClause:
    """The groups of one SELECT, and the aggregates that it and its HAVING ask for."""

    statement: StatementScope
    scope: SelectScope
    input: Plan
    aliases: dict[str, exp.Expression]
    """The expressions that SELECT names, by their names in lower case; GROUP BY and HAVING may use them."""
    number: int = 1
    early: bool = False
    by: dict[Expr, None] = field(default_factory=dict)
    window: TimeWindow | RowWindow | None = None
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    _places: dict[str, exp.Expression] = field(default_factory=dict)
    _shapes: set[tuple[type, str]] = field(default_factory=set)

    @property
    def text(self) -> SqlText:
        return self.statement.text

    def __post_init__(self) -> None:
        self._below = expressions_over(self.statement, self.scope, self.input)
        self._above = ExpressionReader(self.text, self._column, self._special)

    def plan(self) -> Group:
        """The group, once all its aggregates are known."""
        aggregates, timed = tuple(self.aggregates.values()), self.statement.timed
        return Group(self.input, tuple(self.by), aggregates, self.window, timed, self.number)

    @cached_property
    def window_fields(self) -> tuple[Field, ...]:
        """The columns of the window; valid when GROUP BY has been read."""
        return replace(self.plan(), aggregates=()).window_fields

    @cached_property
    def window_names(self) -> dict[str, str]:
        """The text's names of the window's columns, whatever their names in the plan are."""
        names = (WINDOW_NUMBER,) if isinstance(self.window, RowWindow) else (WINDOW_START, WINDOW_END)
        return dict(zip((each.name for each in self.window_fields), names, strict=False))

    # grouped expressions

    def group_by(self, nodes: Sequence[exp.Expression]) -> None:
        """Read GROUP BY."""
        for node in nodes:
            if is_window_call(node):
                self._read_window(node)
            else:
                self._read_by(node)

    def _read_by(self, node: exp.Expression) -> None:
        if isinstance(node, exp.Literal) and not node.is_string:
            raise self.text.mistake(
                node, "GROUP BY by position is not part of the language", None, "name the column or the expression"
            )
        expr = self._below.lower(self._named(node))
        if not refs(expr):
            return  # A constant makes no groups.
        self.by[expr] = None
        self._shapes.add(_expression_shape(expr))

    def _named(self, node: exp.Expression) -> exp.Expression:
        """The expression of that name in SELECT, if no column has the name."""
        if isinstance(node, exp.Column) and not node.table and not self.scope.has_unqualified(node.name):
            return self.aliases.get(node.name.lower(), node)
        return node

    def _read_window(self, node: exp.Expression) -> None:
        if self.window is not None:
            raise self.text.mistake(
                node,
                "GROUP BY has one window at most",
                None,
                "write each window as a query, and JOIN them ON window_end",
            )
        rows = is_call_of(node, "row_window")
        self._check_happened(node, rows=rows)
        self.window = self._row_window(node) if rows else self._time_window(node)

    def _check_happened(self, node: exp.Expression, *, rows: bool) -> None:
        times = row_times(self.input)
        if not times.happened:
            how = "group without a window, or by a window of a query below this one"
            raise self.text.mistake(node, "a window is over what happened", own_time_obstacle(self.input), how)
        if rows and not times.for_ever:
            raise self.text.mistake(
                node,
                "a window over rows is over what does not expire",
                "rows that expire would change the number of all that follow",
                "leave out sliding(...), or take window(time, '5 minutes')",
            )

    def _time_window(self, node: exp.Expression) -> TimeWindow:
        arguments = node.expressions
        if not 2 <= len(arguments) <= 3:
            raise self.text.mistake(
                node, "window takes the event time, a size and perhaps a slide", how="write window(time, '5 minutes')"
            )
        self._check_event_time(arguments[0])
        size, *slides = [lower_span(self.statement, each, "a window") for each in arguments[1:]]
        slide = slides[0] if slides else size
        self._check_step(node, size, slide)
        return TimeWindow(size, slide, self.early)

    def _check_event_time(self, node: exp.Expression) -> None:
        if is_call_of(node, "event_time") and not node.expressions:
            return
        expr = self._below.lower(node)
        if offset_of(expr, row_times(self.input)) != 0:
            own = own_time_expr(self.input)
            there = f"event time is {expr_sql(own)} here" if own in self.scope.star else "event time is event_time()"
            raise self.text.mistake(
                node, "a window is over event time, and this is another", there, "write window(event_time(), ...)"
            )

    def _row_window(self, node: exp.Expression) -> RowWindow:
        if not 1 <= len(node.expressions) <= 2:
            raise self.text.mistake(node, "row_window takes a size and perhaps a step", how="write row_window(10, 1)")
        size, *steps = [lower_whole_number(self.text, each, "a number of rows") for each in node.expressions]
        step = steps[0] if steps else size
        self._check_step(node, size, step)
        return RowWindow(size, step)

    def _check_step(self, node: exp.Expression, size: int, step: int) -> None:
        last = node.expressions[-1]
        if step > size:
            raise self.text.mistake(
                last,
                "windows further apart than they are long",
                "rows between two windows would be lost",
                "let them begin as far apart as they are long at most",
            )
        if size > step * MAX_WINDOWS_PER_ROW:
            raise self.text.mistake(
                last,
                f"each row would be in {-(-size // step):,} windows",
                f"each of them is a result; {MAX_WINDOWS_PER_ROW:,} are the most",
                "let the windows begin further apart, or take sliding(...) without a window",
            )

    # expressions over groups

    def lower(self, node: exp.Expression) -> Expr:
        """An expression over the group's columns: grouped expressions, window columns, aggregates."""
        return self._over_group(self._above.lower(node))

    def lower_having(self, node: exp.Expression) -> Expr:
        """A condition over them, where SELECT's names can be used."""
        return self._over_group(ExpressionReader(self.text, self._column, self._special_having).condition(node))

    def _special_having(self, node: exp.Expression) -> Expr | None:
        named = self._named(node) if self._window_column(node) is None else node
        return self._special(node) if named is node else self.lower(named)

    def _special(self, node: exp.Expression) -> Expr | None:
        if is_aggregate(node):
            aggregate = lower_aggregate(self.text, node, self._below, self.input)
            self.aggregates.setdefault(aggregate.name, aggregate)
            return Ref(aggregate.name, aggregate.type)
        if is_call_of(node, "event_time"):
            return self._part_time(node) if node.expressions else self._own_time(node)
        return self._window_column(node)

    def _window_column(self, node: exp.Expression) -> Ref | None:
        """A column of the group's window, by either of its names."""
        if not isinstance(node, exp.Column) or node.args.get("db") is not None:
            return None
        name = node.name.lower()
        wanted = _WINDOW_COLUMNS.get(name) if node.table.lower() == "window" else None if node.table else name
        found = next((each for each in self.window_fields if self.window_names[each.name] == wanted), None)
        if found is None:
            return None
        if not node.table and self.scope.has_unqualified(name):
            short = next(short for short, long in _WINDOW_COLUMNS.items() if long == name)
            raise self.text.mistake(
                node,
                f"{name} can be a column of the window, or of FROM",
                how=f"write window.{short}, or the column with the name of its part of FROM before it",
            )
        return Ref(found.name, found.type)

    def _column(self, node: exp.Column) -> Ref:
        found = self.scope.column(node)
        self._places.setdefault(found.name, node)
        return found

    def _part_time(self, node: exp.Expression) -> Expr:
        expr = self._below.lower(node)
        for name in refs(expr):
            self._places.setdefault(name, node)
        return expr

    def _own_time(self, node: exp.Expression) -> Expr:
        """The own time of the rows below if they are grouped by it, else that of the group's rows."""
        below = own_time_expr(self.input)
        if below is not None and below in self.by:
            return Ref(expr_sql(below), below.type)
        if isinstance(self.window, RowWindow) and below is not None:
            last = Aggregate("max", below, below.type)
            self.aggregates.setdefault(last.name, last)
            return Ref(last.name, last.type)
        own = own_time_expr(self.plan())
        if own is None:
            why = "a group without a window holds until the next row comes: it did not happen"
            if self.window is not None:
                why = "its windows are early or over rows that expire: what they yield changes while it holds"
            raise self.text.mistake(node, "a group has no event_time() here", why, "write max(event_time())")
        return own

    def _over_group(self, expr: Expr) -> Expr:
        """The expression with columns of the group in place of grouped expressions, the outermost first."""
        if _expression_shape(expr) in self._shapes and expr in self.by:
            return Ref(expr_sql(expr), expr.type)
        match expr:
            case Ref():
                self._check_of_group(expr)
                return expr
            case Lit():
                return expr
            case Call():
                return replace(expr, args=tuple(map(self._over_group, expr.args)))
            case Cast():
                return replace(expr, arg=self._over_group(expr.arg))
            case Case():
                branches = tuple((self._over_group(when), self._over_group(then)) for when, then in expr.branches)
                otherwise = None if expr.otherwise is None else self._over_group(expr.otherwise)
                return replace(expr, branches=branches, otherwise=otherwise)
        assert_never(expr)

    def _check_of_group(self, ref: Ref) -> None:
        made = ref.name in self.aggregates or ref.name in self.window_names
        if made or any(expr_sql(each) == ref.name for each in self.by):
            return
        place = self._places.get(ref.name)
        aggregate = "max" if row_times(self.input).own is OwnTime.NONE else "first"
        raise self.text.mistake(
            0 if place is None else place,
            f"{short_name(ref)} is neither grouped by nor within an aggregate",
            "a group has many rows, each with a value of its own",
            f"add it to GROUP BY, or write {aggregate}({short_name(ref)})",
        )


def is_window_call(node: exp.Expression) -> bool:
    """Whether it is the window of a GROUP BY."""
    return is_call_of(node, "window") or is_call_of(node, "row_window")


def _expression_shape(expr: Expr) -> tuple[type, str]:
    """Expressions that are equal have equal shapes; most that are not have not."""
    return type(expr), expr.name if isinstance(expr, Ref | Call) else ""
