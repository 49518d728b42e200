"""Outer joins, rewritten to a join, a negation and a union; and the copy of a part of a plan that this needs.

    left outer join           L LEFT JOIN R ON c  at an instant
      project                 the pairs of rows that count then,
        join on c                 by the join of L and R
          L
          R
      project  L, NULLs       and the rows of L that have no partner then, with NULLs for the columns of R:
        negation on key of L      each row of L, except those
          L                       whose key is
          project  key of L       among the keys of
            join on c             the rows of L that have a partner
              L
              R

The negation removes one row of its left for each row of equal value on its right. At an instant a key occurs once in L,
so one partner is enough to remove the row, and further ones do no harm: here it is NOT EXISTS, for any condition, also
with rows that look alike, and where NULL has no partner. Beside the key are the columns of L that the condition
compares with columns of R: they follow from the key, and lineage uses them to find which rows of L a row of R can
touch.

Where the condition equates all columns of L's key with columns of R, and otherwise concerns R alone, the right of the
negation is R itself, and L is not read a third time.

The same rows cannot be the same nodes in two places of a plan: column names are unique within a plan, and lineage is
kept for each scan. So they are copied, and every scan of the copy is read again. L is read three times and R twice for
each side whose rows are kept without a partner, so that n outer joins one after another read 3^n inputs and more. A
query over another query reads its results instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Protocol

from errata.language.expr import (
    BOOLEAN,
    EQUAL,
    INT,
    SAME,
    Call,
    Expr,
    Lit,
    Ref,
    conjunction,
    conjuncts,
    refs,
    transform_expr,
)
from errata.language.functions import never_fails
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError
from errata.model.columns import FLOATING_KINDS


class NameSource(Protocol):
    """Gives names that nothing else in the statement has."""

    def alias(self, wanted: str, /) -> str:
        """The wanted name of a part of FROM, or the next free one like it."""

    def next_window(self) -> int:
        """The number of one more group with a window."""

    def next_union(self) -> int:
        """The number of one more union."""


@dataclass
class PlanCopy:
    """One copy of a part of a plan, and the names of its columns."""

    names: NameSource
    columns: dict[str, str] = field(default_factory=dict)
    """By the name of a column of the part: its name in the copy."""
    _aliases: dict[str, str] = field(default_factory=dict)

    def copy(self, plan: Plan) -> Plan:
        """The copy of the node and of all below it."""
        inputs = [self.copy(each) for each in plan.inputs]
        copied = self._copy_node(plan, inputs)
        self.columns.update(
            zip((each.name for each in plan.fields), (each.name for each in copied.fields), strict=True)
        )
        return copied

    def expr(self, expr: Expr) -> Expr:
        """An expression over the part's columns, rewritten to those of the copy."""
        return transform_expr(expr, self._renamed)

    def _renamed(self, expr: Expr) -> Expr:
        return Ref(self.columns[expr.name], expr.type) if isinstance(expr, Ref) else expr

    def _optional_expr(self, expr: Expr | None) -> Expr | None:
        return None if expr is None else self.expr(expr)

    def _alias(self, alias: str) -> str:
        if alias not in self._aliases:
            self._aliases[alias] = self.names.alias(alias)
        return self._aliases[alias]

    def _output(self, output: Output) -> Output:
        """A column that is passed on unchanged keeps its name in the copy; others are named after their part of
        FROM."""
        if isinstance(output.expr, Ref) and output.expr.name == output.name:
            return Output(self.columns[output.name], self.expr(output.expr))
        alias, dot, rest = output.name.partition(".")
        known = self.columns.get(output.name)
        name = known or (f"{self._alias(alias)}.{rest}" if dot else output.name)
        return Output(name, self.expr(output.expr))

    def _copy_node(self, plan: Plan, inputs: list[Plan]) -> Plan:
        copied: Plan
        match plan:
            case Scan():
                copied = replace(plan, alias=self._alias(plan.alias))
            case Filter():
                copied = Filter(inputs[0], self.expr(plan.predicate))
            case Projection():
                copied = Projection(inputs[0], tuple(map(self._output, plan.outputs)))
            case Join() | RelationJoin():
                copied = type(plan)(inputs[0], inputs[1], self._optional_expr(plan.condition))
            case Union():
                copied = replace(plan, branches=tuple(inputs), number=self.names.next_union())
            case Negation():
                copied = self._negation(plan, inputs)
            case Group():
                copied = self._group(plan, inputs[0])
            case Sliding() | SlidingRows() | Distinct() | Intersect():
                copied = plan.with_inputs(inputs)
            case _:
                raise PlanError(f"how {type(plan).__name__} is read once more is not known")
        return copied

    def _negation(self, plan: Negation, inputs: list[Plan]) -> Negation:
        pairs = tuple((self.columns[left], self.columns[right]) for left, right in plan.columns)
        rank = None if plan.rank is None else tuple(self.columns[name] for name in plan.rank)
        return Negation(inputs[0], inputs[1], pairs, rank)

    def _group(self, plan: Group, below: Plan) -> Group:
        by = tuple(map(self.expr, plan.by))
        aggregates = tuple(replace(each, argument=self._optional_expr(each.argument)) for each in plan.aggregates)
        number = plan.number if plan.window is None else self.names.next_window()
        return replace(plan, input=below, by=by, aggregates=aggregates, number=number)


PARTNERS = "_partners"
"""The alias of the columns on the right of the negation."""
PairJoin = Join | RelationJoin


class OuterSide(StrEnum):
    """The sides whose rows are kept without a partner."""

    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def places(self) -> tuple[int, ...]:
        """The places of these inputs: 0 the left one, 1 the right one."""
        return {OuterSide.LEFT: (0,), OuterSide.RIGHT: (1,), OuterSide.FULL: (0, 1)}[self]


@dataclass(frozen=True)
class OuterJoin(Union):
    """The union of a join's pairs and of rows without a partner. A result's key is the branch and the keys of both
    sides; those of the partner that is missing are NULL."""

    side: OuterSide = OuterSide.LEFT

    @cached_property
    def key_positions(self) -> tuple[int, ...] | None:
        """Positions of the keys of both sides. In the branches of rows without a partner some of them are constants.
        None where a rewriting has given a branch another key: each branch then has hidden key columns of its own."""
        visible = [[each.name for each in branch.visible] for branch in self.branches]
        keys = [
            [names.index(name) for name in branch.key] if set(branch.key) <= set(names) else None
            for names, branch in zip(visible, self.branches, strict=True)
        ]
        pairs, *rest = keys
        if pairs is None or any(each is None or not set(each) <= set(pairs) for each in rest):
            return None
        return tuple(pairs)


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column of USING in a FULL JOIN: that of the side that has a row."""

    name: str
    left: Expr
    right: Expr


def outer_join(pairs: PairJoin, side: OuterSide, names: NameSource, merged: Sequence[MergedColumn] = ()) -> OuterJoin:
    """The outer join whose pairs are those of a join. Its columns are all of the join's, and `merged` after them."""
    if isinstance(pairs, RelationJoin) and side is not OuterSide.LEFT:
        raise PlanError("rows of a relation do not stand alone", where="OuterJoin")
    shown = [Output(each.name, pairs.ref(each.name)) for each in pairs.fields]
    whole = Projection(pairs, (*shown, *(Output(each.name, each.left) for each in merged)))
    number = names.next_union()
    alone = [_unmatched_rows(pairs, place, names, merged) for place in side.places]
    return OuterJoin((whole, *alone), number, side)


def _unmatched_rows(pairs: PairJoin, place: int, names: NameSource, merged: Sequence[MergedColumn]) -> Projection:
    """Rows of one side without a partner, with NULLs for the columns of the other."""
    copy = PlanCopy(names)
    alone = _rows_without_partner(pairs, place, copy, names)
    outputs = [
        Output(copy.columns[each.name], alone.ref(copy.columns[each.name]))
        if each.name in pairs.inputs[place].types
        else Output(each.name, Lit(None, each.type))
        for each in pairs.fields
    ]
    own = [Output(each.name, copy.expr(each.right if place else each.left)) for each in merged]
    return Projection(alone, (*outputs, *own))


def _rows_without_partner(pairs: PairJoin, place: int, copy: PlanCopy, names: NameSource) -> Plan:
    """The rows of a side, as the copy calls their columns, that are in no pair."""
    side = pairs.inputs[place]
    alone = copy.copy(side)
    prefix = names.alias(PARTNERS)
    if (compared := _only_equalities(pairs, place)) is not None:
        return _negate_matched(
            alone, _partner_values(pairs, place, compared, prefix, names), [copy.columns[each] for each in compared]
        )
    other = PlanCopy(names)
    partners = other.copy(pairs)
    told = tuple(dict.fromkeys((*side.key, *_comparable_columns(pairs, place))))
    if told:
        outputs = _prefixed_columns(prefix, {each: partners.ref(other.columns[each]) for each in told})
        return _negate_matched(alone, Projection(partners, outputs), [copy.columns[each] for each in told])
    # Without a key there is one row at most: any partner is that row's.
    one = Output(f"{prefix}.any", Lit(1, INT))
    marked = Projection(alone, (*(Output(each.name, alone.ref(each.name)) for each in alone.fields), one))
    return Negation(
        marked, Projection(partners, (Output(f"{prefix}.partner", one.expr),)), ((one.name, f"{prefix}.partner"),)
    )


def _negate_matched(left: Plan, right: Projection, columns: Sequence[str]) -> Negation:
    return Negation(left, right, tuple(zip(columns, (each.name for each in right.outputs), strict=True)))


def _prefixed_columns(prefix: str, columns: Mapping[str, Expr]) -> tuple[Output, ...]:
    """The columns, named by the prefix and their own names."""
    found: dict[str, Output] = {}
    for number, (called, expr) in enumerate(columns.items()):
        name = called.rpartition(".")[2]
        name = f"{prefix}.{name if name.isidentifier() else 'column'}"
        name = name if name not in found else f"{name}_{number + 1}"
        found[name] = Output(name, expr)
    return tuple(found.values())


def _side_equalities(pairs: PairJoin, place: int) -> Iterator[tuple[Ref, Ref, Call]]:
    """The columns of the side that the condition equates with columns of the other; each with that column and the part
    of the condition."""
    side, other = pairs.inputs[place].types, pairs.inputs[1 - place].types
    for part in conjuncts(pairs.condition):
        if isinstance(part, Call) and part.name in (EQUAL, SAME):
            for mine, theirs in (part.args, part.args[::-1]):
                if not isinstance(mine, Ref) or not isinstance(theirs, Ref) or mine.type != theirs.type:
                    continue
                if mine.name in side and theirs.name in other:
                    yield mine, theirs, part


def _comparable_columns(pairs: PairJoin, place: int) -> list[str]:
    """The columns of the side whose values lineage can follow to the other."""
    return [mine.name for mine, _, _ in _side_equalities(pairs, place) if mine.type.kind not in FLOATING_KINDS]


def _only_equalities(pairs: PairJoin, place: int) -> dict[str, tuple[Ref, Call]] | None:
    """By column of the side: the column that equals it. None where more than equalities decides whether there is a
    partner, or where rows of the side can be equal in these columns."""
    found: dict[str, tuple[Ref, Call]] = {}
    for mine, theirs, part in _side_equalities(pairs, place):
        found.setdefault(mine.name, (theirs, part))
    if isinstance(pairs, RelationJoin) or not found or not set(pairs.inputs[place].key) <= found.keys():
        return None
    rest = [each for each in conjuncts(pairs.condition) if each not in [part for _, part in found.values()]]
    about_other = all(refs(each) <= pairs.inputs[1 - place].types.keys() and never_fails(each) for each in rest)
    return found if about_other else None


def _partner_values(
    pairs: PairJoin, place: int, compared: Mapping[str, tuple[Ref, Call]], prefix: str, names: NameSource
) -> Projection:
    """The values that rows of the other side have in the compared columns; NULLs only where a NULL can be a partner."""
    copy = PlanCopy(names)
    other = copy.copy(pairs.inputs[1 - place])
    said = [part for _, part in compared.values()]
    parts = [copy.expr(each) for each in conjuncts(pairs.condition) if each not in said]
    for theirs, part in compared.values():
        if part.name == EQUAL:
            parts.append(Call("is_not_null", (copy.expr(theirs),), BOOLEAN))
    predicate = conjunction(parts)
    filtered = other if predicate is None else Filter(other, predicate)
    return Projection(
        filtered, _prefixed_columns(prefix, {mine: copy.expr(theirs) for mine, (theirs, _) in compared.items()})
    )
