"""Reading how the published answer of a query has changed: every result that came, changed or went, in the order of
commits. A reader who holds results by key and vs, and takes the changes in, has the published answer at every commit.

What commits behind the horizon have changed is no longer told one by one: whoever reads from the beginning is told the
results that stood at the first commit that is still whole as if each had come as it is there.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.changes import ENDED, How, Part, Stretch, Told, records_frame
from errata.archive.masked_results import parted
from errata.archive.results import ANSWER, buckets_beginning
from errata.archive.warehouse import Warehouse
from errata.catalog import buckets, commits, pins
from errata.catalog.open import Catalog, open_catalog
from errata.catalog.published import Published, evaluations_of, ever_published
from errata.declare.project import load_project
from errata.engine.engines import Demand, Engines
from errata.engine.failures import question_failures
from errata.engine.frames import united
from errata.engine.session import obeying
from errata.errors import ErrataError
from errata.evaluate.difference import comparable
from errata.flows.answering.answered import horizon_of_results, named, not_answered_yet
from errata.flows.site import Site
from errata.model.bucket import Bucket, Role
from errata.model.evaluation import Evaluation
from errata.model.results import Shape
from errata.serve.changes import as_changes, change_schema, changes_frame, no_changes
from errata.serve.rows import Rows, whole

_REPLACES = ("query", "stream")
"""Types of causes for which results take the place of others."""

FEW = 50_000
"""So many records are told together; an evaluation that has more is read by itself."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Some changes, in order."""

    rows: Rows
    shape: Shape


class Feed:
    """The changes of a query, read up to the newest commit each time; nothing is left out, and nothing told twice."""

    def __init__(self, site: Site, query: str, since: str | int | None = None) -> None:
        catalog = site.catalog
        self._site = site
        self._engines = site.engines()
        self.query = named(catalog, query, commits.newest(catalog))
        self._since = since
        self.told: int | None = None if since is None else commits.find(catalog, since)
        """The commit up to which all has been told; None: nothing has."""
        self.ended = False
        """Whether the query is no longer there."""
        if self.told is not None:
            commits.check_readable(catalog, self.told, horizon_of_results(catalog), self.query, "query")

    def check_answered(self) -> None:
        """Refuse a query that has no results yet."""
        if not ever_published(self._site.catalog, self.query):
            raise not_answered_yet(self._site.catalog, self.query)

    def new(self) -> Iterator[Changes]:
        """What has changed since the last time."""
        catalog, newest = self._site.catalog, commits.newest(self._site.catalog)
        if self.told == newest:
            return
        after = commits.whole_from(catalog, self.query) if self.told is None else self.told
        # The oldest of all that is read: what commits after it have removed stays, too.
        with pins.pinned(catalog, max(after, 1), f"changes of {self.query}"), question_failures():
            after = self._whole(after)
            for stretch in stretches(catalog, self.query, after, newest, restated=self.told is None):
                yield Changes(self._read(stretch), stretch.of.shape)
        there = ever_published(catalog, self.query)
        self.ended = bool(there) and there[-1][1] is not None and (there[-1][1] or 0) <= newest
        self.told = newest

    def _whole(self, after: int) -> int:
        whole = commits.whole_from(self._site.catalog, self.query)
        if self.told is None:
            return max(after, whole)
        _check_whole(self.query, after, whole)
        return after

    def _read(self, stretch: Stretch) -> Rows:
        records = read_records(self._engines, self._site, stretch)
        made = as_changes if isinstance(records, pa.Table) else changes_frame
        return made(records, stretch.of.shape, stretch.told)


def read_records(engines: Engines, site: Site, stretch: Stretch, only: str = "true") -> Rows:
    """The change records of a stretch for which something is true."""

    def made(session: SparkSession) -> DataFrame:
        return records_frame(session, site.catalog, site.warehouse, stretch, only)

    records, _ = engines.read(Demand.of(stretch.opened), made)
    return records


def changes(
    spark: SparkSession, query: str, *, since: str | int | None = None, project: Path | str | None = None
) -> DataFrame:
    """The changes of a query's results as a DataFrame, with the columns that the results have now.

    The DataFrame is read when it is used; its files stay for as long as the horizon tells.
    """
    obeying(spark, {})
    declared = load_project(Path(project) if project is not None else None)
    catalog = open_catalog(declared.catalog)
    try:
        warehouse = Warehouse(declared.warehouse)
        shape, found = _comparable(catalog, query, since)
        frames = [
            changes_frame(records_frame(spark, catalog, warehouse, each), each.of.shape, each.told, shape)
            for each in found
        ]
        return united(frames) if frames else no_changes(spark, shape)
    finally:
        catalog.close()


def changes_table(site: Site, query: str, since: str | int | None = None) -> pa.Table:
    """The same in memory."""
    catalog, engines = site.catalog, site.engines()
    name = named(catalog, query, commits.newest(catalog))
    after = commits.whole_from(catalog, name) if since is None else commits.find(catalog, since)
    # The oldest of all that is read, and looked at behind the pin: what commits after it have removed stays, too.
    with pins.pinned(catalog, max(after, 1), f"changes of {name}") as pin, question_failures():
        shape, found = _comparable(catalog, name, since)
        tables = [
            as_changes(whole(read_records(engines, site, each)), each.of.shape, each.told, shape) for each in found
        ]
        pin.check()
    return pa.concat_tables([change_schema(shape).empty_table(), *tables])


def _comparable(catalog: Catalog, query: str, since: str | int | None) -> tuple[Shape, list[Stretch]]:
    """The shape of the results of a query, and their changes, as long as results can be told to be the same ones: what
    came when the query had another key is left out."""
    newest = commits.newest(catalog)
    name = named(catalog, query, newest)
    whole_from = commits.whole_from(catalog, name)
    after = whole_from if since is None else commits.find(catalog, since)
    _check_whole(name, after, whole_from)
    if since is not None:
        commits.check_readable(catalog, after, horizon_of_results(catalog), name, "query")
    ever = ever_published(catalog, name)
    if not ever:
        raise not_answered_yet(catalog, name)
    shape = ever[-1][0].shape
    found = list(stretches(catalog, name, after, newest, restated=since is None, most=None))
    for place in range(len(found) - 1, -1, -1):
        if not comparable(found[place].of.shape, shape):
            kept = found[place + 1 :]
            first = kept[0].told if kept else {}
            commit = min((each.commit_id for each in first.values()), default=0)
            warnings.warn(f"{name} had another key before commit {commit}; those changes are left out", stacklevel=4)
            return shape, kept
    return shape, found


def stretches(
    catalog: Catalog, name: str, after: int, up_to: int, *, restated: bool, most: int | None = FEW
) -> Iterator[Stretch]:
    """What commits after one and up to another have changed. `restated`: first what stood at the one. Evaluations are
    taken together as long as they tell of no more records than `most`."""
    archives = [each for each in ever_published(catalog, name) if each[0].added_in <= up_to]
    for place, (of, ended) in enumerate(archives):
        if ended is not None and ended <= after:
            continue
        if restated and of.added_in <= after:
            yield _standing(catalog, of, after)
        yield from _evaluated(catalog, of, after, up_to, most)
        if ended is not None and ended <= up_to and not _led_over(catalog, archives[place + 1 :], ended):
            yield _emptied(catalog, of, ended)


def _standing(catalog: Catalog, of: Published, commit_id: int) -> Stretch:
    """All that stood at a commit, as if it had come so."""
    told = {each.number: _told(each) for each in evaluations_of(catalog, of.stream_id, up_to=commit_id)}
    results, masks = parted(buckets_beginning(catalog, of, commit_id))
    return Stretch(of, [Part(each, How.ADDED) for each in results], told, masks)


def _emptied(catalog: Catalog, of: Published, ended: int) -> Stretch:
    """All that stood when the archive ended, as gone."""
    told = {ENDED: Told(ended, "query", of.name)}
    results, masks = parted(buckets_beginning(catalog, of, ended - 1))
    return Stretch(of, [Part(each, How.GONE) for each in results], told, masks)


def _led_over(catalog: Catalog, later: Sequence[tuple[Published, int | None]], ended: int) -> bool:
    """Whether the archive that took the place of an ended one tells how the one answer becomes the other."""
    if not later or later[0][0].added_in != ended:
        return False
    first = evaluations_of(catalog, later[0][0].stream_id, up_to=ended)[0]
    return bool(first.cause.get("type") in _REPLACES and _is_whole(first))


def _is_whole(evaluation: Evaluation) -> bool:
    """Whether the feed tells all; else rows tell by themselves that they were added."""
    return bool(evaluation.cause.get("feed", "rows") == "whole")


def _evaluated(catalog: Catalog, of: Published, after: int, up_to: int, most: int | None) -> Iterator[Stretch]:
    by_commit: Mapping[int, list[Bucket]] = defaultdict(list)
    for bucket in buckets.added(catalog, of.stream_id, (*ANSWER, Role.FEED), after=after, up_to=up_to):
        by_commit[bucket.added_in].append(bucket)
    parts: list[Part] = []
    told: dict[int, Told] = {}
    rows = 0
    for each in evaluations_of(catalog, of.stream_id, after=after, up_to=up_to):
        more = _parts(each, by_commit[each.commit_id])
        size = sum(part.bucket.rows for part in more)
        if parts and most is not None and rows + size > most:
            yield Stretch(of, parts, told)
            parts, told, rows = [], {}, 0
        if more:
            parts, rows = [*parts, *more], rows + size
            told[each.number] = _told(each)
    if parts:
        yield Stretch(of, parts, told)


def _parts(evaluation: Evaluation, found: Sequence[Bucket]) -> list[Part]:
    """What an evaluation's buckets tell of it."""
    number = evaluation.number
    parts = [Part(each, How.FEED, number) for each in found if each.role is Role.FEED]
    if not _is_whole(evaluation):
        # What lies before its instants it has merged from others, and not brought.
        own = [each for each in found if each.role is not Role.FEED and each.vs_max >= evaluation.step.since]
        parts += [Part(each, How.ADDED, number) for each in own]
    return parts


def _told(evaluation: Evaluation) -> Told:
    cause = evaluation.cause
    return Told(evaluation.commit_id, str(cause.get("type", "")), str(cause.get("id", "")))


def _check_whole(name: str, after: int, whole: int) -> None:
    if after < whole:
        raise ErrataError(
            f"the changes of query {name} since commit {after} are no longer whole",
            why=f"vacuum has removed what only commits before {whole} needed",
            how=f"read them since commit {whole} or a later one, or from the beginning, without --since",
        )
