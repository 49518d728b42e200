"""Outer joins, written with the operators that there are.

    left outer join           L LEFT JOIN R ON c  at an instant
      project                 the pairs of rows that count then,
        join on c                 by the join of L and R
          L
          R
      project  L, NULLs       and the rows of L that have no partner then, with NULLs for the columns of R:
        negation on key of L      each row of L, but for those
          L                       whose key is
          project  key of L       among the keys of
            join on c             the rows of L that have a partner
              L
              R

The negation removes one row of its left for each of equal value on its right. At an instant a key is there once in L,
so that one partner is enough to remove the row, and more do no harm: here it is NOT EXISTS, whatever the condition is,
with rows that look alike, and where NULL has no partner. Beside the key stand the columns of L that the condition
compares with columns of R: they follow from the key, and tell lineage which rows of L a row of R can touch.

Where the condition says that all columns of L's key are equal to columns of R, and else speaks of R alone, the right of
the negation is R itself, and L is not read a third time.

Cost: L is read three times and R twice for each side whose rows stand without a partner, so that n outer joins one
after another read 3^n inputs and more. A query over another one reads its results instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from errata.language.copies import Copy, Names
from errata.language.expr import BOOLEAN, EQUAL, INT, SAME, Call, Cast, Expr, Lit, Ref, conjunction, conjuncts, refs
from errata.language.functions import total
from errata.language.nodes import Filter, Join, Negation, Output, Project, RelationJoin, Union
from errata.language.plan import Plan, PlanError
from errata.model.columns import ColumnType, Kind

PARTNERS = "_partners"
"""The columns on the right of the negation are called by this."""
Pairs = Join | RelationJoin
_ROUNDED = (Kind.FLOAT, Kind.DOUBLE)


class Side(StrEnum):
    """Whose rows stand without a partner, too."""

    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def places(self) -> tuple[int, ...]:
        """The places of these inputs: 0 the left one, 1 the right one."""
        return {Side.LEFT: (0,), Side.RIGHT: (1,), Side.FULL: (0, 1)}[self]


@dataclass(frozen=True)
class OuterJoin(Union):
    """The union of a join's pairs and of rows without a partner. A result's key is the branch and the keys of both
    sides; those of the partner that is missing are NULL."""

    side: Side = Side.LEFT

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
class Merged:
    """A column of USING in a FULL JOIN: that of the side that is there."""

    name: str
    left: Expr
    right: Expr


def outer_join(pairs: Pairs, side: Side, names: Names, merged: Sequence[Merged] = ()) -> OuterJoin:
    """The outer join whose pairs are those of a join. Its columns are all of the join's, and `merged` after them."""
    if isinstance(pairs, RelationJoin) and side is not Side.LEFT:
        raise PlanError("rows of a relation do not stand alone", where="OuterJoin")
    shown = [Output(each.name, pairs.ref(each.name)) for each in pairs.fields]
    whole = Project(pairs, (*shown, *(Output(each.name, each.left) for each in merged)))
    number = names.next_union()
    alone = [_padded(pairs, place, names, merged) for place in side.places]
    return OuterJoin((whole, *alone), number, side)


def _padded(pairs: Pairs, place: int, names: Names, merged: Sequence[Merged]) -> Project:
    """Rows of one side without a partner, with NULLs for the columns of the other."""
    copy = Copy(names)
    alone = _without_partner(pairs, place, copy, names)
    outputs = [
        Output(copy.columns[each.name], alone.ref(copy.columns[each.name]))
        if each.name in pairs.inputs[place].types
        else Output(each.name, Lit(None, each.type))
        for each in pairs.fields
    ]
    own = [Output(each.name, copy.expr(each.right if place else each.left)) for each in merged]
    return Project(alone, (*outputs, *own))


def _without_partner(pairs: Pairs, place: int, copy: Copy, names: Names) -> Plan:
    """The rows of a side, as the copy calls their columns, that are in no pair."""
    side = pairs.inputs[place]
    alone = copy.of(side)
    prefix = names.alias(PARTNERS)
    if (compared := _compared_alone(pairs, place)) is not None:
        return _negation(
            alone, _values(pairs, place, compared, prefix, names), [copy.columns[each] for each in compared]
        )
    other = Copy(names)
    partners = other.of(pairs)
    told = tuple(dict.fromkeys((*side.key, *_compared(pairs, place))))
    if told:
        outputs = _called(prefix, {each: partners.ref(other.columns[each]) for each in told})
        return _negation(alone, Project(partners, outputs), [copy.columns[each] for each in told])
    # Without a key there is one row at most: any partner is that row's.
    one = Output(f"{prefix}.any", Lit(1, INT))
    marked = Project(alone, (*(Output(each.name, alone.ref(each.name)) for each in alone.fields), one))
    return Negation(
        marked, Project(partners, (Output(f"{prefix}.partner", one.expr),)), ((one.name, f"{prefix}.partner"),)
    )


def _negation(left: Plan, right: Project, columns: Sequence[str]) -> Negation:
    return Negation(left, right, tuple(zip(columns, (each.name for each in right.outputs), strict=True)))


def _called(prefix: str, columns: Mapping[str, Expr]) -> tuple[Output, ...]:
    """The columns, named by the prefix and what they were called: the keys."""
    found: dict[str, Output] = {}
    for number, (called, expr) in enumerate(columns.items()):
        name = called.rpartition(".")[2]
        name = f"{prefix}.{name if name.isidentifier() else 'column'}"
        name = name if name not in found else f"{name}_{number + 1}"
        found[name] = Output(name, expr)
    return tuple(found.values())


def _equalities(pairs: Pairs, place: int) -> Iterator[tuple[Ref, Ref, Call]]:
    """The columns of the side that the condition says are equal to columns of the other, each with that one and the
    part of the condition."""
    side, other = pairs.inputs[place].types, pairs.inputs[1 - place].types
    for part in conjuncts(pairs.condition):
        if isinstance(part, Call) and part.name in (EQUAL, SAME):
            for mine, theirs in (part.args, part.args[::-1]):
                if not isinstance(mine, Ref) or not isinstance(theirs, Ref) or mine.type != theirs.type:
                    continue
                if mine.name in side and theirs.name in other:
                    yield mine, theirs, part


def _compared(pairs: Pairs, place: int) -> list[str]:
    """The columns of the side whose values lineage can follow to the other."""
    return [mine.name for mine, _, _ in _equalities(pairs, place) if mine.type.kind not in _ROUNDED]


def _compared_alone(pairs: Pairs, place: int) -> dict[str, tuple[Ref, Call]] | None:
    """By column of the side: the one that it is equal to. None where more than that tells whether there is a partner,
    or where rows of the side can be equal in these columns."""
    found: dict[str, tuple[Ref, Call]] = {}
    for mine, theirs, part in _equalities(pairs, place):
        found.setdefault(mine.name, (theirs, part))
    if isinstance(pairs, RelationJoin) or not found or not set(pairs.inputs[place].key) <= found.keys():
        return None
    rest = [each for each in conjuncts(pairs.condition) if each not in [part for _, part in found.values()]]
    about_other = all(refs(each) <= pairs.inputs[1 - place].types.keys() and total(each) for each in rest)
    return found if about_other else None


def _values(pairs: Pairs, place: int, compared: Mapping[str, tuple[Ref, Call]], prefix: str, names: Names) -> Project:
    """What rows of the other side are equal to; of NULLs only those that a NULL is a partner of."""
    copy = Copy(names)
    other = copy.of(pairs.inputs[1 - place])
    said = [part for _, part in compared.values()]
    parts = [copy.expr(each) for each in conjuncts(pairs.condition) if each not in said]
    for theirs, part in compared.values():
        if part.name == EQUAL:
            parts.append(Call("is_not_null", (copy.expr(theirs),), BOOLEAN))
    predicate = conjunction(parts)
    filtered = other if predicate is None else Filter(other, predicate)
    return Project(filtered, _called(prefix, {mine: copy.expr(theirs) for mine, (theirs, _) in compared.items()}))


@dataclass
class _Again:
    """Names for a second making of what is there; no statement has so many windows and unions."""

    count: int = 1_000_000

    def alias(self, _wanted: str) -> str:
        return f"again {self.next_union()}"

    def next_window(self) -> int:
        return self.next_union()

    def next_union(self) -> int:
        self.count += 1
        return self.count


@dataclass(frozen=True, slots=True)
class Written:
    """What an outer join was made of."""

    pairs: Pairs
    merged: tuple[Merged, ...]


def as_written(plan: OuterJoin) -> Written | None:
    """What the outer join was made of; None where a rewriting has changed its branches so that they differ in more."""
    shown = plan.branches[0]
    if not isinstance(shown, Project) or not isinstance(shown.input, Join | RelationJoin):
        return None
    pairs = shown.input
    own = shown.outputs[len(pairs.fields) :]
    equal = [each.args for each in conjuncts(pairs.condition) if isinstance(each, Call) and each.name == EQUAL]
    if len(shown.outputs) < len(pairs.fields) or len(own) > len(equal):
        return None
    merged = tuple(
        Merged(each.name, each.expr, _of_type(theirs, each.expr.type))
        for each, (_, theirs) in zip(own, equal, strict=False)
    )
    made = outer_join(pairs, plan.side, _Again(), merged)
    same = Copy(_Again()).of(made) == Copy(_Again()).of(plan)
    return Written(pairs, merged) if same else None


def _of_type(expr: Expr, kind: ColumnType) -> Expr:
    column = expr.arg if isinstance(expr, Cast) else expr
    return column if column.type == kind else Cast(column, kind)
