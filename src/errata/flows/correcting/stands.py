"""Where a query's results stand, and what of its sources has been revised behind what they have taken up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masks import read_overlays, sources
from errata.archive.overlay import BATCH
from errata.archive.result_rows import feed_schema
from errata.archive.wire import conformed
from errata.catalog import buckets, ledger
from errata.catalog.published import Published
from errata.catalog.queries import RecordedQuery
from errata.catalog.streams import Standing, aged_to_now
from errata.evaluate.route import route
from errata.flows.answering.due import left_out
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.lineage_kept import stores
from errata.flows.answering.needed import base_names
from errata.flows.answering.task import Task, below, corrections, replaced_below
from errata.intake.arrow_types import arrow_schema
from errata.language.nodes import scans
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_of
from errata.model.bucket import Bucket, Role
from errata.model.evaluation import Step
from errata.model.results import RUN, VS
from errata.revise.revised import Revised, of_arrivals, of_overlays, of_records
from errata.revise.work import Answered


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
        rewritten = rewritten_of(self.plan)
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
        later = inputs.once(("overlays", of.stream_id), lambda: buckets.overlays_ever(site.catalog, of.stream_id))
        found = [each for each in later if (each.revision_last or 0) > known and (each.revision_first or 0) <= up_to]
        # What the last instant says is corrected, too, although the next evaluation would work it out again.
        if left_out(found, known, basis.frontier + 1):
            yield inputs.once(
                ("revised", of.stream_id, known, up_to), lambda: _revised(of, inputs, found, known, up_to)
            )
    if stream.relation is not None:
        yield from _of_versions(of, basis, inputs, known)


def _revised(of: Standing, inputs: Inputs, found: Sequence[Bucket], known: int, up_to: int) -> Revised:
    """What the overlays of a stream say of revisions after one number and up to another."""
    site = inputs.site
    overlays = read_overlays(of.stream, site.warehouse, sources(site.catalog, found))
    # They have waited since they came, and not only since they became history.
    came = ledger.came_in(site.catalog, pc.unique(overlays[BATCH]).drop_null().to_pylist())
    since = min([*came.values(), *(each.added_in for each in found)])
    return of_overlays(of.stream, overlays, known, up_to, since)


def _of_versions(of: Standing, basis: Published, inputs: Inputs, known: int) -> Iterator[Revised]:
    """Versions of a relation that have come behind what has been answered, in the order of the relation."""
    since = basis.last.data_commit
    if of.stream_id not in {stream_id for stream_id, _, _ in inputs.came(since)}:
        return
    came = buckets.added(inputs.site.catalog, of.stream_id, (Role.BASE,), after=since, up_to=inputs.commit_id)
    some = [each for each in came if each.batch_no is not None and each.vs_min < basis.frontier]
    schema = arrow_schema(of.stream)
    read = [conformed(each.read(inputs.site.warehouse), schema) for each in sources(inputs.site.catalog, some)]
    rows = pa.concat_tables([schema.empty_table(), *read])
    rows = rows.filter(pc.less(rows[of.stream.order].cast(pa.int64()), basis.frontier))
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


def answered(task: Task, basis: Published, inputs: Inputs) -> Answered:
    """What of a query is published."""
    with inputs.site.catalog.reading() as connection:
        aged = aged_to_now(connection, basis.stream_id)
    return Answered(task.rewritten, task.route, basis.last.begins, aged, basis.frontier, stores(task))
