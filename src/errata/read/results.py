"""Reads the published results of a query at an event time and a commit, and those of several queries as of one state of
their streams.

Everything is looked up after the commit is pinned, so that no file is removed before the block ends. Up to LOCAL_ROWS
rows are read without an engine.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from errata.answer.progress import event_time_text, no_results_error, reader_notes, resolve_query, result_horizon
from errata.archive.bucket_frames import LOCAL_ROWS
from errata.archive.results import buckets_by_instant, results_frame, results_table, valid_at, valid_in
from errata.catalog import commits, maintenance, pins
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive, archive_history, evaluation_for, evaluations_of, read_archive
from errata.declare.site import Site, open_site
from errata.declare.warehouse import Warehouse
from errata.engine.budget import EngineDemand
from errata.engine.failures import query_errors_in_words
from errata.engine.plans.node_rows import quote_name
from errata.engine.session import apply_settings
from errata.errors import ErrataError, UsageError
from errata.model.bucket import Bucket
from errata.model.commit import Evaluation
from errata.model.time import Interval, parse_event_time
from errata.read.output import FrameOrTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResultsRequest:
    """Which results are wanted."""

    query: str
    at: str | int | None = None
    """The event time; None for the frontier."""
    as_of: str | int | None = None
    """The commit, by its number or a moment at which it was the newest; None for the newest there is."""
    aligned: Sequence[str] = ()
    """Further queries, to be read as of one state of the streams."""


@dataclass(frozen=True, slots=True)
class ResultSnapshot:
    """A query's results as one evaluation left them."""

    archive: ResultArchive
    evaluation: Evaluation
    """The evaluation that left them in this state."""
    commit_id: int
    """A commit as of which they were in this state."""

    @property
    def columns(self) -> list[str]:
        """The columns of the answer, in their order."""
        return self.archive.shape.visible


@dataclass(frozen=True, slots=True)
class AlignedSnapshots:
    """Snapshots of several queries, and the one event time at which they are read."""

    snapshots: Sequence[ResultSnapshot]
    at: int

    @property
    def event_time_text(self) -> str:
        """The event time in words."""
        return event_time_text(self.at, self.snapshots[0].archive)


@dataclass(frozen=True, slots=True)
class PublishedAnswer:
    """The published answer of one query, opened for reading."""

    snapshot: ResultSnapshot
    buckets: Sequence[Bucket]
    rows: FrameOrTable
    """Unsorted; a table if they are few."""


@dataclass(frozen=True, slots=True)
class OpenResults:
    """The answers of all requested queries, opened for reading."""

    aligned: AlignedSnapshots
    answers: Sequence[PublishedAnswer]
    notes: Sequence[str]
    """Notes for the reader: a query was edited since, or has stopped."""
    pin: pins.Pin
    """Held until the reading ends; its `check` raises an error if a file that was read may have been removed."""


@contextmanager
def open_results(site: Site, wanted: ResultsRequest) -> Iterator[OpenResults]:
    """Open published results. The commit is pinned until the block ends."""
    catalog = site.catalog
    commit_id = commits.resolve_as_of(catalog, wanted.as_of)
    holder = f"results of {wanted.query}"
    with ExitStack() as stack:
        pin = stack.enter_context(pins.hold_pin(catalog, commit_id, holder))
        found = find_snapshots(catalog, wanted, commit_id)
        oldest = min(each.commit_id for each in found.snapshots)
        if oldest < commit_id:
            pin = stack.enter_context(pins.hold_pin(catalog, oldest, holder))
        # Checked while the pin is held, so that what is readable stays so.
        _check_readable(catalog, found, commit_id, wanted)
        stack.enter_context(query_errors_in_words())
        answers = [_read_answer(site, each, found.at) for each in found.snapshots]
        notes = [] if wanted.as_of is not None else reader_notes(catalog, [each.archive for each in found.snapshots])
        yield OpenResults(found, answers, notes, pin)


def results_frames(
    spark: SparkSession,
    query: str,
    *,
    at: str | int | None = None,
    as_of: str | int | None = None,
    aligned: Sequence[str] = (),
    project: Path | str | None = None,
) -> dict[str, DataFrame]:
    """The published answers of a query, and of others aligned with it, by name, as DataFrames sorted by their columns.

    A DataFrame is read when it is used; its files stay for as long as the horizon tells.
    """
    apply_settings(spark, {})
    with open_site(Path(project) if project is not None else None) as site:
        catalog = site.catalog
        wanted = ResultsRequest(query, at, as_of, aligned)
        commit_id = commits.resolve_as_of(catalog, as_of)
        with pins.hold_pin(catalog, commit_id, f"results of {query}"):
            found = find_snapshots(catalog, wanted, commit_id)
            _check_readable(catalog, found, commit_id, wanted)
            if as_of is None:
                for note in reader_notes(catalog, [each.archive for each in found.snapshots]):
                    warnings.warn(note, stacklevel=3)
            return {
                each.archive.name: _ordered_answer_frame(spark, catalog, site.warehouse, each, found.at)
                for each in found.snapshots
            }


def find_snapshots(catalog: Catalog, wanted: ResultsRequest, commit_id: int) -> AlignedSnapshots:
    """The snapshots that are meant, and the event time."""
    names = dict.fromkeys(resolve_query(catalog, each, commit_id) for each in (wanted.query, *wanted.aligned))
    newest = []
    for name in names:
        there = read_archive(catalog, name, commit_id)
        if there is None:
            raise _not_answered_error(catalog, name, commit_id, wanted)
        newest.append(there)
    if len(newest) == 1:
        chosen = [ResultSnapshot(newest[0], newest[0].last, commit_id)]
    else:
        chosen = _snapshots_of_one_state(catalog, newest, commit_id)
    return AlignedSnapshots(chosen, _resolve_event_time(catalog, chosen, wanted.at, commit_id))


def _not_answered_error(catalog: Catalog, name: str, commit_id: int, wanted: ResultsRequest) -> ErrataError:
    """The error for a query that has no results as of the commit."""
    if wanted.as_of is None:
        return no_results_error(catalog, name)
    what = f"query {name} had no results as of commit {commit_id}"
    return UsageError(what, how="read them as of a later commit; `errata log` lists them")


def _snapshots_of_one_state(catalog: Catalog, newest: Sequence[ResultArchive], commit_id: int) -> list[ResultSnapshot]:
    """The last results of several queries that are all of one state of the streams. What an evaluation has read is the
    state of every commit until one moves a stream that the query reads, directly or through others."""
    common = commit_id
    while True:
        chosen = [_snapshot_of_state(catalog, each, common, commit_id) for each in newest]
        reach = min(_last_commit_of_state(catalog, each, commit_id) for each in chosen)
        if reach >= common:
            return chosen
        common = reach


def _last_commit_of_state(catalog: Catalog, chosen: ResultSnapshot, commit_id: int) -> int:
    """The last commit of the state of the streams that the results are of."""
    read = chosen.evaluation
    moved = commits.first_commit_changing(catalog, read.revisions, after=read.data_commit, up_to=commit_id)
    return commit_id if moved is None else moved - 1


def _snapshot_of_state(catalog: Catalog, newest: ResultArchive, common: int, commit_id: int) -> ResultSnapshot:
    """The last results of a query that were made of no later state of the streams."""
    if newest.last.data_commit <= common:
        return ResultSnapshot(newest, newest.last, commit_id)
    for of, ended in reversed(archive_history(catalog, newest.name)):
        evaluation = None if of.added_in > commit_id else evaluation_for(catalog, of.stream_id, common)
        if evaluation is not None:
            later = evaluations_of(catalog, of.stream_id, after=evaluation.commit_id, up_to=commit_id)
            # The state lasted until the next evaluation; that commit is within the horizon for longer.
            until = later[0].commit_id if later else ended
            return ResultSnapshot(of, evaluation, commit_id if until is None else min(commit_id, until - 1))
    raise ErrataError(
        f"query {newest.name} has no results of the same state of the streams as the others",
        why="each was evaluated by itself, while streams were moving",
        how="run `errata run`, which brings all of them to one state",
    )


def _resolve_event_time(
    catalog: Catalog, chosen: Sequence[ResultSnapshot], at: str | int | None, commit_id: int
) -> int:
    """The event time that is meant; an error if one of the queries has no answer for it."""
    slowest = min(chosen, key=lambda each: each.evaluation.frontier)
    begin = {each.archive.name: _first_answered_instant(catalog, each) for each in chosen}
    latest = max(chosen, key=lambda each: begin[each.archive.name])
    timed = {each.archive.shape.timed for each in chosen}
    if len(timed) > 1:
        names = ", ".join(each.archive.name for each in chosen)
        raise UsageError(f"{names} cannot be aligned", why="some are over times and some over plain numbers")
    frontier, begins = slowest.evaluation.frontier, begin[latest.archive.name]
    moment = frontier if at is None else parse_event_time(at, timed=slowest.archive.shape.timed)
    if moment > frontier:
        shown = event_time_text(frontier, slowest.archive)
        raise UsageError(
            f"{at} is later than what is answered as of commit {commit_id}",
            why=f"query {slowest.archive.name} is answered up to {shown}",
            how=f"read it at {shown} or earlier, or leave --at out for that",
        )
    if moment < begins:
        shown = event_time_text(begins, latest.archive)
        gone = "rows that earlier answers would be made of" if begins == latest.evaluation.begins else "earlier results"
        given, name = event_time_text(moment, latest.archive), latest.archive.name
        raise UsageError(
            f"{given} is earlier than what query {name} has answers for",
            why=f"{gone} had been aged out; its answers begin at {shown}",
            how=f"read it at {shown} or later",
        )
    return moment


def _first_answered_instant(catalog: Catalog, chosen: ResultSnapshot) -> int:
    """The first instant with a complete answer."""
    aged_to = maintenance.results_aged_to(catalog, chosen.archive, chosen.commit_id)
    return chosen.evaluation.begins if aged_to is None else max(chosen.evaluation.begins, aged_to)


def _check_readable(catalog: Catalog, found: AlignedSnapshots, commit_id: int, wanted: ResultsRequest) -> None:
    """Raise an error for states behind the horizon, which for results is the longest of all streams."""
    horizon = result_horizon(catalog)
    for each in found.snapshots:
        if wanted.as_of is not None or each.commit_id != commit_id:
            commits.check_readable(catalog, each.commit_id, horizon, each.archive.name, "query")


def _read_answer(site: Site, chosen: ResultSnapshot, at: int) -> PublishedAnswer:
    catalog, of = site.catalog, chosen.archive
    opened = buckets_by_instant(catalog, of, chosen.commit_id, Interval(at, at + 1))
    # The near engine takes a second to load.
    if (count := sum(each.rows for each in opened)) <= LOCAL_ROWS:
        _log.info("no engine: %s rows", f"{count:,}")
        rows = valid_at(results_table(catalog, site.warehouse, of.shape, opened), at).select(chosen.columns)
        return PublishedAnswer(chosen, opened, rows)
    read, _ = site.engines().read(
        EngineDemand.of(opened), lambda session: _answer_frame(session, catalog, site.warehouse, chosen, opened, at)
    )
    return PublishedAnswer(chosen, opened, read)


def _answer_frame(
    session: SparkSession,
    catalog: Catalog,
    warehouse: Warehouse,
    chosen: ResultSnapshot,
    opened: Sequence[Bucket],
    at: int,
) -> DataFrame:
    rows = results_frame(session, catalog, warehouse, chosen.archive.shape, opened)
    return valid_in(rows, Interval(at, at + 1)).select(*map(quote_name, chosen.columns))


def _ordered_answer_frame(
    spark: SparkSession, catalog: Catalog, warehouse: Warehouse, chosen: ResultSnapshot, at: int
) -> DataFrame:
    opened = buckets_by_instant(catalog, chosen.archive, chosen.commit_id, Interval(at, at + 1))
    return _answer_frame(spark, catalog, warehouse, chosen, opened, at).orderBy(*map(quote_name, chosen.columns))
