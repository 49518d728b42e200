"""What a query's results have still to take up of what has been revised: which rows, which of its results these touch,
and what working them out again takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive import few
from errata.archive.masks import read_overlays, sources
from errata.archive.overlay import BATCH
from errata.archive.result_rows import feed_schema
from errata.archive.wire import conformed
from errata.catalog import buckets, ledger
from errata.catalog.published import Published
from errata.catalog.queries import RecordedQuery
from errata.catalog.streams import Standing, aged_to_now
from errata.evaluate.route import route
from errata.flows.due import left_out
from errata.flows.inputs import Inputs
from errata.flows.needed import base_names
from errata.flows.standing_results import lost_for_good
from errata.flows.task import Task, below, corrections, replaced_below
from errata.intake.arrow_types import arrow_schema
from errata.language.nodes import scans
from errata.language.partial import adjustable
from errata.language.plan import Plan
from errata.language.rewrite import rewrite
from errata.model.bucket import Role
from errata.model.evaluation import Refusal, Step
from errata.model.interval import LOWEST, Interval
from errata.model.results import RUN, VS
from errata.model.stream import OnRevision
from errata.revise import work
from errata.revise.revised import Cluster, Revised, clusters, of_arrivals, of_overlays, of_records
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


def rows_to_read(inputs: Inputs, needed: Work, until: int) -> int:
    """About how many rows are read to work results out again."""
    return sum(inputs.size_of_all(name, some, until) for name, some in needed.reads.items())


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
        chosen, needed, why = _chosen(of, revised, inputs, technique, aged, narrowed=narrowed)
    else:
        needed, chosen = Work((), {}), Technique.NONE
        why = f"the query declares on_revision: {query.checked.on_revision.value}: what was published stays"
    is_touched = work.touches_state(of, revised)
    if is_lost := is_touched and _is_lost_for_good(task, basis, inputs):
        needed = replace(needed, refused=(*needed.refused, *_beyond_repair(revised, needed.refused)))
    return Sweeping(
        task,
        basis,
        {each.name: each.last.number for each in below(inputs, plan)},
        revised,
        of,
        needed,
        chosen,
        why,
        not is_touched or is_lost,
        basis.last.data_commit if more_has_come(basis, inputs) else inputs.commit_id,
        aged,
    )


def _is_lost_for_good(task: Task, basis: Published, inputs: Inputs) -> bool:
    """Whether what the strategy keeps could not be made anew, since rows that it was made of have been aged out: then
    it stays as it is, as the results do that were made of them."""
    return bool(lost_for_good(inputs.site.catalog, task.rewritten, task.route, basis, inputs.standings))


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
    needed, chosen, why = work.between(of, interval, stands.aged(inputs)), Technique.MINIMAL, "only the range is read"
    if technique is Technique.ALL:
        # All rows are read, and the results of the range are looked at.
        whole = work.everything(of, needed, stands.aged(inputs), narrowed=False)
        needed, chosen, why = replace(needed, reads=whole.reads), Technique.ALL, "it was asked for"
    # Where results come out different, what is kept may be wrong, too.
    is_kept = _is_lost_for_good(task, basis, inputs)
    return Sweeping(task, basis, basis.last.inputs, (), of, needed, chosen, why, is_kept, basis.last.data_commit)


def more_has_come(basis: Published, inputs: Inputs) -> bool:
    """Whether rows of the last instant have come that the answer does not contain: the next evaluation brings them."""
    since, until = basis.last.data_commit, basis.frontier
    came = {stream_id for stream_id, _, _ in inputs.came(since)}
    ids = {inputs.standings[name].stream_id for name in basis.last.revisions}
    return any(
        each.batch_no is not None and each.vs_min <= until <= each.vs_max
        for stream_id in sorted(came & ids)
        for each in buckets.added(inputs.site.catalog, stream_id, (Role.BASE,), after=since, up_to=inputs.commit_id)
    )


def answered(task: Task, basis: Published, inputs: Inputs) -> Answered:
    """What of a query is published."""
    with inputs.site.catalog.reading() as connection:
        aged = aged_to_now(connection, basis.stream_id)
    return Answered(task.rewritten, task.route, basis.last.begins, aged, basis.frontier)


@dataclass(frozen=True)
class Stands:
    """A query and where its results stand; no basis where there are none that could be corrected."""

    query: RecordedQuery
    plan: Plan
    basis: Published | None
    read: tuple[str, ...]
    """The sources that it reads itself."""

    @classmethod
    def of(cls, query: RecordedQuery, plan: Plan, inputs: Inputs) -> Stands:
        there = inputs.published.get(query.checked.name)
        ours = there is not None and there.query_id == query.query_id and not replaced_below(inputs, plan, there)
        names = tuple(dict.fromkeys(scan.source.name for scan in scans(plan)))
        return cls(query, plan, there if ours else None, names)

    def revisions(self, inputs: Inputs) -> dict[str, int]:
        """Up to which revision each stream is read now: no further than by the queries that are read."""
        queries = [each.last.revisions for each in below(inputs, self.plan)]
        found = {}
        for name in base_names(self.plan):
            told = [some[name] for some in queries if name in some]
            own = [inputs.standings[name].applied] if name in self.read or not told else []
            found[name] = min([*own, *told])
        return found

    def aged(self, inputs: Inputs) -> dict[str, int | None]:
        """Where the sources now begin that are read."""
        found: dict[str, int | None] = {}
        with inputs.site.catalog.reading() as connection:
            for name in self.read:
                if name in inputs.standings:
                    found[name] = inputs.standings[name].aged_to
                else:
                    found[name] = aged_to_now(connection, inputs.published[name].stream_id)
        return found

    def task(self, inputs: Inputs) -> Task:
        """The query as a task that goes no further than before."""
        if self.basis is None:
            raise AssertionError("what has no results has nothing to correct")
        rewritten = rewrite(self.plan).plan
        until = self.basis.frontier
        return Task(
            self.query,
            self.plan,
            rewritten,
            route(rewritten),
            Step(until, until),
            self.basis,
            None,
            self.revisions(inputs),
            self.basis.shape,
            self.basis.last.begins,
        )


def revised_of(stands: Stands, inputs: Inputs) -> Iterator[Revised]:
    """What has been revised of each source behind what has been answered."""
    if stands.basis is None:
        return
    up_to = stands.revisions(inputs)
    for name in stands.read:
        if name in inputs.standings:
            yield from _of_stream(inputs.standings[name], stands.basis, inputs, up_to[name])
        elif name in inputs.published:
            yield from _of_query(inputs.published[name], stands.basis, inputs)


def _of_stream(of: Standing, basis: Published, inputs: Inputs, up_to: int) -> Iterator[Revised]:
    site, stream = inputs.site, of.stream
    known = basis.last.revisions.get(stream.name, of.applied)
    if up_to > known:
        later = [
            each for each in buckets.overlays_ever(site.catalog, of.stream_id) if (each.revision_last or 0) > known
        ]
        found = [each for each in later if (each.revision_first or 0) <= up_to]
        # What the last instant says is corrected, too, although the next evaluation would work it out again.
        if left_out(found, known, basis.frontier + 1):
            overlays = read_overlays(stream, site.warehouse, sources(site.catalog, found))
            # They have waited since they came, and not only since they became history.
            came = ledger.came_in(site.catalog, pc.unique(overlays[BATCH]).drop_null().to_pylist())
            since = min([*came.values(), *(each.added_in for each in found)])
            yield of_overlays(stream, overlays, known, up_to, since)
    if stream.relation is not None:
        yield from _of_versions(of, basis, inputs, known)


def _of_versions(of: Standing, basis: Published, inputs: Inputs, known: int) -> Iterator[Revised]:
    """Versions of a relation that have come behind what has been answered, in the order of the relation."""
    since = basis.last.data_commit
    if of.stream_id not in {stream_id for stream_id, _, _ in inputs.came(since)}:
        return
    came = buckets.added(inputs.site.catalog, of.stream_id, (Role.BASE,), after=since, up_to=inputs.commit_id)
    some = [each for each in came if each.batch_no is not None and each.vs_min < basis.frontier]
    schema = arrow_schema(of.stream)
    read = [conformed(each.read(inputs.site.warehouse), schema) for each in sources(inputs.site.catalog, some)]
    rows = few.within(
        pa.concat_tables([schema.empty_table(), *read]), of.stream.order, [Interval(LOWEST, basis.frontier)]
    )
    if rows.num_rows:
        yield of_arrivals(of.stream, rows, known, min(each.added_in for each in some))


def _of_query(of: Published, basis: Published, inputs: Inputs) -> Iterator[Revised]:
    """What corrections of a query's results have changed, as its own records tell."""
    site = inputs.site
    later = corrections(inputs, of, basis)
    if not later:
        return
    # Those of buckets that have been merged since are in the merged ones.
    found = buckets.visible(site.catalog, of.stream_id, of.last.commit_id, role=Role.FEED)
    schema = feed_schema(of.shape)
    read = [conformed(each.read(site.warehouse), schema) for each in sources(site.catalog, found)]
    records = pa.concat_tables([schema.empty_table(), *read])
    numbers = pa.array([each.number for each in later], pa.int64())
    behind = pc.and_(pc.is_in(records[RUN], numbers), pc.less_equal(records[VS], basis.frontier))
    records = records.filter(behind)
    if records.num_rows:
        fields = [each.name for each in inputs.plans[of.name].fields]
        names = dict(zip(fields, of.shape.names, strict=True))
        yield of_records(of.name, records, names, of.shape.payload, later[0].commit_id)


def _chosen(
    of: Answered,
    revised: Sequence[Revised],
    inputs: Inputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    *,
    narrowed: bool,
) -> tuple[Technique, Work, str]:
    """The technique, what it reads, and why it is this one."""
    changes = [cluster for each in revised for cluster in clusters(each)]
    return by_technique(of, changes, inputs, technique, aged, no_adjusting(of, revised), narrowed=narrowed)


def no_adjusting(of: Answered, revised: Iterable[Revised]) -> str | None:
    """Why results cannot be adjusted by what was revised; None: they can."""
    if of.route.partial is None or not of.route.keeps_parts:
        why = None if of.route.partial is None else adjustable(of.route.partial)
        return why or "its results are no sums, counts or extremes of windows that have closed"
    if any(each.after is None for each in revised) or any(each.source.plan is not None for each in scans(of.plan)):
        return "it reads results of another query"
    return None


def by_technique(
    of: Answered,
    changes: Sequence[Cluster],
    inputs: Inputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    no_direct: str | None,
    *,
    narrowed: bool = True,
) -> tuple[Technique, Work, str]:
    """The same for changes that are known; `no_direct`: why results cannot be adjusted, if they cannot."""
    if technique in (Technique.AUTO, Technique.DIRECT) and no_direct is None:
        asked = "it was asked for" if technique is Technique.DIRECT else "it reads no rows"
        return Technique.DIRECT, work.following(of, changes, aged), asked
    least = work.following(of, changes, aged)
    if technique is Technique.ALL:
        whole = work.everything(of, least, aged, narrowed=narrowed)
        if whole is least and least.regions:
            return Technique.MINIMAL, least, "rows of earlier results have been aged out, so not all can be replayed"
        return Technique.ALL, whole, "it was asked for"
    if technique is Technique.MINIMAL:
        return Technique.MINIMAL, least, "it was asked for"
    whole = work.everything(of, least, aged, narrowed=narrowed)
    some, every = (rows_to_read(inputs, each, of.until) for each in (least, whole))
    if technique is Technique.AUTO and whole is not least and some >= every > 0:
        return Technique.ALL, whole, "what is touched is made of all rows"
    return Technique.MINIMAL, least, f"not direct: {no_direct}"
