"""What a query's results have still to take up of what has been revised: which rows, which of its results these touch,
and what working them out again takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from errata.catalog import buckets
from errata.catalog.published import Published
from errata.catalog.queries import RecordedQuery
from errata.engine.engines import Demand
from errata.flows.answering.holding import lost_for_good
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.task import Task, below
from errata.flows.correcting.lineage_asked import asked
from errata.flows.correcting.stands import Stands, answered, revised_of
from errata.flows.correcting.state_patched import fate
from errata.flows.correcting.techniques import chosen, rows_to_read
from errata.language.plan import Plan
from errata.model.bucket import Bucket, Role
from errata.model.evaluation import Refusal
from errata.model.interval import Interval
from errata.model.stream import OnRevision
from errata.revise import work
from errata.revise.revised import Revised
from errata.revise.technique import Technique
from errata.revise.work import Answered, Work


@dataclass(frozen=True)
class Sweeping:
    """Revisions that a query's results take up."""

    task: Task
    """The query, where it stands, and the revisions up to which it will have read its streams."""
    basis: Published
    inputs: Mapping[str, int]
    """Of each query that is read, the evaluation up to which its results have a say."""
    revised: Sequence[Revised]
    of: Answered
    work: Work
    technique: Technique
    why: str
    keeps_state: bool
    data_commit: int
    aged: Mapping[str, int | None] = field(default_factory=dict)
    """Where the sources now begin that are read."""
    patches_state: bool = False
    """Whether rows of what the strategy kept are put right in it."""

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def cannot_wait(self) -> bool:
        """Whether the query would go on from rows that it has not seen: results that another query has corrected, and
        versions of relations that came late, are there for whoever reads, and cannot be left out as revisions are."""
        return any(each.after is None or each.came_late for each in self.revised)

    def size(self, inputs: Inputs) -> int:
        """About how many rows it reads."""
        return rows_to_read(inputs, self.work, self.task.step.until)

    def demand(self, inputs: Inputs) -> Demand:
        """What the correction asks of an engine."""
        revised = sum(each.rows.num_rows for each in self.revised)
        return Demand(self.size(inputs) + revised, obstacle=self.task.obstacle)


def sweeping_for(
    query: RecordedQuery,
    plan: Plan,
    inputs: Inputs,
    technique: Technique = Technique.AUTO,
    *,
    narrowed: bool = True,
) -> Sweeping | None:
    """What there is to correct of a query's results; None where nothing is. `narrowed`: to replay all means all rows of
    the groups that are touched."""
    stands = Stands.of(query, plan, inputs)
    revised = list(revised_of(stands, inputs))
    basis = stands.basis
    if basis is None or not revised:
        return None
    task = stands.task(inputs)
    of = answered(task, basis, inputs)
    aged = stands.aged(inputs)
    if query.checked.on_revision is OnRevision.RESULTS:
        wanted = asked(task, basis, revised)
        technique, needed, why = chosen(of, revised, inputs, technique, aged, wanted, narrowed=narrowed)
    else:
        needed, technique = Work((), {}), Technique.NONE
        why = f"the query declares on_revision: {query.checked.on_revision.value}: what was published stays"
    becomes = fate(of, task, basis, inputs, revised)
    if is_lost := becomes.wrong and _is_lost_for_good(task, basis, inputs):
        needed = replace(needed, refused=(*needed.refused, *_beyond_repair(revised, needed.refused)))
    # What is made anew needs no patching.
    patches = becomes.patched and (is_lost or not becomes.wrong)
    return Sweeping(
        task,
        basis,
        {each.name: each.last.number for each in below(inputs, plan)},
        revised,
        of,
        needed,
        technique,
        why,
        (is_lost or not becomes.wrong) and not patches,
        basis.last.data_commit if more_has_come(basis, inputs) else inputs.commit_id,
        aged,
        patches,
    )


def _is_lost_for_good(task: Task, basis: Published, inputs: Inputs) -> bool:
    """Whether what the strategy keeps could not be made anew, since rows that it was made of have been aged out: then
    it stays as it is, as the results do that were made of them."""
    return bool(lost_for_good(inputs.site.catalog, task.rewritten, task.route, basis))


def _beyond_repair(revised: Iterable[Revised], known: Iterable[Refusal]) -> Iterator[Refusal]:
    """Revisions that reach what is kept for answers to come, of which rows have been aged out."""
    told = {each.source for each in known}
    for each in revised:
        if each.source not in told:
            why = "what is kept for later answers is made of rows that have been aged out, too, and stays as it is"
            yield Refusal(each.source, each.since + 1, each.up_to, each.count, why)


def replaying(query: RecordedQuery, plan: Plan, inputs: Inputs, interval: Interval, technique: Technique) -> Sweeping:
    """A range of a query's results to be worked out again from what they were made of."""
    stands = Stands.of(query, plan, inputs)
    basis = stands.basis
    if basis is None:
        raise AssertionError("what has no results has nothing to replay")
    task = replace(stands.task(inputs), revisions=basis.last.revisions)
    of = answered(task, basis, inputs)
    needed, by, why = work.between(of, interval, stands.aged(inputs)), Technique.MINIMAL, "only the range is read"
    if technique is Technique.ALL:
        # All rows are read, and the results of the range are looked at.
        whole = work.everything(of, needed, stands.aged(inputs), narrowed=False)
        needed, by, why = replace(needed, reads=whole.reads), Technique.ALL, "it was asked for"
    # Where results come out different, what is kept may be wrong, too.
    is_kept = _is_lost_for_good(task, basis, inputs)
    return Sweeping(task, basis, basis.last.inputs, (), of, needed, by, why, is_kept, basis.last.data_commit)


def more_has_come(basis: Published, inputs: Inputs) -> bool:
    """Whether rows of the last instant have come that the answer does not contain: the next evaluation brings them."""
    since, until = basis.last.data_commit, basis.frontier
    came = {stream_id for stream_id, _, _ in inputs.came(since)}
    ids = {inputs.standings[name].stream_id for name in basis.last.revisions}

    def added(stream_id: int) -> list[Bucket]:
        return buckets.added(inputs.site.catalog, stream_id, (Role.BASE,), after=since, up_to=inputs.commit_id)

    return any(
        each.batch_no is not None and each.vs_min <= until <= each.vs_max
        for stream_id in sorted(came & ids)
        for each in inputs.once(("added", stream_id, since), partial(added, stream_id))
    )
