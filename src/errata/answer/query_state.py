"""Up to where a query's results are published, the row versions of changes that they do not contain, and what these do
to the state that the route keeps.

`unread_changes` tells which changes there are; here their rows are read. State is made of rows, too: where such a row
was revised, the state is wrong and rebuilt. State of windows of rows is rows, and one that was revised in place is
corrected there, since to rebuild it takes all earlier rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.answer import replay_sequence
from errata.answer.advance import read_state
from errata.answer.inputs import RunInputs
from errata.answer.replay_sequence import ResultScope
from errata.answer.source_revisions import (
    SourceRevisions,
    revisions_of_late_rows,
    revisions_of_records,
    split_in_place,
)
from errata.answer.stored_lineage import stores_lineage
from errata.answer.task import EvaluationTask
from errata.answer.unread_changes import (
    LateVersions,
    UnreadRevisions,
    UpstreamCorrections,
    current_basis,
    readable_revision,
    unread_changes,
    upstream_archives,
)
from errata.archive.overlays import bucket_sources
from errata.archive.results import normalize_floats
from errata.archive.schemas import conform, feed_schema
from errata.archive.tables import match_rows
from errata.catalog import buckets
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import aged_to_now
from errata.engine.frames import fetch_rows, frame_of_rows, stream_ddl
from errata.engine.plans.compile import compile_plan
from errata.intake.types import arrow_schema
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_plan
from errata.language.route import RouteKind, choose_route, input_spans
from errata.language.source_reads import base_inputs
from errata.model.bucket import Role
from errata.model.commit import EvaluationSpan
from errata.model.results import EVALUATION, VS


@dataclass(frozen=True)
class QueryState:
    """A query, and its results that can be corrected: None where there are none."""

    query: RecordedQuery
    plan: Plan
    basis: ResultArchive | None
    read: tuple[str, ...]
    """The sources that it reads directly."""

    @classmethod
    def of(cls, query: RecordedQuery, plan: Plan, inputs: RunInputs) -> QueryState:
        names = tuple(dict.fromkeys(scan.source.name for scan in scans_of(plan)))
        return cls(query, plan, current_basis(query, names, inputs.view), names)

    def revisions(self, inputs: RunInputs) -> dict[str, int]:
        """For each stream the revision up to which it is read now: no further than by the queries that are read."""
        below = upstream_archives(self.read, inputs.view)
        return {name: readable_revision(inputs.standings[name], below) for name in base_inputs(self.plan)}

    def age_limits(self, inputs: RunInputs) -> dict[str, int | None]:
        """For each source the place before which rows have been aged out."""
        found: dict[str, int | None] = {}
        with inputs.site.catalog.reading() as connection:
            for name in self.read:
                if name in inputs.standings:
                    found[name] = inputs.standings[name].aged_to
                else:
                    found[name] = aged_to_now(connection, inputs.published[name].stream_id)
        return found

    def task(self, inputs: RunInputs) -> EvaluationTask:
        """The query as a task that ends where its results do."""
        if self.basis is None:
            raise AssertionError("what has no results has nothing to correct")
        rewritten = rewritten_plan(self.plan)
        until = self.basis.frontier
        return EvaluationTask(
            self.query,
            self.plan,
            rewritten,
            choose_route(rewritten),
            EvaluationSpan(until, until),
            self.basis,
            None,
            self.revisions(inputs),
            self.basis.shape,
            self.basis.last.begins,
        )


def unread_revisions(state: QueryState, inputs: RunInputs) -> Iterator[SourceRevisions]:
    """The row versions of all changes of its sources that a query's results do not contain."""
    if state.basis is None:
        return
    for change in unread_changes(state.read, state.basis, inputs.view):
        match change:
            case UnreadRevisions():
                yield inputs.view.revised(change)
            case LateVersions():
                yield from _late_rows(change, state.basis, inputs)
            case UpstreamCorrections():
                yield from _corrected_results(change, state.basis, inputs)
            case _:
                assert_never(change)


def _late_rows(change: LateVersions, basis: ResultArchive, inputs: RunInputs) -> Iterator[SourceRevisions]:
    """Late versions of a relation, in the order of the relation."""
    site, stream = inputs.site, change.state.stream
    schema = arrow_schema(stream)
    read = [conform(each.read(site.warehouse), schema) for each in bucket_sources(site.catalog, change.buckets)]
    rows = pa.concat_tables([schema.empty_table(), *read])
    rows = rows.filter(pc.less(rows[stream.order].cast(pa.int64()), basis.frontier))
    if rows.num_rows:
        yield revisions_of_late_rows(stream, rows, change.known, min(each.added_in for each in change.buckets))


def _corrected_results(
    change: UpstreamCorrections, basis: ResultArchive, inputs: RunInputs
) -> Iterator[SourceRevisions]:
    """What corrections of another query's results have changed, as its change records say."""
    site, of = inputs.site, change.upstream
    # Records of buckets that have been merged since are in the merged ones.
    found = buckets.visible_buckets(site.catalog, of.stream_id, of.last.commit_id, role=Role.FEED)
    schema = feed_schema(of.shape)
    read = [conform(each.read(site.warehouse), schema) for each in bucket_sources(site.catalog, found)]
    records = pa.concat_tables([schema.empty_table(), *read])
    numbers = pa.array([each.number for each in change.evaluations], pa.int64())
    behind = pc.and_(pc.is_in(records[EVALUATION], numbers), pc.less_equal(records[VS], basis.frontier))
    records = records.filter(behind)
    if records.num_rows:
        fields = [each.name for each in inputs.plans[of.name].fields]
        names = dict(zip(fields, of.shape.names, strict=True))
        yield revisions_of_records(of.name, records, names, of.shape.payload, change.evaluations[0].commit_id)


def scope_of_results(task: EvaluationTask, basis: ResultArchive, inputs: RunInputs) -> ResultScope:
    """The scope of a query's published results."""
    with inputs.site.catalog.reading() as connection:
        aged = aged_to_now(connection, basis.stream_id)
    return ResultScope(task.rewritten, task.route, basis.last.begins, aged, basis.frontier, stores_lineage(task))


# The state of the route.


@dataclass(frozen=True, slots=True)
class StateImpact:
    """What revisions do to the route's state."""

    wrong: bool = False
    """Whether it is made of rows that were revised, and has to be rebuilt."""
    patched: bool = False
    """Whether rows in it have to be corrected."""


def state_impact(
    of: ResultScope, task: EvaluationTask, basis: ResultArchive, inputs: RunInputs, revised: Sequence[SourceRevisions]
) -> StateImpact:
    """What revisions of a query's sources do to its state."""
    if not stores_lineage(task) or task.route.kind is not RouteKind.ROW_WINDOWS:
        return StateImpact(replay_sequence.touches_kept_state(of, revised))
    parts = [split_in_place(task.rewritten, each) for each in revised]
    wrong = replay_sequence.touches_kept_state(of, [each for _, each in parts if each is not None])
    state = read_state(inputs.site, basis)
    if state is None:
        return StateImpact(wrong=True)
    among = [each for each, _ in parts if each is not None and _kept_rows_revised(task, state, each)]
    if not among:
        return StateImpact(wrong)
    # A row of the state is then a row of the stream, and not made of several.
    if len(scans_of(task.route.input)) == 1 and all(each.after is not None for each in among):
        return StateImpact(wrong, patched=True)
    return StateImpact(wrong=True)


def _kept_rows_revised(task: EvaluationTask, state: pa.Table, revised: SourceRevisions) -> bool:
    """Whether rows of the state may be made of revised ones."""
    kept, moments = np.sort(state[VS].to_numpy()), pc.unique(revised.rows[VS]).to_numpy()
    read = scans_of(task.route.input)
    for scan, span in zip(read, input_spans(task.route.input), strict=True):
        if scan.source.name == revised.source:
            low = np.searchsorted(kept, moments + span.low)
            if (low < np.searchsorted(kept, moments + span.high, side="right")).any():
                return True
    return False


def patch_state(
    task: EvaluationTask, basis: ResultArchive, inputs: RunInputs, revised: Sequence[SourceRevisions]
) -> pa.Table:
    """The state, with the current versions of the revised rows in it."""
    state, below = read_state(inputs.site, basis), task.route.input
    if state is None:
        raise AssertionError("what is not there is not patched")
    (scan,) = scans_of(below)
    (rows,) = (each.after for each in revised if each.source == scan.source.name)
    frame = frame_of_rows(inputs.session, rows, stream_ddl(inputs.standings[scan.source.name].stream))
    fields = [f"c{place}" for place in range(len(below.fields))]
    now = fetch_rows(compile_plan(below, {scan.source.name: frame}).toDF(*fields, VS, "_ve").drop("_ve"))
    now = now.cast(pa.schema([state.schema.field(name) for name in now.column_names]))
    names = [VS, *_key_columns(below)]
    mine, theirs = match_rows(normalize_floats(state, names), normalize_floats(now, names), names)
    place = np.arange(state.num_rows)
    place[mine] = state.num_rows + theirs
    for name in fields:
        column = pa.chunked_array([*state[name].chunks, *now[name].chunks], state.schema.field(name).type)
        state = state.set_column(state.column_names.index(name), state.schema.field(name), column.take(pa.array(place)))
    return state


def _key_columns(plan: Plan) -> list[str]:
    names = [each.name for each in plan.fields]
    return [f"c{names.index(name)}" for name in plan.key]
