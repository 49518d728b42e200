"""The rows behind a result, as they were when it was published and as they are, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.match import matches
from errata.archive.results import buckets_beginning, buckets_counting, frame_of
from errata.archive.scan import Scan, candidates, scan_rows
from errata.archive.tasks import LOCAL_ROWS
from errata.catalog import commits, streams
from errata.catalog.published import Published, evaluations_of, published
from errata.engine.engines import Demand
from errata.engine.frames import column
from errata.engine.plans.rows import quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame, fetch
from errata.errors import ErrataError
from errata.evaluate.reads import Reach
from errata.flows.answering.answered import horizon_of_results
from errata.flows.answering.forms import Form, Forms
from errata.flows.answering.inputs import estimated
from errata.flows.correcting.reached import asked, frame_with_times, valid
from errata.flows.site import Site
from errata.flows.telling.read import horizon_of
from errata.language.lineage import Axis, Region
from errata.model.bucket import Bucket
from errata.model.evaluation import Evaluation
from errata.model.interval import LOWEST, Interval, joined
from errata.model.results import VE, VS
from errata.serve.rows import Rows
from errata.serve.said import Said, said_rows
from errata.serve.story import Behind, Fate, Row, State

SHOWN = 20
"""So many rows of a source are shown."""

DIFFERING = 1_000
"""Of so many rows that differ it is looked at which was which, where many have to be compared."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A result as one evaluation had left it."""

    form: Form
    evaluation: Evaluation
    region: Region

    @property
    def commit_id(self) -> int:
        """The state of the streams that it is made of. A correction knows what had been applied when it was
        committed."""
        evaluation = self.evaluation
        return evaluation.data_commit if evaluation.swept is None else evaluation.commit_id


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a source had behind a result."""

    commit_id: int
    rows: Rows
    """With `_vs`; a table if they are few."""
    count: int
    key: Sequence[str]
    """The columns that tell a row from others."""
    shown: Mapping[str, str]
    """Columns that persons see, and by which names."""
    aged_to: int | None


@dataclass
class Reader:
    """Reads the rows behind results."""

    site: Site
    forms: Forms

    def behind(self, moments: Sequence[Moment], now: Moment) -> list[Behind]:
        """The rows of each source at the first of the moments that can still be read, and now."""
        return [self._of_source(name, moments, now) for name in now.form.sources]

    def _of_source(self, name: str, moments: Sequence[Moment], now: Moment) -> Behind:
        noun = next(str(scan.source.kind) for scan in now.form.scans if scan.source.name == name)
        there = self._rows(name, now, past=False)
        lost = ""
        for each in moments:
            if name not in each.form.sources:
                lost = lost or f"the query did not read {name} then"
                continue
            try:
                was = self._rows(name, each, past=True)
            except ErrataError as error:
                lost = lost or f"{error.what}: {error.why}" if error.why else error.what
                continue
            return self._compared(name, noun, was, there, lost)
        state = State(moments[0].commit_id if moments else there.commit_id, None, lost)
        rows = [Row(Fate.SAME, None, said) for said in _said(there, _last(there.rows))]
        return Behind(name, noun, state, State(there.commit_id, there.count), rows, 0)

    def _rows(self, name: str, moment: Moment, *, past: bool) -> _Rows:
        """The rows behind a result; `past`: only if that state is still to be read exactly."""
        until = moment.evaluation.frontier + 1
        reads = moment.form.reads(moment.region).get(name, [])
        reads = [replace(each, interval=Interval(each.interval.start, min(each.interval.end, until))) for each in reads]
        reads = [each for each in reads if not each.interval.empty]
        of = published(self.site.catalog, name, moment.evaluation.commit_id)
        if of is not None:
            return self._of_query(of, moment, reads, past=past)
        return self._of_stream(name, moment, reads, past=past)

    def _of_stream(self, name: str, moment: Moment, reads: Sequence[Reach], *, past: bool) -> _Rows:
        site = self.site
        # What is read now is what no commit since has taken from the answer: no later revision is read.
        commit_id = moment.commit_id if past else commits.newest(site.catalog)
        standing = streams.standing(site.catalog, name, commit_id)
        if past:
            commits.check_readable(site.catalog, commit_id, horizon_of(site.catalog, standing), name)
        stream, revision = standing.stream, moment.evaluation.revisions.get(name)
        up_to = None if revision is None or revision >= standing.applied else revision
        from_ever = stream.relation is not None
        spans = joined(
            Interval(LOWEST if from_ever or each.axis is Axis.INSTANT else each.interval.start, each.interval.end)
            for each in reads
        )
        hull = Interval(spans[0].start, spans[-1].end) if spans else Interval(0, 0)
        scan = Scan(standing, commit_id, hull, None, up_to)
        found = candidates(site.catalog, scan, indexed=True)
        shown = {each: each for each in stream.names}
        kinds = {each.name: each.type for each in stream.columns}

        def made(session: SparkSession) -> DataFrame:
            rows = scan_rows(session, site.catalog, site.warehouse, scan, found)
            return asked(frame_with_times(rows, stream), reads, kinds)

        demand = Demand(estimated(found.all, hull), sum(each.size for each in found.all))
        rows, _ = site.engines().read(demand, made)
        if not isinstance(rows, pa.Table):
            if (count := rows.count()) > LOCAL_ROWS:
                return _Rows(commit_id, rows.drop(VE), count, stream.key, shown, standing.aged_to)
            rows = fetch(rows)
        if stream.relation is not None:
            rows = valid(rows, stream, reads)
        return _Rows(commit_id, rows.drop_columns([VE]), rows.num_rows, stream.key, shown, standing.aged_to)

    def _of_query(self, of: Published, moment: Moment, reads: Sequence[Reach], *, past: bool) -> _Rows:
        site, shape = self.site, of.shape
        number = moment.evaluation.inputs.get(of.name, of.last.number)
        told = {each.number: each for each in evaluations_of(site.catalog, of.stream_id)}
        commit_id = told[number].commit_id
        if number == max(told):
            commit_id = commits.newest(site.catalog) if published(site.catalog, of.name) else commit_id
        elif past:
            commits.check_readable(site.catalog, commit_id, horizon_of_results(site.catalog), of.name, "query")
        names = self.forms.of(of).fields
        kept = [replace(each, values={names[name]: value for name, value in each.values.items()}) for each in reads]
        found: dict[int, Bucket] = {}
        for each in kept:
            find = buckets_beginning if each.axis is Axis.START else buckets_counting
            found |= {bucket.bucket_id: bucket for bucket in find(site.catalog, of, commit_id, each.interval)}
        shown = {each.name: each.shown for each in shape.columns if each.key or not each.hidden}
        columns, key = [*shape.names, VS], [*shape.key, VS]
        kinds = {each.name: each.type for each in shape.columns}

        def made(session: SparkSession) -> DataFrame:
            rows = frame_of(session, site.catalog, site.warehouse, shape, list(found.values()))
            return asked(rows, kept, kinds).select(*map(quoted, columns))

        rows, _ = site.engines().read(Demand.of(found.values()), made)
        count = rows.num_rows if isinstance(rows, pa.Table) else rows.count()
        return _Rows(commit_id, rows, count, key, shown, None)

    def _compared(self, name: str, noun: str, was: _Rows, now: _Rows, lost: str) -> Behind:
        aged_to = LOWEST if now.aged_to is None else now.aged_to
        left, count = _since(was, aged_to)
        both = isinstance(left, pa.Table) and isinstance(now.rows, pa.Table)
        gone, came, same = differing(left, now.rows) if both else self._by_spark(left, now.rows)
        fates = _paired(was, gone, now, came)
        # What differs is told before what does not; of each the latest, in the order of time.
        told = fates[-SHOWN:]
        room = _last(same, SHOWN - len(told))
        told += [
            (vs, Row(Fate.SAME, said, said)) for vs, said in zip(room[VS].to_pylist(), _said(now, room), strict=True)
        ]
        rows = [row for _, row in sorted(told, key=lambda each: each[0])]
        then = State(was.commit_id, was.count, lost)
        return Behind(name, noun, then, State(now.commit_id, now.count), rows, len(fates), was.count - count)

    def _by_spark(self, left: Rows, right: Rows) -> tuple[pa.Table, pa.Table, pa.Table]:
        """The same as `differing` where there are many rows: only the latest of each kind are brought here."""
        session = self.site.session()
        was, now = (
            each if isinstance(each, DataFrame) else as_frame(session, each, arrow_ddl(each.schema))
            for each in (left, right)
        )
        now = now.select(*map(quoted, was.columns))
        gone, came, same = (
            _latest(each, most)
            for each, most in ((was.subtract(now), DIFFERING), (now.subtract(was), DIFFERING), (now, SHOWN))
        )
        return gone, came, differing(came, same)[1]


def differing(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The rows that are in the left one only, in the right one only, and in both."""
    names = [each for each in right.column_names if each in left.column_names]
    one, other = matches(left.select(names), right.select(names), names)
    return _others(left, one), _others(right, other), right.take(pa.array(np.unique(other)))


def _since(of: _Rows, place: int) -> tuple[Rows, int]:
    """The rows that begin there or later, and how many they are."""
    if place == LOWEST:
        return of.rows, of.count
    if isinstance(of.rows, pa.Table):
        rows = of.rows.filter(pc.greater_equal(of.rows[VS], place))
        return rows, rows.num_rows
    frame = of.rows.where(f"{VS} >= {place}L")
    return frame, frame.count()


def _others(rows: pa.Table, places: np.ndarray) -> pa.Table:
    stays = np.ones(rows.num_rows, np.bool_)
    stays[places] = False
    return rows.filter(pa.array(stays))


def _paired(was: _Rows, gone: pa.Table, now: _Rows, came: pa.Table) -> list[tuple[int, Row]]:
    """The rows that differ, by time, those of one key as one."""
    one, other = matches(gone.select(now.key), came.select(now.key), list(now.key))
    before, after = _said(was, gone), _said(now, came)
    begins = (gone[VS].to_pylist(), came[VS].to_pylist())
    found = [
        (begins[1][new], Row(Fate.CHANGED, before[old], after[new]))
        for old, new in zip(one.tolist(), other.tolist(), strict=True)
    ]
    found += [(begins[0][at], Row(Fate.GONE, before[at], None)) for at in _without(len(before), one)]
    found += [(begins[1][at], Row(Fate.CAME, None, after[at])) for at in _without(len(after), other)]
    return sorted(found, key=lambda each: each[0])


def _without(count: int, places: np.ndarray) -> list[int]:
    left: list[int] = np.setdiff1d(np.arange(count), places).tolist()
    return left


def _last(rows: Rows, most: int = SHOWN) -> pa.Table:
    """The latest of some rows, in the order of time."""
    if not isinstance(rows, pa.Table):
        rows = _latest(rows, most)
    rows = rows.sort_by(VS)
    return rows.slice(max(0, rows.num_rows - most))


def _latest(rows: DataFrame, most: int) -> pa.Table:
    return fetch(rows.orderBy(column(rows, VS).desc()).limit(most))


def _said(of: _Rows, rows: pa.Table) -> list[Said]:
    names = [name for name in of.shown if name in rows.column_names]
    found: list[Said] = [*said_rows(rows.select(names).rename_columns([of.shown[name] for name in names]))]
    return found
