"""Who recomputes: plain Spark and DuckDB over the archive's files, and whether they find what Errata has published."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import duck
from bench import errata_under_test as errata
from bench.evaluate_queries import Engine, Mixed
from errata.archive.schemas import unpack_table
from errata.catalog import buckets
from errata.declare.site import Site
from errata.read.results import ResultsRequest, open_results

CLOSE = 1e-9
"""Sums of floating point numbers depend on their order: so much they may differ, beside their size."""


@dataclass(frozen=True, slots=True)
class Plain:
    """What refreshes a table has to go by: the stream's files, and the relations, as they are now."""

    site: Site
    folder: Path
    """Where the results go."""
    relations: dict[str, pa.Table]
    frontier: int

    def spark(self, queries: Sequence[Mixed]) -> dict[str, float]:
        """Seconds in which Spark writes each result."""
        session = self.site.session()
        session.read.schema(errata.SPARK_SCHEMA).parquet(*self._files()).createOrReplaceTempView("quotes")
        for name, rows in self.relations.items():
            session.createDataFrame(rows).createOrReplaceTempView(name)
        spent = {}
        for query in queries:
            text, out = query.recomputed(Engine.SPARK, self.frontier), self.folder / f"{query.name}-spark"
            began = time.perf_counter()
            session.sql(text).write.parquet(str(out))
            spent[query.name] = time.perf_counter() - began
            shutil.rmtree(out)
        return spent

    def duckdb(self, queries: Sequence[Mixed]) -> dict[str, float]:
        """Seconds in which DuckDB writes each result, which stays."""
        with duck.connect() as connection:
            files = ", ".join(f"'{file}'" for file in self._files())
            connection.execute(f"CREATE VIEW quotes AS SELECT time, symbol, price FROM read_parquet([{files}])")
            for name, rows in self.relations.items():
                connection.register(name, rows)
            spent = {}
            for query in queries:
                text, out = query.recomputed(Engine.DUCKDB, self.frontier), self._result(query)
                began = time.perf_counter()
                connection.execute(f"COPY ({text}) TO '{out}' (FORMAT parquet)")
                spent[query.name] = time.perf_counter() - began
            return spent

    def check(self, query: Mixed, since: int) -> None:
        """That the published answer is what DuckDB has written; of results that stay for good, those since then."""
        with open_results(self.site, ResultsRequest(query.name)) as opened:
            found = opened.answers[0].rows
            ours = found if isinstance(found, pa.Table) else found.toArrow()
        theirs = pq.read_table(self._result(query)).select(ours.column_names)
        difference = differs(_since(ours, query.came, since), _since(theirs, query.came, since))
        if difference is not None:
            raise AssertionError(f"the published answer of {query.name} is not what DuckDB recomputes: {difference}")

    def _result(self, query: Mixed) -> Path:
        return self.folder / f"{query.name}-duckdb.parquet"

    def _files(self) -> list[str]:
        """The stream's files; of what is so small that it lies in the catalog one is made."""
        found = errata.buckets_of(self.site)
        files = [file.removeprefix("file://") for file in errata.files_of(self.site, found)]
        self.folder.mkdir(parents=True, exist_ok=True)
        inline = [each.bucket_id for each in found if each.path is None]
        for number, data in buckets.inline_data(self.site.catalog, inline).items():
            file = self.folder / f"inline-{number}.parquet"
            pq.write_table(unpack_table(data), file)
            files.append(str(file))
        return files


def differs(ours: pa.Table, theirs: pa.Table) -> str | None:
    """In what two results differ, in words; None where they are the same rows, numbers almost."""
    if ours.num_rows != theirs.num_rows:
        return f"{ours.num_rows:,} rows and {theirs.num_rows:,}"
    numbers = [field.name for field in ours.schema if pa.types.is_floating(field.type)]
    # What cannot differ by a little comes first, so that almost equal numbers stand beside each other.
    order = [(name, "ascending") for name in sorted(ours.column_names, key=lambda name: name in numbers)]
    ours, theirs = ours.sort_by(order), theirs.sort_by(order)
    for name in ours.column_names:
        left, right = _plain(ours[name]), _plain(theirs[name])
        if name in numbers:
            one, other = (each.to_numpy(zero_copy_only=False) for each in (left, right))
            same = np.isclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)
        else:
            same = pc.equal(left, right.cast(left.type)).fill_null(False).to_numpy(zero_copy_only=False)
            both = pc.and_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
            same = same | both
        if not same.all():
            row = int(np.argmin(same))
            return f"{ours.slice(row, 1).to_pylist()[0]} and {theirs.slice(row, 1).to_pylist()[0]}"
    return None


def _plain(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.cast(pa.int64()) if pa.types.is_timestamp(whole.type) else whole


def _since(rows: pa.Table, came: str | None, since: int) -> pa.Table:
    if came is None:
        return rows
    return rows.filter(pc.greater_equal(rows[came].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), since))
