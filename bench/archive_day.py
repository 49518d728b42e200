"""An archive of a day of quotes, of which measurements take copies of their own; and what plain Spark makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf

from bench import errata_under_test as errata
from bench.bucket_index import newest_commit
from bench.corrections import Corrections
from bench.measure import Timings, interleaved
from errata.declare.site import Site
from errata.generate.quotes import QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    day: int
    bucket_rows: int
    corrections: int
    few: int
    rounds: int
    warm_up: int = 1


@dataclass(frozen=True, slots=True)
class Day:
    """An archive of a day of quotes, closed, of which every measurement takes copies of its own."""

    amounts: Amounts
    folder: Path
    scratch: Path
    """Where copies and what plain Spark writes go."""
    commit: int
    """The one that took the day in, before anything was corrected."""
    opened: list[Site] = field(default_factory=list)

    @property
    def turns(self) -> range:
        return range(self.amounts.warm_up + self.amounts.rounds)

    def copies(self, name: str, prepare: Callable[[Site], object] = lambda _: None) -> list[Site]:
        """A copy for each round, made before anything is timed."""
        made = [errata.copy_site(self.folder, self.scratch / f"{name}-{number}") for number in self.turns]
        self.opened.extend(made)
        for site in made:
            prepare(site)
        return made

    def in_turns(self, **contenders: Callable[[int], object]) -> Timings:
        times = interleaved(self.amounts.rounds, warm_up=self.amounts.warm_up, **contenders)
        self.clear()
        return times

    def clear(self) -> None:
        """Close the copies and remove them."""
        while self.opened:
            self.opened.pop().catalog.close()
        shutil.rmtree(self.scratch)


def archived(amounts: Amounts, folder: Path) -> Day:
    """The day taken in, in one batch."""
    site = errata.make_site(folder / "day", amounts.bucket_rows)
    files = generate_quotes(QuoteSpec(rows=amounts.day, format=FileFormat.PARQUET), folder / "files").files
    errata.take_in(site, files)
    commit_id = newest_commit(site.catalog)
    site.catalog.close()
    shutil.rmtree(folder / "files")
    return Day(amounts, folder / "day", folder / "scratch", commit_id)


def with_corrections(day: Day, many: Corrections) -> Day:
    """The same day with corrections lying over it."""
    folder = day.folder.with_name("corrected")
    site = errata.copy_site(day.folder, folder)
    errata.correct(site, many.file)
    site.catalog.close()
    return replace(day, folder=folder)


def read_all(rows: DataFrame) -> Row:
    """An aggregate for which every column of every row is read."""
    found = rows.agg(sf.count("*").alias("rows"), sf.max("time"), sf.max("symbol"), sf.sum("price").alias("prices"))
    return found.collect()[0]


def plain(site: Site, buckets: Sequence[Bucket]) -> DataFrame:
    """The buckets' files as someone reads them who knows nothing of Errata."""
    return site.session().read.schema(errata.SPARK_SCHEMA).parquet(*errata.files_of(site, buckets))


def touched_by(buckets: Sequence[Bucket], corrections: Corrections) -> list[Bucket]:
    """The buckets in which the corrected rows lie."""
    places = np.sort(corrections.rows.time)
    ends = [np.searchsorted(places, (bucket.vs_min, bucket.vs_max + 1)) for bucket in buckets]
    return [bucket for bucket, (low, high) in zip(buckets, ends, strict=True) if low < high]
