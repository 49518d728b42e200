"""A plan as text of the language.

What lowering makes is printed so that it is read as the very same plan. Rewritten plans have shapes that no text is
lowered to: there a part of FROM becomes a SELECT in brackets, with names made up where columns have none. What has no
text at all (the columns that a scan leaves out, windows that are early, the order of a negation's rows) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from errata.language.expr import Expr, Ref, conjunction
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan
from errata.language.plan import walk as nodes
from errata.language.tree import is_timed, span
from errata.language.writing.shown import Part, Shown
from errata.language.writing.words import distinct_name, is_name, quoted

_WIDTH = 100
_INDENT = "  "


def to_sql(plan: Plan) -> str:
    """The plan as a query, a clause a line."""
    return "\n".join(_Printer(plan).query(plan, _outputs(plan)))


def _alias_of(plan: Plan) -> str | None:
    """The one alias that all visible columns have before them, if the rest is a name."""
    split = [each.name.partition(".") for each in plan.visible]
    aliases = {alias for alias, dot, rest in split if dot and is_name(alias) and is_name(rest)}
    return aliases.pop() if len(aliases) == 1 and all(is_name(rest) for _, _, rest in split) else None


def _outputs(plan: Plan) -> dict[str, str]:
    """What each visible column is called where the plan is a query."""
    alias = _alias_of(plan)
    found: dict[str, str] = {}
    for each in plan.visible:
        name = each.name if alias is None else each.name[len(alias) + 1 :]
        taken = found.values()
        plain = is_name(name) and name.lower() not in {other.lower() for other in taken}
        found[each.name] = name if plain else distinct_name(name, taken)
    return found


def _is_query(plan: Plan) -> bool:
    """Whether it is a query's plan, and not that of a part of FROM."""
    match plan:
        case Distinct() | Intersect() | Union() | Project():
            return True
        case Negation():
            return _is_except(plan)
    return False


def _is_except(plan: Negation) -> bool:
    """Whether it is an EXCEPT ALL: of two queries, on all columns, which are called by one alias or none."""
    sides = (plan.left, plan.right)
    if not all(_is_query(each) for each in sides) or _alias_of(plan.left) != _alias_of(plan.right):
        return False
    columns = zip(*([each.name for each in side.visible] for side in sides), strict=False)
    return plan.columns == tuple(columns) and len(plan.left.visible) == len(plan.right.visible)


class _Printer:
    """Prints one plan; knows which names are taken in it."""

    def __init__(self, plan: Plan) -> None:
        self.taken = {each.name.partition(".")[0].lower() for node in nodes(plan) for each in node.fields}

    # queries

    def query(self, plan: Plan, names: Mapping[str, str]) -> list[str]:
        """The plan as a query whose columns are called so."""
        match plan:
            case Distinct(input=Union(branches=branches)):
                words = ["UNION ALL"] * (len(branches) - 2) + ["UNION"]
                return self._set(branches, words, names)
            case Distinct():
                return self._select(plan.input, names, "SELECT DISTINCT")
            case Union(branches=branches):
                return self._set(branches, ["UNION ALL"] * (len(branches) - 1), names)
            case Intersect():
                return self._set(plan.inputs, ["INTERSECT"], names)
            case Negation() if _is_except(plan):
                return self._set(plan.inputs, ["EXCEPT ALL"], names)
        return self._select(plan, names, "SELECT")

    def _set(self, branches: Sequence[Plan], words: Sequence[str], names: Mapping[str, str]) -> list[str]:
        lines: list[str] = []
        for number, branch in enumerate(branches):
            lines += [words[number - 1]] if number else []
            printed = self.query(branch, _outputs(branch) if number else names)
            lines += printed if _is_select(branch) else _bracketed(printed)
        return lines

    # SELECT

    def _select(self, plan: Plan, names: Mapping[str, str], word: str) -> list[str]:
        below = plan.input if isinstance(plan, Project) else plan
        exprs = {each.name: each.expr for each in plan.outputs} if isinstance(plan, Project) else _columns(plan)
        having, grouped = _filtered(below)
        if isinstance(grouped, Group):
            where, joined = _filtered(grouped.input)
        else:
            where, joined, having = having, grouped, None
        begin, parts = self._from(joined)
        shown = Shown(parts, grouped if isinstance(grouped, Group) else None)
        items = [_item(shown, exprs[name], output) for name, output in names.items()]
        lines = [*_listed(word, items), *begin]
        lines += [] if where is None else [f"WHERE {shown.below(where)}"]
        lines += shown.group_by()
        if shown.is_unseen([*exprs.values(), *([] if having is None else [having])]):
            # Without an aggregate it would be no group: a group is there as long as it has rows.
            return [*lines, "HAVING count(*) > 0"]
        return lines if having is None else [*lines, f"HAVING {shown.over(having)}"]

    # FROM

    def _from(self, plan: Plan) -> tuple[list[str], list[Part]]:
        """FROM and the joins, and the parts."""
        joins: list[Join | RelationJoin] = []
        while isinstance(plan, Join | RelationJoin):
            joins.append(plan)
            plan = plan.left
        parts = [self._part(plan)]
        lines = _begun("FROM", parts[0].lines)
        for join in reversed(joins):
            part = self._part(join.right)
            parts.append(part)
            word = "CROSS JOIN" if join.condition is None else "JOIN"
            lines += _begun(word, part.lines)
            if join.condition is not None:
                lines[-1] += f" ON {Shown(parts, None).below(join.condition)}"
        return lines, parts

    def _part(self, plan: Plan) -> Part:
        alias = _alias_of(plan)
        if alias is None:
            alias = distinct_name("q", self.taken)
            self.taken.add(alias)
        lines = self._argument(plan)
        if lines != [quoted(alias)]:
            lines = [*lines[:-1], f"{lines[-1]} AS {quoted(alias)}"]
        return Part(lines, alias, plan, _outputs(plan))

    def _argument(self, plan: Plan) -> list[str]:
        """What FROM reads, without the alias: a name, a table function, or a SELECT in brackets."""
        match plan:
            case Scan():
                return [quoted(plan.source.name)]
            case Sliding():
                size = span(plan.span, timed=is_timed(plan))
                return self._function("sliding", [plan.input], f"'{size}'" if is_timed(plan) else size)
            case SlidingRows():
                return self._function("sliding_rows", [plan.input], str(plan.rows))
            case Negation() if not _is_except(plan) and (columns := _negated(plan)) is not None:
                return self._function("negation", plan.inputs, ", ".join(columns))
            case Negation() if not _is_except(plan):
                # The right has other names for the columns: it gets those of the left.
                return self._renamed(plan)
        return _bracketed(self.query(plan, _outputs(plan)))

    def _function(self, name: str, inputs: Sequence[Plan], last: str) -> list[str]:
        return _call(name, [self._argument(each) for each in inputs], last)

    def _renamed(self, plan: Negation) -> list[str]:
        names = _outputs(plan.left)
        outputs = {right: names[left] for left, right in plan.columns}
        for each in plan.right.visible:
            if each.name not in outputs:
                outputs[each.name] = distinct_name(each.name, outputs.values())
        sides = [_bracketed(self.query(plan.left, names)), _bracketed(self.query(plan.right, outputs))]
        return _call("negation", sides, ", ".join(f"'{names[left]}'" for left, _ in plan.columns))


def _is_select(plan: Plan) -> bool:
    return isinstance(plan, Project) or (isinstance(plan, Distinct) and not isinstance(plan.input, Union))


def _columns(plan: Plan) -> dict[str, Expr]:
    return {each.name: Ref(each.name, each.type) for each in plan.visible}


def _filtered(plan: Plan) -> tuple[Expr | None, Plan]:
    """The condition of filters above one another, and what they are above of."""
    parts: list[Expr] = []
    while isinstance(plan, Filter):
        parts.insert(0, plan.predicate)
        plan = plan.input
    return conjunction(parts), plan


def _negated(plan: Negation) -> list[str] | None:
    """The columns of a negation as its text names them, if both sides call them alike."""
    aliases = (_alias_of(plan.left), _alias_of(plan.right))
    if None in aliases:
        return None
    pairs = [(left.partition(".")[2], right.partition(".")[2]) for left, right in plan.columns]
    return [f"'{left}'" for left, _ in pairs] if all(left.lower() == right.lower() for left, right in pairs) else None


# text


def _bracketed(lines: Sequence[str]) -> list[str]:
    return ["(", *(_INDENT + each for each in lines), ")"]


def _begun(word: str, lines: Sequence[str]) -> list[str]:
    return [f"{word} {lines[0]}", *lines[1:]]


def _call(name: str, arguments: Sequence[Sequence[str]], last: str) -> list[str]:
    lines = [f"{name}("]
    for each in arguments:
        lines[-1] += each[0]
        lines += each[1:]
        lines[-1] += ", "
    lines[-1] += f"{last})"
    return lines


def _listed(word: str, items: Sequence[str]) -> list[str]:
    line = f"{word} {', '.join(items)}"
    if len(line) <= _WIDTH or len(items) == 1:
        return [line]
    return [word, *(f"{_INDENT}{each}," for each in items[:-1]), f"{_INDENT}{items[-1]}"]


def _item(shown: Shown, expr: Expr, name: str) -> str:
    text = shown.over(expr)
    own = shown.own.get(expr.name) if isinstance(expr, Ref) else None
    return text if own == name else f"{text} AS {quoted(name)}"
