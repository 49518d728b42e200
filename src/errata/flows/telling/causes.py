"""Why an evaluation gave a result the value that it has: the batches, the revisions and the corrected results of other
queries whose forward lineage leads to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.keys import key_numbers
from errata.archive.masks import read_overlays, sources
from errata.archive.overlay import BATCH, REVISION
from errata.archive.result_rows import feed_schema
from errata.archive.tasks import LOCAL_ROWS, rows_in
from errata.archive.wire import conformed
from errata.archive.written import POS
from errata.catalog import buckets, ledger, streams
from errata.catalog.origins import origins
from errata.catalog.published import Published, evaluations_of, ever_published, published
from errata.catalog.streams import Standing
from errata.catalog.undo import undoings
from errata.evaluate.reads import Reach
from errata.flows.answering.forms import Form, Forms
from errata.flows.answering.needed import base_names, needed
from errata.flows.site import Site
from errata.flows.telling.leading import Side, as_constants, leading
from errata.flows.telling.net_revisions import NetRevisions, net_revisions
from errata.intake.arrow_types import arrow_schema
from errata.language.expr import Value
from errata.language.lineage import Axis, Region
from errata.model.bucket import Bucket, Role
from errata.model.evaluation import Evaluation
from errata.model.interval import LOWEST, Interval
from errata.model.results import OLD_VE, OP, RUN, VE, VS, old
from errata.model.stream import Stream
from errata.serve.said import said_rows
from errata.serve.story import Batch, Cause, Causes, Correction, Edit, Redeclared, Replayed, ResultChanged, Swept

MOST = 20
"""So many causes of one kind are told."""

MOST_BELOW = 3
"""So many of a change that is itself told as a cause."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of an evaluation."""

    of: Published
    evaluation: Evaluation
    key: Mapping[str, Value]
    vs: int
    at: int


@dataclass
class Tracer:
    """Finds causes."""

    site: Site
    forms: Forms
    _evaluations: dict[int, dict[int, Evaluation]] = field(default_factory=dict)

    def causes(self, result: Result, most: int = MOST) -> Causes:
        """Why the evaluation gave the result its value."""
        evaluation = result.evaluation
        match evaluation.cause.get("type"):
            case "query":
                return Causes([self._edit(result.of, evaluation)])
            case "stream":
                return Causes([Redeclared(str(evaluation.cause["id"]))])
            case "replay":
                return Causes([Replayed()])
        form = self.forms.of(result.of)
        region = form.region(result.key, result.vs, result.at)
        before = self._before(result.of, evaluation)
        found: list[Cause] = []
        if evaluation.swept is not None:
            for name, (since, up_to) in evaluation.swept.revisions.items():
                found += self._taken_up(form, region, name, since, up_to, result) or _together(name, since, up_to)
        else:
            reads, gone = form.reads(region), dict[str, pa.Table]()
            for name in form.sources:
                since, up_to = (0 if each is None else each.revisions.get(name, 0) for each in (before, evaluation))
                if up_to > since:
                    standing = streams.standing(self.site.catalog, name, evaluation.commit_id)
                    net = self._revised(form, region, standing, reads[name], since, up_to)
                    gone[name] = net.was.filter(net.was_there)
                    found += self._corrections(standing.stream, net)
            arrived = self._batches(form, region, reads, result, gone)
            if not found or any(each.brings for each in arrived):
                found = [*arrived, *found]
        return Causes(found[:most], max(0, len(found) - most))

    def _edit(self, of: Published, evaluation: Evaluation) -> Edit:
        caused_by = evaluation.cause.get("id", of.name)
        if caused_by != of.name:
            return Edit(reads=caused_by)
        archives = [each for each, _ in ever_published(self.site.catalog, of.name)]
        earlier = [each for each in archives if each.added_in < of.added_in]
        return Edit(bool(earlier) and earlier[-1].query_id == of.query_id)

    def _before(self, of: Published, evaluation: Evaluation) -> Evaluation | None:
        return self._numbered(of).get(evaluation.number - 1)

    def _rows_since(self, of: Published, evaluation: Evaluation) -> int:
        """The state of the streams up to which the answer had gone on before, all the way: corrections in between did
        not."""
        earlier = [each for each in self._numbered(of).values() if each.number < evaluation.number]
        return max((each.data_commit for each in earlier if each.swept is None and not each.is_part), default=0)

    def _numbered(self, of: Published) -> dict[int, Evaluation]:
        if of.stream_id not in self._evaluations:
            told = evaluations_of(self.site.catalog, of.stream_id)
            self._evaluations[of.stream_id] = {each.number: each for each in told}
        return self._evaluations[of.stream_id]

    def _taken_up(self, form: Form, region: Region, name: str, since: int, up_to: int, result: Result) -> list[Cause]:
        """What a sweep has taken up of a source that leads to the result."""
        catalog, commit_id = self.site.catalog, result.evaluation.commit_id
        reads = form.reads(region).get(name, [])
        of = published(catalog, name, commit_id)
        if of is not None:
            return self._results(form, region, of, reads, (since, up_to), result)
        standing = streams.standing(catalog, name, commit_id)
        found = self._revisions(form, region, standing, reads, since, up_to)
        before = self._before(result.of, result.evaluation)
        if standing.stream.relation is not None and before is not None:
            found += self._versions(form, region, standing, reads, (before.data_commit, commit_id - 1))
        return found

    def _batches(
        self,
        form: Form,
        region: Region,
        reads: Mapping[str, Sequence[Reach]],
        result: Result,
        gone: Mapping[str, pa.Table],
    ) -> list[Batch]:
        """The batches that have come since the evaluation before: those that can have brought rows behind the result
        that were not `gone` by then, and if there are none, all."""
        catalog, evaluation = self.site.catalog, result.evaluation
        since = self._rows_since(result.of, evaluation)
        spans = _spans(form, reads, result.at)
        standings = {name: streams.standing(catalog, name, evaluation.commit_id) for name in base_names(form.plan)}
        ids = {each.stream_id: name for name, each in standings.items()}
        came = [each for each in ledger.since(catalog, since, evaluation.data_commit) if each[0] in ids]
        bringing = {
            (stream_id, bucket.added_in)
            for stream_id in {stream_id for stream_id, _, _ in came}
            for bucket in buckets.added(catalog, stream_id, [Role.BASE], after=since, up_to=evaluation.data_commit)
            if any(span.meets(bucket.vs_min, bucket.vs_max) for span in spans.get(ids[stream_id], ()))
            and self._brings(form, region, standings[ids[stream_id]], reads, bucket, gone)
        }
        brought = [each for each in came if each[:2] in bringing]
        return [
            Batch(ids[stream_id], batch_id, commit_id, bool(brought))
            for stream_id, commit_id, batch_id in brought or came
        ]

    def _brings(
        self,
        form: Form,
        region: Region,
        of: Standing,
        reads: Mapping[str, Sequence[Reach]],
        bucket: Bucket,
        gone: Mapping[str, pa.Table],
    ) -> bool:
        """Whether a bucket that was brought can have rows behind a region that were not gone by then. Of a large one,
        which is not read, that is taken for granted."""
        name, key = of.stream.name, list(of.stream.key)
        if bucket.rows > LOCAL_ROWS or any(scan.source.plan is not None for scan in form.scans):
            return True
        (source,) = sources(self.site.catalog, [bucket])
        rows = conformed(source.read(self.site.warehouse), arrow_schema(of.stream))
        if (left := gone.get(name)) is not None:
            numbers = key_numbers(pa.concat_tables([left.select(key), rows.select(key)]))
            rows = rows.filter(pa.array(~np.isin(numbers[left.num_rows :], numbers[: left.num_rows])))
        sides = [Side(rows, pa.array(np.ones(rows.num_rows, np.bool_)))]
        return len(leading(form, region, reads[name], name, sides, of.stream)) > 0

    def _revisions(
        self, form: Form, region: Region, of: Standing, reads: Sequence[Reach], since: int, up_to: int
    ) -> list[Cause]:
        """The revisions after one and up to another that lead to a region: of each row the last."""
        return [*self._corrections(of.stream, self._revised(form, region, of, reads, since, up_to))]

    def _revised(
        self, form: Form, region: Region, of: Standing, reads: Sequence[Reach], since: int, up_to: int
    ) -> NetRevisions:
        """The same as rows."""
        site, stream = self.site, of.stream
        hull = Interval(
            min((_begins(each) for each in reads), default=0), max((each.interval.end for each in reads), default=0)
        )
        ever = [] if hull.empty else buckets.overlays_ever(site.catalog, of.stream_id, hull)
        found = [each for each in ever if (each.revision_last or 0) > since and (each.revision_first or 0) <= up_to]
        rows = read_overlays(stream, site.warehouse, sources(site.catalog, found))
        rows = rows.filter(pc.and_(pc.greater(rows[REVISION], since), pc.less_equal(rows[REVISION], up_to)))
        net = net_revisions(stream, rows.sort_by(REVISION), undoings(site.catalog, of.stream_id))
        sides = [Side(net.was, net.was_there), Side(net.now, net.now_there)]
        return net.take(leading(form, region, reads, stream.name, sides, stream))

    def _corrections(self, stream: Stream, net: NetRevisions) -> Iterator[Cause]:
        known = origins(self.site.catalog, net.last[BATCH].to_pylist())
        undone = origins(self.site.catalog, [each.undoes for each in known.values() if each.undoes is not None])
        told = net.last.select([REVISION, BATCH, POS]).to_pylist()
        there = zip(net.was_there.to_pylist(), net.now_there.to_pylist(), strict=True)
        for said, before, after, (was, now) in zip(told, said_rows(net.was), said_rows(net.now), there, strict=True):
            origin = known[said[BATCH]]
            yield Correction(
                stream.name,
                said[REVISION],
                origin.batch_id,
                *origin.line_of(said[POS]),
                None if origin.undoes is None else undone[origin.undoes].batch_id,
                before if was else None,
                after if now else None,
            )

    def _versions(
        self, form: Form, region: Region, of: Standing, reads: Sequence[Reach], commits: tuple[int, int]
    ) -> list[Cause]:
        """Versions of a relation that have come between two commits and lead to a region."""
        site, stream = self.site, of.stream
        came = buckets.added(site.catalog, of.stream_id, [Role.BASE], after=commits[0], up_to=commits[1])
        found: list[Cause] = []
        schema = arrow_schema(stream).append(pa.field(POS, pa.int64()))
        for source in sources(site.catalog, [each for each in came if each.batch_no is not None]):
            rows = conformed(source.read(site.warehouse), schema)
            now = rows.select(stream.names)
            there = pa.repeat(pa.scalar(True), rows.num_rows)
            told = leading(form, region, reads, stream.name, [Side(now, there)], stream)
            (origin,) = origins(site.catalog, [source.bucket.batch_no or 0]).values()
            places = rows[POS].take(told).to_pylist()
            for pos, said in zip(places, said_rows(now.take(told)), strict=True):
                where = ("", 0) if pos is None else origin.line_of(pos)
                found.append(Correction(stream.name, None, origin.batch_id, *where, None, None, said))
        return found

    def _results(
        self,
        form: Form,
        region: Region,
        of: Published,
        reads: Sequence[Reach],
        numbers: tuple[int, int],
        result: Result,
    ) -> list[Cause]:
        """The corrected results of another query that lead to a region; `numbers`: after the one evaluation of it, and
        up to the other."""
        known = self._numbered(of)
        sweeps = [each for number, each in known.items() if numbers[0] < number <= numbers[1] and each.swept]
        if not sweeps:
            return []
        site, shape, inner = self.site, of.shape, self.forms.of(of)
        first, last = sweeps[0].commit_id - 1, sweeps[-1].commit_id
        schema = feed_schema(shape)
        found = buckets.added(site.catalog, of.stream_id, [Role.FEED], after=first, up_to=last)
        rows = rows_in(site.catalog, site.warehouse, schema, found)
        rows = rows.filter(pc.is_in(rows[RUN], pa.array([each.number for each in sweeps], pa.int64()))).sort_by(RUN)
        # Of several corrections of one result the last is what was read.
        _, from_end = np.unique(key_numbers(rows.select([*shape.key, VS]))[::-1], return_index=True)
        rows = rows.take(pa.array(np.sort(rows.num_rows - 1 - from_end)))
        names = inner.fields
        olds = [old(kept) if kept in shape.payload else kept for kept in names.values()]
        was = pa.table([*(rows[each] for each in olds), rows[VS], rows[OLD_VE]], [*names, VS, VE])
        now = pa.table([*(rows[each] for each in names.values()), rows[VS], rows[VE]], [*names, VS, VE])
        sides = [Side(was, pc.not_equal(rows[OP], "insert")), Side(now, pc.not_equal(rows[OP], "delete"))]
        told = leading(form, region, reads, of.name, sides, None)
        return list(self._changed(of, rows.take(told), result.at))

    def _changed(self, of: Published, rows: pa.Table, at: int) -> Iterator[Cause]:
        shape, known = of.shape, self._numbered(of)
        shown = {each.name: each.shown for each in shape.columns}
        keys = rows.select(shape.key)
        visible = [name for name in shape.payload if name in shape.visible]
        was = rows.select([old(name) for name in visible]).rename_columns(visible)
        constant = as_constants(keys).to_pylist() if shape.key else [{}] * rows.num_rows
        told = rows.select([OP, VS, RUN]).to_pylist()
        texts = (
            _said(keys.rename_columns([shown[name] for name in shape.key])),
            _said(was),
            _said(rows.select(visible)),
        )
        for place, (said, key) in enumerate(zip(told, constant, strict=True)):
            evaluation = known[said[RUN]]
            below = Result(of, evaluation, key, said[VS], max(said[VS], min(at, evaluation.frontier)))
            yield ResultChanged(
                of.name,
                texts[0][place],
                said[VS],
                shape.timed,
                evaluation.commit_id,
                None if said[OP] == "insert" else texts[1][place],
                None if said[OP] == "delete" else texts[2][place],
                self.causes(below, MOST_BELOW),
            )


def _said(rows: pa.Table) -> list[dict[str, object]]:
    return said_rows(rows) if rows.num_columns else [{} for _ in range(rows.num_rows)]


def _together(name: str, since: int, up_to: int) -> list[Cause]:
    return [Swept(name, since + 1, up_to)] if up_to > since else []


def _begins(reach: Reach) -> int:
    return reach.interval.start if reach.axis is Axis.START else LOWEST


def _spans(form: Form, reads: Mapping[str, Sequence[Reach]], at: int) -> dict[str, list[Interval]]:
    """Where the rows of streams and relations lie that make a result, also through other queries."""
    found: dict[str, list[Interval]] = {}
    for scan in form.scans:
        name, inner = scan.source.name, scan.source.plan
        if inner is None:
            found[name] = [Interval(_begins(each), each.interval.end) for each in reads[name]]
            continue
        for base, span in needed(inner, at).items():
            found.setdefault(base, []).append(span)
    return found
