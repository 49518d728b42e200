"""Why an evaluation gave a result its value: the batches, the revisions, and the corrected results of other queries
whose forward lineage leads to it.

Several revisions may have changed one row between two evaluations. `net_revisions` folds them into one change per row:
the row before the first of them, the row after the last, and the last revision as the cause. A row that ends as it
began is no cause.

The catalog names the candidates (buckets added between two commits, ranges of revisions); rows are read only from
buckets whose extent meets the result's, and at most MAX_CAUSES of a kind are returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_frames import LOCAL_ROWS, read_buckets
from errata.archive.overlays import bucket_sources, chain_heads, read_overlays
from errata.archive.schemas import BATCH, LIVE, MASKS, REVISION, conform, feed_schema
from errata.archive.tables import key_numbers
from errata.catalog import buckets, ledger, streams
from errata.catalog.ledger import batch_origins
from errata.catalog.result_archives import ResultArchive, archive_history, evaluations_of, read_archive
from errata.catalog.streams import StreamState
from errata.catalog.undo import undo_batches
from errata.declare.site import Site
from errata.intake.encoding import json_rows
from errata.intake.types import arrow_schema
from errata.language.source_reads import base_inputs, base_reads_at
from errata.model.bucket import Bucket, Role
from errata.model.commit import Evaluation
from errata.model.extent import Extent, ExtentAxis, Value
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, old_column
from errata.model.stream import Stream
from errata.model.time import LOWEST, Interval
from errata.read.provenance import (
    BatchCause,
    CauseList,
    ProvenanceCause,
    QueryEditCause,
    ReplayCause,
    RevisionCause,
    RevisionRangeCause,
    StreamEditCause,
    UpstreamResultCause,
)
from errata.read.query_forms import QueryForm, QueryForms
from errata.read.source_rows import VersionTable, contributing_places, lineage_constants


@dataclass(frozen=True, slots=True)
class NetRevisions:
    """For each row that revisions changed: the last revision, and the row before all of them and after."""

    last: pa.Table
    """The overlay rows of the last revisions, by revision."""
    was: pa.Table
    was_there: pa.Array
    now: pa.Table
    now_there: pa.Array

    def take(self, places: pa.Array | Sequence[int]) -> NetRevisions:
        """The changes at some places."""
        return NetRevisions(*(getattr(self, name).take(places) for name in self.__slots__))


def net_revisions(stream: Stream, rows: pa.Table, undoing: Collection[int]) -> NetRevisions:
    """The net changes of overlay rows that are sorted by revision. `undoing` maps batches to those that they undid."""
    rows = rows.combine_chunks()
    first, of_row = np.unique(chain_heads(rows, undoing), return_inverse=True)
    last = np.zeros(len(first), dtype=np.int64)
    last[of_row] = np.arange(rows.num_rows)  # of several, the last one is kept
    order = np.argsort(last)
    first, last = first[order], last[order]
    began, ended = rows.take(pa.array(first)), rows.take(pa.array(last))
    was = began.select([old_column(name) for name in stream.names]).rename_columns(stream.names)
    now = ended.select(stream.names)
    found = NetRevisions(ended, was, _bool_array(began, MASKS), now, _bool_array(ended, LIVE))
    return found.take(np.flatnonzero(_changed_rows(found)))


def _changed_rows(found: NetRevisions) -> np.ndarray:
    numbers = key_numbers(pa.concat_tables([found.was, found.now.cast(found.was.schema)]))
    was, now = np.split(numbers, 2)
    before, after = (np.asarray(each) for each in (found.was_there, found.now_there))
    differ: np.ndarray = (before != after) | (before & after & (was != now))
    return differ


def _bool_array(rows: pa.Table, name: str) -> pa.Array:
    return pa.array(np.asarray(pc.fill_null(rows[name], False).to_numpy(), dtype=bool))


# Causes of a result.

MAX_CAUSES = 20
"""Causes of one kind that are returned; the rest are counted."""

MAX_NESTED_CAUSES = 3
"""Causes returned of a change that is itself returned as a cause."""


@dataclass(frozen=True, slots=True)
class TracedResult:
    """A result of an evaluation, whose causes are wanted."""

    of: ResultArchive
    evaluation: Evaluation
    key: Mapping[str, Value]
    vs: int
    at: int


@dataclass
class CauseTracer:
    """Finds the causes of results."""

    site: Site
    forms: QueryForms
    _evaluations: dict[int, dict[int, Evaluation]] = field(default_factory=dict)

    def causes(self, result: TracedResult, most: int = MAX_CAUSES) -> CauseList:
        """Why the evaluation gave the result its value."""
        evaluation = result.evaluation
        match evaluation.cause.get("type"):
            case "query":
                return CauseList([self._edit(result.of, evaluation)])
            case "stream":
                return CauseList([StreamEditCause(str(evaluation.cause["id"]))])
            case "replay":
                return CauseList([ReplayCause()])
        form = self.forms.of(result.of)
        region = form.region(result.key, result.vs, result.at)
        before = self._before(result.of, evaluation)
        found: list[ProvenanceCause] = []
        if evaluation.correction is not None:
            for name, (since, up_to) in evaluation.correction.revisions.items():
                found += self._taken_up(form, region, name, since, up_to, result) or _revision_range(name, since, up_to)
        else:
            reads, gone = form.reads(region), dict[str, pa.Table]()
            for name in form.sources:
                since, up_to = (0 if each is None else each.revisions.get(name, 0) for each in (before, evaluation))
                if up_to > since:
                    standing = streams.stream_state(self.site.catalog, name, evaluation.commit_id)
                    net = self._revised(form, region, standing, reads[name], since, up_to)
                    gone[name] = net.was.filter(net.was_there)
                    found += self._corrections(standing.stream, net)
            arrived = self._batches(form, region, reads, result, gone)
            if not found or any(each.brings for each in arrived):
                found = [*arrived, *found]
        return CauseList(found[:most], max(0, len(found) - most))

    def _edit(self, of: ResultArchive, evaluation: Evaluation) -> QueryEditCause:
        caused_by = evaluation.cause.get("id", of.name)
        if caused_by != of.name:
            return QueryEditCause(reads=caused_by)
        archives = [each for each, _ in archive_history(self.site.catalog, of.name)]
        earlier = [each for each in archives if each.added_in < of.added_in]
        return QueryEditCause(bool(earlier) and earlier[-1].query_id == of.query_id)

    def _before(self, of: ResultArchive, evaluation: Evaluation) -> Evaluation | None:
        return self._numbered(of).get(evaluation.number - 1)

    def _rows_since(self, of: ResultArchive, evaluation: Evaluation) -> int:
        """The commit of the streams' state that the answer had last been advanced over; corrections in between do not
        move it."""
        earlier = [each for each in self._numbered(of).values() if each.number < evaluation.number]
        return max((each.data_commit for each in earlier if each.correction is None and not each.is_part), default=0)

    def _numbered(self, of: ResultArchive) -> dict[int, Evaluation]:
        if of.stream_id not in self._evaluations:
            told = evaluations_of(self.site.catalog, of.stream_id)
            self._evaluations[of.stream_id] = {each.number: each for each in told}
        return self._evaluations[of.stream_id]

    def _taken_up(
        self, form: QueryForm, region: Extent, name: str, since: int, up_to: int, result: TracedResult
    ) -> list[ProvenanceCause]:
        """The revisions of a source that a sweep took up and that lead to the result."""
        catalog, commit_id = self.site.catalog, result.evaluation.commit_id
        reads = form.reads(region).get(name, [])
        of = read_archive(catalog, name, commit_id)
        if of is not None:
            return self._results(form, region, of, reads, (since, up_to), result)
        standing = streams.stream_state(catalog, name, commit_id)
        found = self._revisions(form, region, standing, reads, since, up_to)
        before = self._before(result.of, result.evaluation)
        if standing.stream.relation is not None and before is not None:
            found += self._versions(form, region, standing, reads, (before.data_commit, commit_id - 1))
        return found

    def _batches(
        self,
        form: QueryForm,
        region: Extent,
        reads: Mapping[str, Sequence[Extent]],
        result: TracedResult,
        gone: Mapping[str, pa.Table],
    ) -> list[BatchCause]:
        """The batches appended since the evaluation before: those that can have brought rows behind the result which
        had not expired by then (`gone`); if there are none, all of them."""
        catalog, evaluation = self.site.catalog, result.evaluation
        since = self._rows_since(result.of, evaluation)
        spans = _read_spans(form, reads, result.at)
        standings = {name: streams.stream_state(catalog, name, evaluation.commit_id) for name in base_inputs(form.plan)}
        ids = {each.stream_id: name for name, each in standings.items()}
        came = [each for each in ledger.appended_batches(catalog, since, evaluation.data_commit) if each[0] in ids]
        bringing = {
            (stream_id, bucket.added_in)
            for stream_id in {stream_id for stream_id, _, _ in came}
            for bucket in buckets.added_between(
                catalog, stream_id, [Role.BASE], after=since, up_to=evaluation.data_commit
            )
            if any(span.meets(bucket.vs_min, bucket.vs_max) for span in spans.get(ids[stream_id], ()))
            and self._brings(form, region, standings[ids[stream_id]], reads, bucket, gone)
        }
        brought = [each for each in came if each[:2] in bringing]
        return [
            BatchCause(ids[stream_id], batch_id, commit_id, bool(brought))
            for stream_id, commit_id, batch_id in brought or came
        ]

    def _brings(
        self,
        form: QueryForm,
        region: Extent,
        of: StreamState,
        reads: Mapping[str, Sequence[Extent]],
        bucket: Bucket,
        gone: Mapping[str, pa.Table],
    ) -> bool:
        """Whether a bucket can have rows behind a region that had not expired by then. A large bucket is not read: the
        answer for it is yes."""
        name, key = of.stream.name, list(of.stream.key)
        if bucket.rows > LOCAL_ROWS or any(scan.source.plan is not None for scan in form.scans):
            return True
        (source,) = bucket_sources(self.site.catalog, [bucket])
        rows = conform(source.read(self.site.warehouse), arrow_schema(of.stream))
        if (left := gone.get(name)) is not None:
            numbers = key_numbers(pa.concat_tables([left.select(key), rows.select(key)]))
            rows = rows.filter(pa.array(~np.isin(numbers[left.num_rows :], numbers[: left.num_rows])))
        sides = [VersionTable(rows, pa.array(np.ones(rows.num_rows, np.bool_)))]
        return len(contributing_places(form, region, reads[name], name, sides, of.stream)) > 0

    def _revisions(
        self, form: QueryForm, region: Extent, of: StreamState, reads: Sequence[Extent], since: int, up_to: int
    ) -> list[ProvenanceCause]:
        """The revisions after `since` and up to `up_to` that lead to a region: of each row the last one."""
        return [*self._corrections(of.stream, self._revised(form, region, of, reads, since, up_to))]

    def _revised(
        self, form: QueryForm, region: Extent, of: StreamState, reads: Sequence[Extent], since: int, up_to: int
    ) -> NetRevisions:
        """The same as rows."""
        site, stream = self.site, of.stream
        hull = Interval(
            min((_first_place_read(each) for each in reads), default=0),
            max((each.interval.end for each in reads), default=0),
        )
        ever = [] if hull.empty else buckets.all_overlays(site.catalog, of.stream_id, hull)
        found = [each for each in ever if (each.revision_last or 0) > since and (each.revision_first or 0) <= up_to]
        rows = read_overlays(stream, site.warehouse, bucket_sources(site.catalog, found))
        rows = rows.filter(pc.and_(pc.greater(rows[REVISION], since), pc.less_equal(rows[REVISION], up_to)))
        net = net_revisions(stream, rows.sort_by(REVISION), undo_batches(site.catalog, of.stream_id))
        sides = [VersionTable(net.was, net.was_there), VersionTable(net.now, net.now_there)]
        return net.take(contributing_places(form, region, reads, stream.name, sides, stream))

    def _corrections(self, stream: Stream, net: NetRevisions) -> Iterator[ProvenanceCause]:
        known = batch_origins(self.site.catalog, net.last[BATCH].to_pylist())
        undone = batch_origins(self.site.catalog, [each.undoes for each in known.values() if each.undoes is not None])
        told = net.last.select([REVISION, BATCH, POS]).to_pylist()
        there = zip(net.was_there.to_pylist(), net.now_there.to_pylist(), strict=True)
        for said, before, after, (was, now) in zip(told, json_rows(net.was), json_rows(net.now), there, strict=True):
            origin = known[said[BATCH]]
            yield RevisionCause(
                stream.name,
                said[REVISION],
                origin.batch_id,
                *origin.line_of(said[POS]),
                None if origin.undoes is None else undone[origin.undoes].batch_id,
                before if was else None,
                after if now else None,
            )

    def _versions(
        self, form: QueryForm, region: Extent, of: StreamState, reads: Sequence[Extent], commits: tuple[int, int]
    ) -> list[ProvenanceCause]:
        """Versions of a relation that were added between two commits and lead to a region."""
        site, stream = self.site, of.stream
        came = buckets.added_between(site.catalog, of.stream_id, [Role.BASE], after=commits[0], up_to=commits[1])
        found: list[ProvenanceCause] = []
        schema = arrow_schema(stream).append(pa.field(POS, pa.int64()))
        for source in bucket_sources(site.catalog, [each for each in came if each.batch_no is not None]):
            rows = conform(source.read(site.warehouse), schema)
            now = rows.select(stream.names)
            there = pa.repeat(pa.scalar(True), rows.num_rows)
            told = contributing_places(form, region, reads, stream.name, [VersionTable(now, there)], stream)
            (origin,) = batch_origins(site.catalog, [source.bucket.batch_no or 0]).values()
            places = rows[POS].take(told).to_pylist()
            for pos, said in zip(places, json_rows(now.take(told)), strict=True):
                where = ("", 0) if pos is None else origin.line_of(pos)
                found.append(RevisionCause(stream.name, None, origin.batch_id, *where, None, None, said))
        return found

    def _results(
        self,
        form: QueryForm,
        region: Extent,
        of: ResultArchive,
        reads: Sequence[Extent],
        numbers: tuple[int, int],
        result: TracedResult,
    ) -> list[ProvenanceCause]:
        """The corrected results of another query that lead to a region; `numbers` are two of its evaluations, the first
        exclusive."""
        known = self._numbered(of)
        sweeps = [each for number, each in known.items() if numbers[0] < number <= numbers[1] and each.correction]
        if not sweeps:
            return []
        site, shape, inner = self.site, of.shape, self.forms.of(of)
        first, last = sweeps[0].commit_id - 1, sweeps[-1].commit_id
        schema = feed_schema(shape)
        found = buckets.added_between(site.catalog, of.stream_id, [Role.FEED], after=first, up_to=last)
        rows = read_buckets(site.catalog, site.warehouse, schema, found)
        rows = rows.filter(pc.is_in(rows[EVALUATION], pa.array([each.number for each in sweeps], pa.int64()))).sort_by(
            EVALUATION
        )
        # Of several corrections of one result, the last is the one that was read.
        _, from_end = np.unique(key_numbers(rows.select([*shape.key, VS]))[::-1], return_index=True)
        rows = rows.take(pa.array(np.sort(rows.num_rows - 1 - from_end)))
        names = inner.fields
        olds = [old_column(kept) if kept in shape.payload else kept for kept in names.values()]
        was = pa.table([*(rows[each] for each in olds), rows[VS], rows[OLD_VE]], [*names, VS, VE])
        now = pa.table([*(rows[each] for each in names.values()), rows[VS], rows[VE]], [*names, VS, VE])
        sides = [
            VersionTable(was, pc.not_equal(rows[OP], "insert")),
            VersionTable(now, pc.not_equal(rows[OP], "delete")),
        ]
        told = contributing_places(form, region, reads, of.name, sides, None)
        return list(self._changed(of, rows.take(told), result.at))

    def _changed(self, of: ResultArchive, rows: pa.Table, at: int) -> Iterator[ProvenanceCause]:
        shape, known = of.shape, self._numbered(of)
        shown = {each.name: each.shown for each in shape.columns}
        keys = rows.select(shape.key)
        visible = [name for name in shape.payload if name in shape.visible]
        was = rows.select([old_column(name) for name in visible]).rename_columns(visible)
        constant = lineage_constants(keys).to_pylist() if shape.key else [{}] * rows.num_rows
        told = rows.select([OP, VS, EVALUATION]).to_pylist()
        texts = (
            json_rows(keys.rename_columns([shown[name] for name in shape.key])),
            json_rows(was),
            json_rows(rows.select(visible)),
        )
        for place, (said, key) in enumerate(zip(told, constant, strict=True)):
            evaluation = known[said[EVALUATION]]
            below = TracedResult(of, evaluation, key, said[VS], max(said[VS], min(at, evaluation.frontier)))
            yield UpstreamResultCause(
                of.name,
                texts[0][place],
                said[VS],
                shape.timed,
                evaluation.commit_id,
                None if said[OP] == "insert" else texts[1][place],
                None if said[OP] == "delete" else texts[2][place],
                self.causes(below, MAX_NESTED_CAUSES),
            )


def _revision_range(name: str, since: int, up_to: int) -> list[ProvenanceCause]:
    return [RevisionRangeCause(name, since + 1, up_to)] if up_to > since else []


def _first_place_read(reach: Extent) -> int:
    return reach.interval.start if reach.axis is ExtentAxis.START else LOWEST


def _read_spans(form: QueryForm, reads: Mapping[str, Sequence[Extent]], at: int) -> dict[str, list[Interval]]:
    """The intervals of streams and relations whose rows make a result, also through other queries."""
    found: dict[str, list[Interval]] = {}
    for scan in form.scans:
        name, inner = scan.source.name, scan.source.plan
        if inner is None:
            found[name] = [Interval(_first_place_read(each), each.interval.end) for each in reads[name]]
            continue
        for base, span in base_reads_at(inner, at).items():
            found.setdefault(base, []).append(span)
    return found
