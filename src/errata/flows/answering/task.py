"""What there is to do for a query: how far its streams reach, and how it is taken there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from errata.catalog import buckets
from errata.catalog.published import Published, evaluations_of
from errata.catalog.queries import RecordedQuery
from errata.catalog.streams import Standing
from errata.engine.engines import Demand
from errata.evaluate.ageing import first_whole, results_from
from errata.evaluate.needs import first_step, needs
from errata.evaluate.reads import Reach
from errata.evaluate.route import Kind, Route, closing, route
from errata.flows.answering.due import behind, no_further, reached, taken_up
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.needed import base_names
from errata.flows.answering.parts import Part, part_of
from errata.language.near import hash_obstacle, obstacle
from errata.language.nodes import scans
from errata.language.patterns import pattern
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_of
from errata.language.tree import is_timed
from errata.model.evaluation import Evaluation, Step
from errata.model.interval import LOWEST
from errata.model.query import Lineage
from errata.model.results import Shape, shaped


@dataclass(frozen=True)
class Task:
    """A query that is behind, and what taking it further needs."""

    query: RecordedQuery
    plan: Plan
    """As it was read."""
    rewritten: Plan
    route: Route
    step: Step
    basis: Published | None
    """Its results so far; None where this form of the query has none."""
    replaces: Published | None
    """The results of the form that it had before."""
    revisions: Mapping[str, int]
    shape: Shape
    begins: int
    """Its answers are whole from this instant on."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Of each query that is read, the number of its last evaluation that has a say."""
    results_from: int = LOWEST
    """Results that begin earlier may be made of a part of their rows only, and are left out."""
    left: int = 0
    """About how many rows lie behind the step, to which the streams reach already."""

    @property
    def name(self) -> str:
        return self.query.checked.name

    @property
    def number(self) -> int:
        """Of the evaluation that it will be."""
        return 1 if self.basis is None else self.basis.last.number + 1

    @property
    def kept_names(self) -> dict[str, str]:
        """By the fields of the plan, the names under which results keep them."""
        return dict(zip((each.name for each in self.plan.fields), self.shape.names, strict=True))

    @property
    def anew(self) -> bool:
        """Whether it takes the place of results that this very form of the query has."""
        return self.replaces is not None and self.replaces.query_id == self.query.query_id

    @property
    def closes(self) -> tuple[str, int] | None:
        """What of the results is final once it has closed."""
        return closing(self.plan, self.route, self.shape)

    def size(self, inputs: Inputs) -> int:
        """About how many rows it reads."""
        return sum(inputs.size(name, reach, self.step.until) for name, reach in self.reads)

    @cached_property
    def reads(self) -> Sequence[tuple[str, Reach]]:
        """The rows that it reads of each source, one time for each part of the step."""
        parts = needs(self.rewritten, self.route, self.step, beginning=self.basis is None).values()
        return [each for part in parts for each in part.items()]

    def demand(self, inputs: Inputs) -> Demand:
        """What the step asks of an engine."""
        known = self.basis.rows if self.basis is not None and self.route.kind is Kind.NEW_VALUES else 0
        return Demand(self.size(inputs) + known, obstacle=self.obstacle)

    @property
    def obstacle(self) -> str | None:
        """Why the near engine cannot be asked, whatever the size."""
        hashed = self.query.checked.query.lineage is Lineage.STORED and self.route.kind is Kind.ROW_WINDOWS
        return obstacle(self.rewritten) or (hash_obstacle(self.route.input) if hashed else None)


def task_for(query: RecordedQuery, plan: Plan, inputs: Inputs, *, anew: bool = False) -> Task | None:
    """What there is to do for a query; None where it is as far as its streams reach. `anew`: from the beginning, for an
    archive that takes the place of the one there is."""
    bases = {name: inputs.standings[name] for name in base_names(plan)}
    until = no_further(reached(bases.values()), below(inputs, plan))
    if until is None:
        return None
    there = inputs.published.get(query.checked.name)
    ours = there is not None and there.query_id == query.query_id and not anew
    basis = there if ours and not replaced_below(inputs, plan, there) else None
    revisions = _revisions(inputs, plan, bases, basis)
    if basis is not None and not _due(basis, bases, until, revisions, inputs):
        return None
    rewritten = rewritten_of(plan)
    begins = _begins(query, plan, inputs) if basis is None else basis.last.begins
    if begins is None or begins > until:
        return None
    chosen = route(rewritten)
    step = first_step(chosen, begins, until) if basis is None else Step(basis.frontier, until)
    replaces = there if basis is None else None
    # What takes the place of other results is no part: what they say of later instants would be withdrawn.
    part = Part(step)
    if replaces is None:
        part = part_of(rewritten, chosen, step, begins, inputs, beginning=basis is None)
    return Task(
        query,
        plan,
        rewritten,
        chosen,
        part.step,
        basis,
        replaces,
        revisions,
        shape_of(plan),
        begins,
        {each.name: consumed(inputs, each, basis) for each in below(inputs, plan)},
        results_from(plan, _aged(plan, inputs)) if basis is None else LOWEST,
        part.left,
    )


def consumed(inputs: Inputs, of: Published, basis: Published | None) -> int:
    """Up to which evaluation the results of a query that is read have a say: all, unless some have been corrected since
    and the results that were made of them have not."""
    unread = [] if basis is None else corrections(inputs, of, basis)
    return unread[0].number - 1 if unread else of.last.number


def corrections(inputs: Inputs, of: Published, basis: Published) -> list[Evaluation]:
    """Corrections of a query that is read, which the results have not taken up."""
    catalog, known = inputs.site.catalog, basis.last.inputs.get(of.name)
    if known == of.last.number:
        return []
    told = evaluations_of(catalog, of.stream_id, up_to=of.last.commit_id)
    if known is None:
        known = max((each.number for each in told if each.commit_id < basis.last.commit_id), default=0)
    return [each for each in told if each.number > known and each.swept is not None and each.swept.changed]


def below(inputs: Inputs, plan: Plan) -> list[Published]:
    """The results of the queries that a plan reads itself."""
    return [inputs.published[name] for name in sorted(_read_by(plan)) if name in inputs.published]


def _read_by(plan: Plan) -> set[str]:
    """The queries that a plan reads itself."""
    return {scan.source.name for scan in scans(plan) if scan.source.plan is not None}


def replaced_below(inputs: Inputs, plan: Plan, there: Published | None) -> bool:
    """Whether other results have taken the place of those that ours were made of: who goes on would mix the two."""
    return there is not None and any(each.added_in > there.last.commit_id for each in below(inputs, plan))


def _begins(query: RecordedQuery, plan: Plan, inputs: Inputs) -> int | None:
    """The first instant that is to be answered: not before those that are read answer; None where one of these does not
    yet."""
    read = below(inputs, plan)
    if len(read) < len(_read_by(plan)):
        return None
    declared = query.checked.query.begins(timed=is_timed(plan))
    aged = _aged(plan, inputs)
    return max(
        [LOWEST if declared is None else declared, *(each.last.begins for each in read), first_whole(plan, aged)]
    )


def _aged(plan: Plan, inputs: Inputs) -> dict[str, int | None]:
    """Where the streams now begin that a plan reads itself."""
    names = {scan.source.name for scan in scans(plan)}
    return {name: inputs.standings[name].aged_to for name in names if name in inputs.standings}


def shape_of(plan: Plan) -> Shape:
    """How the results of a plan are kept."""
    fields = [(each.name, each.type, each.hidden) for each in plan.fields]
    return shaped(fields, plan.key, pattern(plan), timed=is_timed(plan))


def _due(
    basis: Published, bases: Mapping[str, Standing], until: int, revisions: Mapping[str, int], inputs: Inputs
) -> bool:
    """Whether anything has come, or been corrected, that the answer does not contain and that it can go on to."""
    came = {stream_id for stream_id, _, _ in inputs.came(basis.last.data_commit)}
    return behind(basis, bases.values(), until, came) or revisions != basis.last.revisions


def _revisions(inputs: Inputs, plan: Plan, bases: Mapping[str, Standing], basis: Published | None) -> dict[str, int]:
    """Up to which revision each stream is read: no further than by the queries that are read, or two pasts would be
    mixed."""
    queries = below(inputs, plan)
    read = {scan.source.name for scan in scans(plan)}
    waits = basis is not None and any(corrections(inputs, each, basis) for each in queries)
    found = {}
    for name, each in bases.items():
        told = [other.last.revisions[name] for other in queries if name in other.last.revisions]
        # What is read through queries alone is known as far as they know it, once their corrections are taken up.
        through = name not in read and bool(told) and not waits
        own = (
            []
            if through
            else [_revision(inputs, each, None if basis is None else basis.last.revisions.get(name), basis)]
        )
        found[name] = min([*own, *told])
    return found


def _revision(inputs: Inputs, of: Standing, known: int | None, basis: Published | None) -> int:
    """Up to which revision a stream could be read."""
    if basis is None or known is None or known >= of.applied:
        return of.applied if known is None else known
    overlays = buckets.overlays_ever(inputs.site.catalog, of.stream_id)
    return taken_up(of, overlays, known, basis.frontier)
