"""What revisions touch of a query's results worked out again, and laid against what is published."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.archive.masked_results import same_results
from errata.archive.published_between import results_beginning, results_counting
from errata.archive.result_rows import rows_schema
from errata.archive.results import ResultWriter, buckets_beginning, buckets_counting, frame_of
from errata.archive.wire import conformed
from errata.engine.failures import JOB_FAILURES, how_to_mend, last_word, loggers_quiet, of_some_row
from errata.engine.plans.compile import compile_plan
from errata.engine.values import fetch
from errata.errors import ErrataError
from errata.evaluate import faults
from errata.evaluate.deposit import kept
from errata.evaluate.stored import made_again
from errata.flows.answering import lineage_kept
from errata.flows.answering.evaluate import StoppedError
from errata.flows.answering.inputs import Inputs, Read, measured
from errata.flows.correcting import windows
from errata.flows.correcting.state_patched import patched
from errata.flows.correcting.sweeping import Sweeping
from errata.language.lineage import Axis, Region
from errata.language.rough import rough_columns
from errata.model.bucket import Bucket, Role
from errata.model.evaluation import Measures, Refusal
from errata.model.interval import HIGHEST, LOWEST, Interval, joined
from errata.model.results import VE, VS
from errata.revise.amend import Amending
from errata.revise.amender import Amender, Laid
from errata.revise.stored import unlike_stored
from errata.revise.technique import Technique
from errata.revise.work import Stored, Work, rereading

LARGE = 2_000_000
"""What is made of more rows than this is laid against what is published in Spark's tasks."""

FEW = 100_000
"""Unless so few results are there, and so few come of it: starting tasks for each piece takes longer than to lay them
against each other here."""

TASK_ROWS = 500_000
"""A task of such has about so many."""

APART = 64
"""Windows that end at so many different times are read again one by one; of more, all between."""


@dataclass(frozen=True)
class Worked:
    """What becomes of a query's results, before it is committed."""

    sweeping: Sweeping
    laid: Laid
    """What has been written, and is to be committed."""
    refused: Sequence[Refusal]
    measures: Measures

    @property
    def changed(self) -> int:
        """How many results come out different."""
        return self.laid.changed


_NOTHING = Laid([], 0, 0)

_NOT_ADJUSTED = "what was kept of the windows could not be adjusted, so their rows are read"


@dataclass
class _Reading:
    """What has been read so far."""

    inputs: Inputs
    read: dict[str, Read] = field(default_factory=dict)
    all: list[Read] = field(default_factory=list)

    def of(self, sweeping: Sweeping, work: Work) -> dict[str, Read]:
        task = sweeping.task
        self.read = {
            name: self.inputs.read_all(name, some, task.step.until, task.revisions.get(name))
            for name, some in work.reads.items()
        }
        self.all += self.read.values()
        return self.read


@dataclass(frozen=True)
class _Found:
    """What was worked out, and what became of it."""

    laid: Laid
    parts: pa.Table | None = None
    """What is to be kept of final windows, where it is."""
    refused: tuple[Refusal, ...] = ()
    state: pa.Table | None = None
    """What the strategy keeps, where rows in it were put right."""


def worked_out(sweeping: Sweeping, inputs: Inputs) -> Worked:
    """Work out again what has to be, and lay it against what is published."""
    began = time.perf_counter()
    task, readings = sweeping.task, [_Reading(inputs)]

    def work(inputs: Inputs) -> _Found:
        readings.append(_Reading(inputs))
        found = _found(sweeping, readings[-1])
        if not sweeping.patches_state:
            return found
        return replace(found, state=patched(task, sweeping.basis, inputs, sweeping.revised))

    try:
        with loggers_quiet():
            found, choice = inputs.run(sweeping.demand(inputs), work)
    except JOB_FAILURES as error:
        if sweeping.technique is Technique.DIRECT and of_some_row(error):
            # On the way from what was kept to what is right there may be a number that is in neither.
            return worked_out(replace(sweeping, technique=Technique.MINIMAL, why=_NOT_ADJUSTED), inputs)
        frames = {name: each.frame for name, each in readings[-1].read.items()}
        if sweeping.technique is Technique.DIRECT:
            frames = windows.revised_rows(sweeping, readings[-1].inputs, "came") | frames
        fault = faults.find(task.rewritten, frames, error, until=task.step.until)
        if fault.expression or of_some_row(error):
            raise StoppedError(fault) from error
        raise ErrataError(
            f"the results of query {task.name} could not be corrected",
            why=last_word(error),
            how=f"{how_to_mend(error)} and run it again: what was published stands, and what was revised still waits",
        ) from error
    micros, reading = round((time.perf_counter() - began) * 1e6), readings[-1]
    measures = replace(
        measured(reading.all),
        rows_asked=sum(each.rows for each in reading.all),
        rows=found.laid.changed,
        micros=micros,
        route=sweeping.technique.value,
        engine=choice.engine.value,
        engine_why=choice.why,
    )
    laid = found.laid
    if found.parts is not None:
        laid.buckets.extend(_writer(sweeping, inputs).write(Role.PARTS, found.parts))
    if found.state is not None:
        laid.buckets.extend(_writer(sweeping, inputs).write_state(found.state, task.step.until))
    return Worked(sweeping, laid, (*sweeping.work.refused, *found.refused), measures)


def _found(sweeping: Sweeping, reading: _Reading) -> _Found:
    """What becomes of the published results in the regions."""
    task, route = sweeping.task, sweeping.task.route
    regions = [_kept_region(sweeping, each) for each in sweeping.work.regions]
    amender = Amender(_writer(sweeping, reading.inputs), task.shape, _told(sweeping), regions)
    if not regions:
        return _Found(Laid([], 0, 0))
    if sweeping.technique is Technique.DIRECT:
        return _adjusted(sweeping, reading, amender)
    if (stored := sweeping.work.stored) is not None:
        return _by_stored(sweeping, stored, reading, amender)
    if not route.keeps_parts:
        return _Found(_replayed(sweeping, reading, amender))
    if (least := sweeping.work.least) is not None:
        # What is kept of windows changes only where revised rows are.
        laid = _replayed(sweeping, reading, amender)
        some = [_kept_region(sweeping, each) for each in least.regions]
        return _Found(laid, windows.replayed(sweeping, reading.inputs, reading.of(sweeping, least), some).parts)
    done = windows.replayed(sweeping, reading.inputs, reading.of(sweeping, sweeping.work), regions)
    return _Found(amender.in_memory(done.rows, _before(sweeping, reading.inputs, regions)), done.parts)


def _replayed(sweeping: Sweeping, reading: _Reading, amender: Amender) -> Laid:
    """The regions worked out from all rows that make them."""
    read, regions = reading.of(sweeping, sweeping.work), amender.regions
    schema = rows_schema(sweeping.task.shape)
    new: pa.Table | None = schema.empty_table()
    if any(each.opened for each in read.values()):
        frame = _worked_out(sweeping, read, regions)
        rows = sum(each.rows for each in read.values())
        if reading.inputs.near or rows <= LARGE or sweeping.task.route.keeps_parts:
            new = conformed(fetch(frame), schema)
        elif (new := _few(sweeping, reading.inputs, frame, regions)) is None:
            tasks = max(2, rows // TASK_ROWS)
            laid = amender.in_tasks(frame, _published(sweeping, reading.inputs, regions), tasks)
            return _with_lineage(sweeping, read, amender, laid, tasks)
    return _with_lineage(sweeping, read, amender, amender.in_memory(new, _before(sweeping, reading.inputs, regions)), 0)


def _few(sweeping: Sweeping, inputs: Inputs, frame: DataFrame, regions: Sequence[Region]) -> pa.Table | None:
    """The results that were worked out; None where these, or those that are published, are many."""
    if sum(each.rows for each in _buckets_of(sweeping, inputs, regions)) > FEW:
        return None
    # What has few results may come to have many: a company whose name comes late is joined with all of its quotes.
    found = fetch(frame.limit(FEW + 1))
    return None if found.num_rows > FEW else conformed(found, rows_schema(sweeping.task.shape))


def _with_lineage(sweeping: Sweeping, read: Mapping[str, Read], amender: Amender, laid: Laid, tasks: int) -> Laid:
    """The same with the lineage of what was worked out, where it is kept: results that come out the same may be made of
    other rows now."""
    if lineage_kept.stores(sweeping.task) and any(each.opened for each in read.values()):
        frames = {name: each.frame for name, each in read.items()}
        laid.buckets.extend(lineage_kept.of_regions(sweeping.task, frames, amender.regions, amender.writer, tasks))
    return laid


def _by_stored(sweeping: Sweeping, stored: Stored, reading: _Reading, amender: Amender) -> _Found:
    """Results of which stored lineage tells the rows, worked out from just these; the others as they would be alone.
    What the first are made of stays as it was."""
    rest = replace(sweeping, work=stored.rest)
    laid = _found(rest, reading).laid
    if not stored.regions:
        return _Found(laid)
    task = sweeping.task
    read = reading.of(sweeping, replace(sweeping.work, reads=stored.reads))
    frames = {name: each.frame for name, each in read.items()}
    rows = made_again(
        task.rewritten, task.route, frames, stored.rows, [task.kept_names[name] for name in task.plan.key]
    )
    regions = [_kept_region(sweeping, each) for each in stored.regions]
    found = _in_hull(sweeping, kept(rows, task.shape, [each.name for each in task.plan.fields]), regions)
    new = conformed(fetch(found), rows_schema(task.shape))
    there, _ = same_results(stored.rows, new, task.shape)
    lost = np.ones(stored.rows.num_rows, np.bool_)
    lost[there] = False
    keep, refused = unlike_stored(stored, lost)
    mine = [each for each, keeps in zip(regions, keep, strict=True) if keeps]
    more = replace(amender, regions=mine).in_memory(new, _before(sweeping, reading.inputs, mine)) if mine else _NOTHING
    changed, compared = laid.changed + more.changed, laid.compared + more.compared
    return _Found(Laid([*laid.buckets, *more.buckets], changed, compared), refused=tuple(refused))


def _writer(sweeping: Sweeping, inputs: Inputs) -> ResultWriter:
    return ResultWriter(inputs.site.warehouse, sweeping.name, sweeping.task.shape.timed)


def _adjusted(sweeping: Sweeping, reading: _Reading, amender: Amender) -> _Found:
    """The same for windows of which partial aggregates are kept; those that these do not decide are replayed."""
    inputs = reading.inputs
    done = windows.adjusted(sweeping, inputs)
    rows, parts, touched = done.rows, done.parts, done.touched
    refused: tuple[Refusal, ...] = ()
    spans = joined(each.interval for each in amender.regions)
    published = results_beginning(inputs.site.catalog, inputs.site.warehouse, sweeping.basis, spans)
    # Of a window that has a result and of which nothing is kept, nobody knows what rows it has.
    unknown = windows.only(sweeping, windows.only(sweeping, published, touched), done.known, inside=False)
    undecided = pa.concat_tables([done.undecided, unknown.select(done.undecided.column_names)])
    if undecided.num_rows:
        rows = windows.only(sweeping, rows, undecided, inside=False)
        needed = rereading(sweeping.of, _ends(undecided), sweeping.aged)
        refused = needed.refused
        if refused:
            touched = windows.only(sweeping, touched, undecided, inside=False)
        else:
            again = windows.replayed(sweeping, inputs, reading.of(sweeping, needed), needed.regions)
            rows = pa.concat_tables([rows, windows.only(sweeping, again.rows, undecided)])
            parts = windows.together(parts, windows.only_parts(sweeping, again.parts, undecided))
    before = windows.only(sweeping, published, touched)
    whole = replace(amender, regions=[windows.hull(spans)])
    return _Found(whole.in_memory(rows, before), parts, refused)


def _ends(undecided: pa.Table) -> list[Region]:
    """All windows that end when some do."""
    ends = [each for each in pc.unique(undecided[VS]).to_pylist() if each is not None]
    if len(ends) > APART:
        return [Region(Axis.START, Interval(min(ends), max(ends) + 1))]
    return [Region(Axis.START, Interval(each, each + 1)) for each in sorted(ends)]


def _told(sweeping: Sweeping) -> Amending:
    task, names = sweeping.task, sweeping.task.kept_names
    rough = frozenset(names[name] for name in rough_columns(task.plan))
    return Amending(task.number, task.step.until, task.route.covering, sweeping.of.axis, task.closes, rough)


def _before(sweeping: Sweeping, inputs: Inputs, regions: Iterable[Region]) -> pa.Table:
    """What is published in the regions, and beside them as far as it touches."""
    at = (inputs.site.catalog, inputs.site.warehouse, sweeping.basis)
    if sweeping.of.axis is Axis.START:
        return results_beginning(*at, joined(each.interval for each in regions))
    beside = (Interval(_further(each.interval.start, -1), _further(each.interval.end, 1)) for each in regions)
    return results_counting(*at, joined(beside))


def _further(place: int, by: int) -> int:
    return place if place in (LOWEST, HIGHEST) else place + by


def _published(sweeping: Sweeping, inputs: Inputs, regions: Sequence[Region]) -> DataFrame:
    """The same for Spark."""
    site, of = inputs.site, sweeping.basis
    return frame_of(inputs.session, site.catalog, site.warehouse, of.shape, _buckets_of(sweeping, inputs, regions))


def _buckets_of(sweeping: Sweeping, inputs: Inputs, regions: Sequence[Region]) -> Sequence[Bucket]:
    """The buckets of what is published from the first of the regions to the last."""
    site, of = inputs.site, sweeping.basis
    start, end = min(each.interval.start for each in regions), max(each.interval.end for each in regions)
    is_start = sweeping.of.axis is Axis.START
    span = Interval(start, end) if is_start else Interval(_further(start, -1), _further(end, 1))
    find = buckets_beginning if is_start else buckets_counting
    return find(site.catalog, of, of.last.commit_id, span)


def _worked_out(sweeping: Sweeping, read: Mapping[str, Read], regions: Sequence[Region]) -> DataFrame:
    """The results in the regions as they are now, and perhaps others."""
    task = sweeping.task
    frames = {name: each.frame for name, each in read.items()}
    start = min(each.interval.start for each in regions)
    since = start if sweeping.of.axis is Axis.INSTANT and start > LOWEST else None
    rows = compile_plan(task.rewritten, frames, since=since)
    return _in_hull(sweeping, kept(rows, task.shape, [each.name for each in task.plan.fields]), regions)


def _in_hull(sweeping: Sweeping, rows: DataFrame, regions: Sequence[Region]) -> DataFrame:
    """Rows without most of those that lie outside of all regions."""
    start = min(each.interval.start for each in regions)
    end = min(max(each.interval.end for each in regions), sweeping.task.step.until + 1)
    rows = rows.where(f"{VS} < {end}L")
    if sweeping.of.axis is Axis.INSTANT:
        return rows.where(f"{VE} > {start}L") if start > LOWEST else rows
    if sweeping.of.from_its_beginning and sweeping.of.begins > LOWEST:
        rows = rows.where(f"{VE} > {sweeping.of.begins}L")
    return rows.where(f"{VS} >= {start}L") if start > LOWEST else rows


def _kept_region(sweeping: Sweeping, region: Region) -> Region:
    """A region by the names under which results are kept."""
    names = sweeping.task.kept_names
    return replace(region, values={names[name]: value for name, value in region.values.items()})
