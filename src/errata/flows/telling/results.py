"""Reading what has been published for a query: its answer at an event time, as known at a commit; and the answers of
several queries as of one state of the streams."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from errata.archive.results import buckets_counting, counting, frame_of, live_at, table_of
from errata.archive.tasks import LOCAL_ROWS
from errata.archive.warehouse import Warehouse
from errata.catalog import commits, pins, result_ageing
from errata.catalog.open import Catalog, open_catalog
from errata.catalog.published import Published, evaluation_for, evaluations_of, ever_published, published
from errata.declare.project import load_project
from errata.engine.engines import Demand
from errata.engine.failures import question_failures
from errata.engine.plans.rows import quoted
from errata.engine.session import obeying
from errata.errors import ErrataError, UsageError
from errata.flows.answering.answered import horizon_of_results, named, not_answered_yet, notes_on, words
from errata.flows.site import Site
from errata.model.bucket import Bucket
from errata.model.evaluation import Evaluation
from errata.model.instants import event_time
from errata.model.interval import Interval
from errata.serve.rows import Rows

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asks for."""

    query: str
    at: str | int | None = None
    """The event time; None for the last that is answered."""
    as_of: str | int | None = None
    """The commit, by its number or a moment at which it was the newest; None for the newest there is."""
    aligned: Sequence[str] = ()
    """Further queries, all to be read as of one state of the streams."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A query's results, and which state of them is read."""

    of: Published
    evaluation: Evaluation
    """The one that has brought them to this state."""
    commit_id: int
    """A commit at which they were in it."""

    @property
    def columns(self) -> list[str]:
        """The columns of the answer, in their order."""
        return self.of.shape.visible


@dataclass(frozen=True, slots=True)
class Found:
    """Answers that are there, and the one event time at which they are read."""

    chosen: Sequence[Chosen]
    at: int

    @property
    def moment(self) -> str:
        """The event time in words."""
        return words(self.at, self.chosen[0].of)


@dataclass(frozen=True, slots=True)
class Answer:
    """A published answer about to be read."""

    chosen: Chosen
    opened: Sequence[Bucket]
    rows: Rows
    """In no particular order: a table if they are few."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Answers about to be read."""

    found: Found
    answers: Sequence[Answer]
    notes: Sequence[str]
    """What is to be said of the queries: that one has been edited since, or has stopped."""
    pin: pins.Pin
    """Holds until the reading ends; its `check` tells whether what has been read so far was whole."""


@contextmanager
def reading(site: Site, wanted: Wanted) -> Iterator[Reading]:
    """Read with the commit pinned: nothing that is read is removed before the block ends."""
    catalog = site.catalog
    commit_id = commits.find(catalog, wanted.as_of)
    holder = f"results of {wanted.query}"
    with ExitStack() as stack:
        pin = stack.enter_context(pins.pinned(catalog, commit_id, holder))
        found = find(catalog, wanted, commit_id)
        oldest = min(each.commit_id for each in found.chosen)
        if oldest < commit_id:
            pin = stack.enter_context(pins.pinned(catalog, oldest, holder))
        # Looked at behind the pin: what is found readable now stays so.
        _check_readable(catalog, found, commit_id, wanted)
        stack.enter_context(question_failures())
        answers = [_answer(site, each, found.at) for each in found.chosen]
        notes = [] if wanted.as_of is not None else notes_on(catalog, [each.of for each in found.chosen])
        yield Reading(found, answers, notes, pin)


def results(
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
    obeying(spark, {})
    declared = load_project(Path(project) if project is not None else None)
    catalog = open_catalog(declared.catalog)
    try:
        wanted = Wanted(query, at, as_of, aligned)
        commit_id = commits.find(catalog, as_of)
        with pins.pinned(catalog, commit_id, f"results of {query}"):
            found = find(catalog, wanted, commit_id)
            _check_readable(catalog, found, commit_id, wanted)
            if as_of is None:
                for note in notes_on(catalog, [each.of for each in found.chosen]):
                    warnings.warn(note, stacklevel=3)
            warehouse = Warehouse(declared.warehouse)
            return {each.of.name: _frame_in_order(spark, catalog, warehouse, each, found.at) for each in found.chosen}
    finally:
        catalog.close()


def find(catalog: Catalog, wanted: Wanted, commit_id: int) -> Found:
    """Which results are meant, in which state, and at which event time."""
    names = dict.fromkeys(named(catalog, each, commit_id) for each in (wanted.query, *wanted.aligned))
    newest = []
    for name in names:
        there = published(catalog, name, commit_id)
        if there is None:
            raise _not_answered(catalog, name, commit_id, wanted)
        newest.append(there)
    if len(newest) == 1:
        chosen = [Chosen(newest[0], newest[0].last, commit_id)]
    else:
        chosen = _of_one_state(catalog, newest, commit_id)
    return Found(chosen, _moment(catalog, chosen, wanted.at, commit_id))


def _not_answered(catalog: Catalog, name: str, commit_id: int, wanted: Wanted) -> ErrataError:
    """Why there are no results of a query at a commit."""
    if wanted.as_of is None:
        return not_answered_yet(catalog, name)
    what = f"query {name} had no results as of commit {commit_id}"
    return UsageError(what, how="read them as of a later commit; `errata log` lists them")


def _of_one_state(catalog: Catalog, newest: Sequence[Published], commit_id: int) -> list[Chosen]:
    """The last results of several queries that are all of one state of the streams. What an evaluation has read is the
    state of every commit until one moves a stream that the query reads, directly or through others."""
    common = commit_id
    while True:
        chosen = [_of_state(catalog, each, common, commit_id) for each in newest]
        reach = min(_reach(catalog, each, commit_id) for each in chosen)
        if reach >= common:
            return chosen
        common = reach


def _reach(catalog: Catalog, chosen: Chosen, commit_id: int) -> int:
    """The last commit of the state of the streams that the results are of."""
    read = chosen.evaluation
    moved = commits.first_moving(catalog, read.revisions, after=read.data_commit, up_to=commit_id)
    return commit_id if moved is None else moved - 1


def _of_state(catalog: Catalog, newest: Published, common: int, commit_id: int) -> Chosen:
    """The last results of a query that were made of no later state of the streams."""
    if newest.last.data_commit <= common:
        return Chosen(newest, newest.last, commit_id)
    for of, ended in reversed(ever_published(catalog, newest.name)):
        evaluation = None if of.added_in > commit_id else evaluation_for(catalog, of.stream_id, common)
        if evaluation is not None:
            later = evaluations_of(catalog, of.stream_id, after=evaluation.commit_id, up_to=commit_id)
            # It stood until the next one; that commit is within the horizon for longer.
            until = later[0].commit_id if later else ended
            return Chosen(of, evaluation, commit_id if until is None else min(commit_id, until - 1))
    raise ErrataError(
        f"query {newest.name} has no results of the same state of the streams as the others",
        why="each was evaluated by itself, while streams were moving",
        how="run `errata run`, which brings all of them to one state",
    )


def _moment(catalog: Catalog, chosen: Sequence[Chosen], at: str | int | None, commit_id: int) -> int:
    """The event time that is meant, which all of them must have an answer for."""
    slowest = min(chosen, key=lambda each: each.evaluation.frontier)
    begin = {each.of.name: _begins(catalog, each) for each in chosen}
    latest = max(chosen, key=lambda each: begin[each.of.name])
    timed = {each.of.shape.timed for each in chosen}
    if len(timed) > 1:
        names = ", ".join(each.of.name for each in chosen)
        raise UsageError(f"{names} cannot be aligned", why="some are over times and some over plain numbers")
    frontier, begins = slowest.evaluation.frontier, begin[latest.of.name]
    moment = frontier if at is None else event_time(at, timed=slowest.of.shape.timed)
    if moment > frontier:
        shown = words(frontier, slowest.of)
        raise UsageError(
            f"{at} is later than what is answered as of commit {commit_id}",
            why=f"query {slowest.of.name} is answered up to {shown}",
            how=f"read it at {shown} or earlier, or leave --at out for that",
        )
    if moment < begins:
        shown = words(begins, latest.of)
        gone = "rows that earlier answers would be made of" if begins == latest.evaluation.begins else "earlier results"
        raise UsageError(
            f"{words(moment, latest.of)} is earlier than what query {latest.of.name} has answers for",
            why=f"{gone} had been aged out; its answers begin at {shown}",
            how=f"read it at {shown} or later",
        )
    return moment


def _begins(catalog: Catalog, chosen: Chosen) -> int:
    """The first instant for which there is a whole answer."""
    aged_to = result_ageing.aged_to(catalog, chosen.of, chosen.commit_id)
    return chosen.evaluation.begins if aged_to is None else max(chosen.evaluation.begins, aged_to)


def _check_readable(catalog: Catalog, found: Found, commit_id: int, wanted: Wanted) -> None:
    """Refuse states behind the horizon, which for results is the longest of all streams."""
    horizon = horizon_of_results(catalog)
    for each in found.chosen:
        if wanted.as_of is not None or each.commit_id != commit_id:
            commits.check_readable(catalog, each.commit_id, horizon, each.of.name, "query")


def _answer(site: Site, chosen: Chosen, at: int) -> Answer:
    catalog, of = site.catalog, chosen.of
    opened = buckets_counting(catalog, of, chosen.commit_id, Interval(at, at + 1))
    # Even the near engine takes a second to load.
    if (count := sum(each.rows for each in opened)) <= LOCAL_ROWS:
        _log.info("no engine: %s rows", f"{count:,}")
        rows = live_at(table_of(catalog, site.warehouse, of.shape, opened), at).select(chosen.columns)
        return Answer(chosen, opened, rows)
    read, _ = site.engines().read(
        Demand.of(opened), lambda session: _frame(session, catalog, site.warehouse, chosen, opened, at)
    )
    return Answer(chosen, opened, read)


def _frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, chosen: Chosen, opened: Sequence[Bucket], at: int
) -> DataFrame:
    rows = frame_of(session, catalog, warehouse, chosen.of.shape, opened)
    return counting(rows, Interval(at, at + 1)).select(*map(quoted, chosen.columns))


def _frame_in_order(spark: SparkSession, catalog: Catalog, warehouse: Warehouse, chosen: Chosen, at: int) -> DataFrame:
    opened = buckets_counting(catalog, chosen.of, chosen.commit_id, Interval(at, at + 1))
    return _frame(spark, catalog, warehouse, chosen, opened, at).orderBy(*map(quoted, chosen.columns))
