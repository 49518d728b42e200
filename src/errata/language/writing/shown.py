"""Expressions as the text of one SELECT writes them: columns by their parts of FROM, and what a group made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.language.expr import BIGINT, Call, Expr, Lit, Ref, refs, sql, transform, walk
from errata.language.nodes import Aggregate, Group, RowWindow, TimeWindow
from errata.language.plan import Plan
from errata.language.times import own_time, timing
from errata.language.tree import span
from errata.language.writing.words import quoted


@dataclass(frozen=True)
class Part:
    """A part of FROM as it is printed, and what the text calls its columns."""

    lines: list[str]
    alias: str
    plan: Plan
    columns: dict[str, str]


class Shown:
    """The names in one SELECT."""

    def __init__(self, parts: Sequence[Part], group: Group | None) -> None:
        self.group = group
        self.own = {name: output for part in parts for name, output in part.columns.items()}
        """What a column is called that SELECT lists without a name."""
        self._names = {
            name: f"{quoted(part.alias)}.{quoted(output)}" for part in parts for name, output in part.columns.items()
        }
        self._times = self._own_times(parts)
        self._by: dict[str, Expr] = {}
        if group is not None:
            self._over(group)

    def _own_times(self, parts: Sequence[Part]) -> dict[Expr, Ref]:
        """The parts' own times: what is said of columns that have no names in the text."""
        times: dict[Expr, Ref] = {}
        for part in parts:
            if (own := own_time(part.plan)) is not None:
                text = f"event_time({quoted(part.alias)})"
                self._names[text] = text
                times[own] = Ref(text, own.type)
        return times

    def _over(self, group: Group) -> None:
        self._by = {sql(expr): expr for expr in group.by}
        bare = {output.lower() for output in self.own.values()}
        shorts = ("no",) if isinstance(group.window, RowWindow) else ("start", "end")
        for each, short in zip(group.window_fields, shorts, strict=False):
            name = f"window_{short}"
            self.own[each.name] = name
            self._names[each.name] = f"window.{short}" if name in bare else name
        for aggregate in group.aggregates:
            self._names[aggregate.name] = self._aggregate(aggregate)

    def _aggregate(self, aggregate: Aggregate) -> str:
        inner = "*" if aggregate.argument is None else self.below(aggregate.argument)
        return f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{inner})"

    def below(self, expr: Expr) -> str:
        """An expression over what FROM has."""
        named = expr if self._is_told(expr) else transform(expr, lambda each: self._times.get(each, each))
        return sql(named, self._name)

    def over(self, expr: Expr) -> str:
        """An expression over the group, if there is one."""
        return self.below(transform(expr, self._grouped))

    def _grouped(self, expr: Expr) -> Expr:
        return self._by.get(expr.name, expr) if isinstance(expr, Ref) else expr

    def _is_told(self, expr: Expr) -> bool:
        """Whether its text alone tells it: columns that have names, and whole numbers of the type they are read as."""
        shifts = (each for each in walk(expr) if isinstance(each, Call) and each.name == "+")
        wide = (each for shift in shifts for each in shift.args if isinstance(each, Lit) and each.type == BIGINT)
        return refs(expr) <= self._names.keys() and next(wide, None) is None

    def _name(self, name: str) -> str:
        return self._names.get(name) or quoted(name)

    def group_by(self) -> list[str]:
        """The GROUP BY clause, if there is one."""
        if self.group is None:
            return []
        by = [f"({self.below(each)})" if isinstance(each, Lit) else self.below(each) for each in self.group.by]
        window = self._window(self.group)
        listed = [*by, *([] if window is None else [window])]
        return [f"GROUP BY {', '.join(listed)}"] if listed else []

    def is_unseen(self, exprs: Sequence[Expr]) -> bool:
        """Whether nothing in the text would tell that there is a group: no GROUP BY, and no aggregate."""
        if self.group is None or self.group_by():
            return False
        made = {each.name for each in self.group.aggregates}
        return not any(refs(expr) & made for expr in exprs)

    def _window(self, group: Group) -> str | None:
        match group.window:
            case TimeWindow(size=size, slide=slide):
                sizes = [span(each, timed=group.timed) for each in (size, slide)[: 1 + (slide != size)]]
                listed = [f"'{each}'" if group.timed else each for each in sizes]
                return f"window({self._event_time(group.input)}, {', '.join(listed)})"
            case RowWindow(size=size, step=step):
                return f"row_window({size})" if step == size else f"row_window({size}, {step})"
        return None

    def _event_time(self, plan: Plan) -> str:
        """A column that is the rows' own time, if one has a name."""
        named = [name for name, later in timing(plan).columns.items() if later == 0 and name in self.own]
        return self._names[min(named, key=lambda name: (len(name), name))] if named else "event_time()"
