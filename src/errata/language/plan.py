"""The base classes of plan nodes, and the declaration of what a plan reads.

A plan is a tree of immutable operators. Every node denotes rows with a lifetime `[vs, ve)`: its answer at an instant t
is the rows with vs <= t < ve. The columns of a node have names that are unique within it: `alias.column` for columns
from FROM, the text of an aggregate above a group, and the names that SELECT gives. Hidden columns are not part of the
answer; they carry a result's key.

Facts about a node (`cached_fact`) are computed once and kept with it, so that a function over a plan costs time linear
in its nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar, cast

from errata.errors import ErrataError, candidates_text
from errata.language.expr import Expr, Ref, expr_sql, refs
from errata.model.columns import ColumnType

T = TypeVar("T")


class PlanError(ErrataError):
    """A plan that cannot be built. The mistake is in the code that builds it, not in the query's text."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node."""

    name: str
    type: ColumnType
    hidden: bool = False


class SourceKind(StrEnum):
    """The kinds of source that a query can read."""

    STREAM = "stream"
    QUERY = "query"
    RETROACTIVE = "retroactive"
    """A relation whose changes also change answers about earlier times."""
    NRR = "nrr"
    """A non-retroactive relation: a row sees the version that was valid at the row's own time."""

    @property
    def is_relation(self) -> bool:
        return self in (SourceKind.RETROACTIVE, SourceKind.NRR)


@dataclass(frozen=True)
class Source:
    """A stream, relation or query as others may read it. Of a query the columns of its result, hidden ones too."""

    name: str
    kind: SourceKind
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    order: str | None = None
    """The column of event time; of a relation the column from which a version is valid. A query's event time follows
    from its plan (`times.row_times`)."""
    timed: bool = True
    """Whether event time is a timestamp; otherwise it is a plain bigint."""
    deleted: str | None = None
    """Of a relation: the boolean column that is true in versions that delete the row."""
    plan: Plan | None = field(default=None, compare=False, repr=False)
    """The plan of a query; None for a stream or relation."""

    def __post_init__(self) -> None:
        if (self.kind is SourceKind.QUERY) != (self.plan is not None):
            raise PlanError(f"{self.name}: a query has a plan, and nothing else has")


@dataclass(frozen=True)
class Plan(ABC):
    """The parts common to all operators: inputs, columns, and the columns that identify a result together with its
    vs."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Plan, ...]:
        """The nodes that it reads, from left to right."""

    @abstractmethod
    def with_inputs(self, inputs: Sequence[Plan]) -> Plan:
        """The same operator over other inputs."""

    @abstractmethod
    def _fields(self) -> tuple[Field, ...]: ...

    @abstractmethod
    def _key(self) -> tuple[str, ...]: ...

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All columns, hidden ones too; the visible ones stand in the order of SELECT *."""
        return self._fields()

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a result, together with its vs."""
        return self._key()

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """The type of each column, hidden ones too."""
        return {each.name: each.type for each in self.fields}

    @cached_property
    def visible(self) -> tuple[Field, ...]:
        """The columns that are part of the answer."""
        return tuple(each for each in self.fields if not each.hidden)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts computed about this node so far; see `cached_fact`."""
        return {}

    def ref(self, name: str) -> Ref:
        """A column of this node as an expression."""
        if name not in self.types:
            raise PlanError(
                f"no column {name!r}", where=type(self).__name__, how=candidates_text(name, list(self.types))
            )
        return Ref(name, self.types[name])

    def _check(self) -> None:
        names = [each.name for each in self.fields]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise PlanError(f"columns {', '.join(twice)} are there twice", where=type(self).__name__)
        self._check_names(self.key, self)

    def _check_names(self, names: Sequence[str], node: Plan) -> None:
        for name in names:
            if name not in node.types:
                raise PlanError(
                    f"no column {name!r}", where=type(self).__name__, how=candidates_text(name, list(node.types))
                )

    def _check_expr(self, expr: Expr | None, node: Plan, kind: ColumnType | None = None) -> None:
        if expr is None:
            return
        self._check_names(sorted(refs(expr)), node)
        if kind is not None and expr.type != kind:
            raise PlanError(f"{expr_sql(expr)} is of type {expr.type}, not {kind}", where=type(self).__name__)


def cached_fact(work_out: Callable[[Plan], T]) -> Callable[[Plan], T]:
    """A function of a plan that is computed once for each node."""
    name = f"{work_out.__module__}.{work_out.__qualname__}"

    def known(plan: Plan) -> T:
        if name not in plan.facts:
            plan.facts[name] = work_out(plan)
        return cast("T", plan.facts[name])

    known.__doc__ = work_out.__doc__
    return known


@dataclass(frozen=True)
class Leaf(Plan):
    """An operator that reads no other."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return ()

    def with_inputs(self, inputs: Sequence[Plan]) -> Plan:
        if inputs:
            raise PlanError("a leaf has no inputs")
        return self


@dataclass(frozen=True)
class Unary(Plan):
    """An operator over one input, its first field."""

    input: Plan

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Plan]) -> Plan:
        (only,) = inputs
        return replace(self, input=only)

    def _fields(self) -> tuple[Field, ...]:
        return self.input.fields

    def _key(self) -> tuple[str, ...]:
        return self.input.key

    def __post_init__(self) -> None:
        self._check()


@dataclass(frozen=True)
class Binary(Plan):
    """An operator over two inputs."""

    left: Plan
    right: Plan

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: Sequence[Plan]) -> Plan:
        left, right = inputs
        return replace(self, left=left, right=right)

    def __post_init__(self) -> None:
        self._check()


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """The node and all below it, each node before its inputs."""
    yield plan
    for child in plan.inputs:
        yield from walk_plan(child)


def rebuild_plan(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The plan with every node changed, the lowest first; what does not change stays the same object."""
    inputs = tuple(rebuild_plan(child, change) for child in plan.inputs)
    same = all(new is old for new, old in zip(inputs, plan.inputs, strict=True))
    return change(plan if same else plan.with_inputs(inputs))
