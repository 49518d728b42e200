"""The rate of each row of a plan, and the unit that it is sampled with, carried as columns from sampled scans upwards.

A row of a join with exact rows has the rate of its sampled row; a row of an exact branch of a union has rate 1. Where
operators above the scans make rows whose rate is not known (DISTINCT, a join of two samples), aggregates over them are
refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatchmethod

from errata.errors import UsageError
from errata.language.expr import BIGINT, DOUBLE, Expr, Lit, Ref
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
    scans_of,
)
from errata.language.outer_joins import OuterJoin, OuterSide
from errata.language.plan import Field, Plan, PlanError, walk_plan
from errata.language.sampling import CLAUSE, RATE_COLUMN, UNIT_COLUMN

_WEIGHT_FIELDS = (Field(RATE_COLUMN, DOUBLE, hidden=True), Field(UNIT_COLUMN, BIGINT, hidden=True))
_CERTAIN, _NO_UNIT = Lit(1.0, DOUBLE), Lit(0, BIGINT)
_LEAVE_OUT = f"leave out {CLAUSE}"


@dataclass(frozen=True, slots=True)
class SampleScope:
    """The sampled sources of a plan."""

    named: frozenset[str]
    exact: frozenset[str]
    """Those of them whose rates are 1."""
    where: str

    def samples(self, plan: Plan) -> frozenset[str]:
        """The sources below of which some rows may be missing."""
        return frozenset(each.source.name for each in scans_of(plan)) & (self.named - self.exact)

    def concerned(self, plan: Plan) -> bool:
        """Whether a source below has a clause, be its rate 1 or not."""
        return any(each.source.name in self.named for each in scans_of(plan))

    def groups(self, plan: Plan) -> Iterator[Group]:
        """The groups over sources with a clause."""
        return (each for each in walk_plan(plan) if isinstance(each, Group) and self.concerned(each))

    def refusal(self, what: str, why: str, how: str = _LEAVE_OUT) -> UsageError:
        """The error for what cannot be estimated."""
        return UsageError(what, where=self.where or None, why=why, how=how)

    def rows_refusal(self, what: str) -> UsageError:
        """The error for windows that count rows."""
        how = f"take a window over time, or {_LEAVE_OUT}"
        return self.refusal(
            f"{what} cannot be over a sample", "which rows are the last ones follows from all rows", how
        )

    def negation_refusal(self) -> UsageError:
        """The error for rows that are taken away."""
        why = "rows that should be taken away, or take others away, may not be in the sample"
        return self.refusal("EXCEPT and negation(...) cannot be over a sample", why)

    def check_outer(self, plan: OuterJoin) -> None:
        """Refuse samples of a side whose rows may be missing as partners."""
        pairs = _pairs_of(plan)
        if any(self.samples(pairs.inputs[1 - place]) for place in plan.side.places):
            one_side = f"write JOIN, or put {CLAUSE} behind the stream whose rows are kept without a partner"
            raise self.refusal(
                f"the partners of a {plan.side.upper()} JOIN cannot be a sample",
                "a row whose partner is not in the sample would look as if it had none",
                f"write JOIN, or {_LEAVE_OUT}" if plan.side is OuterSide.FULL else one_side,
            )


def _pairs_of(plan: OuterJoin) -> Plan:
    """The join whose pairs an outer join has, as it was read."""
    whole = plan.branches[0]
    if not isinstance(whole, Projection) or not isinstance(whole.input, Join | RelationJoin):
        raise PlanError("an outer join is estimated before it is rewritten", where="OuterJoin")
    return whole.input


@dataclass(frozen=True, slots=True)
class WeightedRows:
    """A node with the columns that say how its rows were sampled; without them all of its rows are certain."""

    plan: Plan
    rate: Expr = _CERTAIN
    unit: Expr = _NO_UNIT
    repeats: bool = False
    """Whether several rows can be of one unit."""

    def over(self, plan: Plan) -> WeightedRows:
        """A node above with the same columns."""
        return replace(self, plan=plan)

    @property
    def columns(self) -> tuple[Output, ...]:
        """The columns, as outputs of a projection above."""
        return tuple(Output(each.name, each) for each in (self.rate, self.unit) if isinstance(each, Ref))


@dataclass(frozen=True, slots=True)
class Weighting:
    """Carries rates and units upwards."""

    scope: SampleScope

    def rows(self, plan: Plan) -> WeightedRows:
        """The node with the columns of its samples."""
        return self._rows(plan) if self.scope.samples(plan) else WeightedRows(plan)

    @singledispatchmethod
    def _rows(self, plan: Plan) -> WeightedRows:
        raise PlanError(f"how rows of {type(plan).__name__} are weighted is not known")

    @_rows.register
    def _(self, plan: Scan) -> WeightedRows:
        source = replace(plan.source, fields=(*plan.source.fields, *_WEIGHT_FIELDS))
        columns = None if plan.columns is None else (*plan.columns, RATE_COLUMN, UNIT_COLUMN)
        scan = Scan(source, plan.alias, columns)
        return WeightedRows(scan, scan.ref(scan.column(RATE_COLUMN)), scan.ref(scan.column(UNIT_COLUMN)))

    @_rows.register(Filter)
    @_rows.register(Sliding)
    def _(self, plan: Filter | Sliding) -> WeightedRows:
        below = self.rows(plan.input)
        return below.over(plan.with_inputs([below.plan]))

    @_rows.register
    def _(self, plan: Projection) -> WeightedRows:
        return _project(plan, self.rows(plan.input))

    @_rows.register(Join)
    @_rows.register(RelationJoin)
    def _(self, plan: Join | RelationJoin) -> WeightedRows:
        if self.scope.samples(plan.left) and self.scope.samples(plan.right):
            raise self.scope.refusal(
                "aggregates over a join of two samples cannot be estimated",
                "pairs whose rows are both in the samples are few, and not independent of each other",
                f"leave out {CLAUSE} at one of the two",
            )
        left, right = self.rows(plan.left), self.rows(plan.right)
        joined = type(plan)(left.plan, right.plan, plan.condition)
        return replace(left if self.scope.samples(plan.left) else right, plan=joined, repeats=True)

    @_rows.register
    def _(self, plan: Union) -> WeightedRows:
        branches = [self.rows(each) for each in plan.branches]
        repeats = sum(bool(self.scope.samples(each)) for each in plan.branches) > 1
        return self._unite(plan, branches, repeats=repeats or any(each.repeats for each in branches))

    @_rows.register
    def _(self, plan: OuterJoin) -> WeightedRows:
        self.scope.check_outer(plan)
        branches = [self.rows(plan.branches[0])]
        for alone in plan.branches[1:]:
            if not isinstance(alone, Projection) or not isinstance(alone.input, Negation):
                raise PlanError("an outer join is estimated before it is rewritten", where="OuterJoin")
            # The rows with partners are of the same sample: so is what is left without one.
            left = self.rows(alone.input.left)
            branches.append(_project(alone, left.over(replace(alone.input, left=left.plan))))
        return self._unite(plan, branches, repeats=True)

    def _unite(self, plan: Union, branches: list[WeightedRows], *, repeats: bool) -> WeightedRows:
        names = [f"_union_{plan.number}.{each.name}" for each in _WEIGHT_FIELDS]
        widened: list[Plan] = []
        for written, branch in zip(plan.branches, branches, strict=True):
            own = [Output(each.name, Ref(each.name, each.type)) for each in written.visible]
            weights = [Output(*each) for each in zip(names, (branch.rate, branch.unit), strict=True)]
            widened.append(Projection(branch.plan, (*own, *weights)))
        union = plan.with_inputs(widened)
        # Names are those of the first branch.
        return WeightedRows(union, union.ref(names[0]), union.ref(names[1]), repeats)

    @_rows.register(Distinct)
    @_rows.register(Intersect)
    def _(self, _plan: Distinct | Intersect) -> WeightedRows:
        raise self.scope.refusal(
            "aggregates over distinct rows of a sample cannot be estimated",
            "how many values the other rows add does not follow from the sample",
        )

    @_rows.register
    def _(self, _plan: Negation) -> WeightedRows:
        raise self.scope.negation_refusal()

    @_rows.register
    def _(self, _plan: SlidingRows) -> WeightedRows:
        raise self.scope.rows_refusal("a window over rows")

    @_rows.register
    def _(self, _plan: Group) -> WeightedRows:
        raise self.scope.refusal(
            "aggregates over estimates cannot be estimated",
            "groups of which the sample has no row are missing, and the others are uncertain",
            f"aggregate once, or {_LEAVE_OUT}",
        )


def _project(plan: Projection, below: WeightedRows) -> WeightedRows:
    return below.over(Projection(below.plan, (*plan.outputs, *below.columns)))
