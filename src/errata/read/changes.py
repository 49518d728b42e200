"""Reads the changelog of a query: every result that was inserted, replaced or deleted, in the order of commits. A
reader that holds results by key and vs, and applies the changes, has the published answer of every commit.

Changes by commits behind the horizon may be gone. A reader that starts from the beginning gets the results as of the
first commit that is still complete, as inserts, and the changes since.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.answer.progress import no_results_error, resolve_query, result_horizon
from errata.archive.changelog import CHUNK_RECORDS, changelog_segments
from errata.archive.result_changes import ChangeRange, changes_frame
from errata.catalog import commits, pins
from errata.catalog.database import Catalog
from errata.catalog.result_archives import archive_history
from errata.declare.site import Site, open_site
from errata.engine.budget import EngineDemand
from errata.engine.engines import Engines
from errata.engine.failures import query_errors_in_words
from errata.engine.frames import union_by_name
from errata.engine.session import apply_settings
from errata.errors import ErrataError
from errata.model.results import ResultShape, have_same_key
from errata.read.change_records import (
    change_records_frame,
    change_schema,
    changes_from_records,
    empty_change_records_frame,
)
from errata.read.output import FrameOrTable, fetch_all


@dataclass(frozen=True, slots=True)
class ChangelogChunk:
    """Consecutive changes."""

    rows: FrameOrTable
    shape: ResultShape


class ChangelogReader:
    """Reads the changes of a query up to the newest commit each time, without gaps or repetition."""

    def __init__(self, site: Site, query: str, since: str | int | None = None) -> None:
        catalog = site.catalog
        self._site = site
        self._engines = site.engines()
        self.query = resolve_query(catalog, query, commits.newest_commit(catalog))
        self._since = since
        self.read_up_to: int | None = None if since is None else commits.resolve_as_of(catalog, since)
        """The commit up to which changes have been read; None if none have."""
        self.ended = False
        """Whether the query has been dropped."""
        if self.read_up_to is not None:
            commits.check_readable(catalog, self.read_up_to, result_horizon(catalog), self.query, "query")

    def check_answered(self) -> None:
        """Raise an error for a query that has no results yet."""
        if not archive_history(self._site.catalog, self.query):
            raise no_results_error(self._site.catalog, self.query)

    def read_new(self) -> Iterator[ChangelogChunk]:
        """The changes since the last call."""
        catalog, newest = self._site.catalog, commits.newest_commit(self._site.catalog)
        if self.read_up_to == newest:
            return
        after = commits.whole_since(catalog, self.query) if self.read_up_to is None else self.read_up_to
        # Pin the oldest commit that is read, so that what later commits removed stays, too.
        with pins.hold_pin(catalog, max(after, 1), f"changes of {self.query}"), query_errors_in_words():
            after = self._whole(after)
            restated = self.read_up_to is None
            for stretch in changelog_segments(
                catalog, self.query, after, newest, restated=restated, most=CHUNK_RECORDS
            ):
                yield ChangelogChunk(self._read(stretch), stretch.of.shape)
        there = archive_history(catalog, self.query)
        self.ended = bool(there) and there[-1][1] is not None and (there[-1][1] or 0) <= newest
        self.read_up_to = newest

    def _whole(self, after: int) -> int:
        whole = commits.whole_since(self._site.catalog, self.query)
        if self.read_up_to is None:
            return max(after, whole)
        _check_complete(self.query, after, whole)
        return after

    def _read(self, stretch: ChangeRange) -> FrameOrTable:
        records = read_change_records(self._engines, self._site, stretch)
        made = changes_from_records if isinstance(records, pa.Table) else change_records_frame
        return made(records, stretch.of.shape, stretch.causes)


def read_change_records(engines: Engines, site: Site, stretch: ChangeRange, only: str = "true") -> FrameOrTable:
    """The change records of a range that satisfy a condition."""

    def made(session: SparkSession) -> DataFrame:
        return changes_frame(session, site.catalog, site.warehouse, stretch, only)

    records, _ = engines.read(EngineDemand.of(stretch.buckets), made)
    return records


def query_changes_frame(
    spark: SparkSession, query: str, *, since: str | int | None = None, project: Path | str | None = None
) -> DataFrame:
    """The changes of a query's results as a DataFrame, with the columns that the results have now.

    The DataFrame is read when it is used; its files stay for as long as the horizon tells.
    """
    apply_settings(spark, {})
    with open_site(Path(project) if project is not None else None) as site:
        catalog = site.catalog
        shape, found = _comparable_segments(catalog, query, since)
        frames = [
            change_records_frame(changes_frame(spark, catalog, site.warehouse, each), each.of.shape, each.causes, shape)
            for each in found
        ]
        return union_by_name(frames) if frames else empty_change_records_frame(spark, shape)


def query_changes_table(site: Site, query: str, since: str | int | None = None) -> pa.Table:
    """The same as an Arrow table."""
    catalog, engines = site.catalog, site.engines()
    name = resolve_query(catalog, query, commits.newest_commit(catalog))
    after = commits.whole_since(catalog, name) if since is None else commits.resolve_as_of(catalog, since)
    # Pin the oldest commit that is read, then look up: what later commits removed stays, too.
    with pins.hold_pin(catalog, max(after, 1), f"changes of {name}") as pin, query_errors_in_words():
        shape, found = _comparable_segments(catalog, name, since)
        tables = [
            changes_from_records(fetch_all(read_change_records(engines, site, each)), each.of.shape, each.causes, shape)
            for each in found
        ]
        pin.check()
    return pa.concat_tables([change_schema(shape).empty_table(), *tables])


def _comparable_segments(
    catalog: Catalog, query: str, since: str | int | None
) -> tuple[ResultShape, list[ChangeRange]]:
    """The shape of a query's results, and the ranges of changes that have the present key; changes under another key
    are left out."""
    newest = commits.newest_commit(catalog)
    name = resolve_query(catalog, query, newest)
    whole_from = commits.whole_since(catalog, name)
    after = whole_from if since is None else commits.resolve_as_of(catalog, since)
    _check_complete(name, after, whole_from)
    if since is not None:
        commits.check_readable(catalog, after, result_horizon(catalog), name, "query")
    ever = archive_history(catalog, name)
    if not ever:
        raise no_results_error(catalog, name)
    shape = ever[-1][0].shape
    found = list(changelog_segments(catalog, name, after, newest, restated=since is None, most=None))
    for place in range(len(found) - 1, -1, -1):
        if not have_same_key(found[place].of.shape, shape):
            kept = found[place + 1 :]
            first = kept[0].causes if kept else {}
            commit = min((each.commit_id for each in first.values()), default=0)
            warnings.warn(f"{name} had another key before commit {commit}; those changes are left out", stacklevel=4)
            return shape, kept
    return shape, found


def _check_complete(name: str, after: int, whole: int) -> None:
    if after < whole:
        raise ErrataError(
            f"the changes of query {name} since commit {after} are no longer whole",
            why=f"vacuum has removed what only commits before {whole} needed",
            how=f"read them since commit {whole} or a later one, or from the beginning, without --since",
        )
