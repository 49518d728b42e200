"""A count over a sample beside what others have for it, and all of them after corrections.

    Spark                TABLESAMPLE (n PERCENT) over the stream's Parquet files
    DuckDB               USING SAMPLE n PERCENT (bernoulli) over the same files
    pre-built sample     a Spark job has written a sample of the files once; Spark counts over it

Two queries are asked: a count, for which the others need no column, and a count with a sum, for which all read one.
Then one row in a hundred is deleted. A sample is right if each of its rows is still in the stream, and if it has all
rows of the stream that belong to it; files that were written before the corrections know nothing of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.duck import connect
from bench.measure import Grid, Metric, Outcome, interleaved, talk
from bench.reduction_scan import count_sample, sample_scan
from bench.reduction_workload import ON_READ, RANDOMISED, STREAM, make_site, rows, take_in, write_feed
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_stream_revisions
from errata.archive.sampling import last_hash, sampling_hashes
from errata.archive.scan import scan_rows
from errata.archive.scan_reading import scan_demand
from errata.declare.site import Site
from errata.engine.frames import fetch_rows
from errata.model.batch import Op
from errata.reduce.copies import vacuum_copies

GOAL_REDUCTION = 0.9
"""From this reduction on, faster than sampling in Spark and DuckDB."""
DELETED_EVERY = 100
ASKED = {"count": "count(*)", "count and sum": "count(*), sum(userattr)"}
OURS = (RANDOMISED.name, ON_READ.name)
SPARK, DUCK, BUILT = "Spark TABLESAMPLE", "DuckDB USING SAMPLE", "Spark, pre-built sample"


@dataclass(frozen=True, slots=True)
class PeerAmounts:
    """How much of everything is measured."""

    rows: int
    rounds: int
    reductions: Sequence[float]
    warm_up: int = 2


def peer_figures(amounts: PeerAmounts, folder: Path) -> Outcome:
    """Times beside others', and what is wrong after corrections."""
    files = write_feed(folder / "feed", amounts.rows)
    sites = {method.name: make_site(folder / method.name, method) for method in (RANDOMISED, ON_READ)}
    for site in sites.values():
        take_in(site, files)
    spark = sites[RANDOMISED.name].session()
    spark.read.parquet(*map(str, files)).createOrReplaceTempView(STREAM)
    with connect() as duck:
        duck.execute(f"CREATE VIEW {STREAM} AS SELECT * FROM read_parquet({[*map(str, files)]})")
        parts = [_at(amounts, each, sites, spark, duck, folder) for each in amounts.reductions]
    revised = _revised(amounts, max(amounts.reductions), sites, spark, folder)
    for site in sites.values():
        site.catalog.close()
    shutil.rmtree(folder)
    return Outcome(
        [metric for metrics, _ in parts for metric in metrics] + revised,
        grids=[
            Grid(
                "peers",
                "Seconds of a count, and of a count with a sum, over a sample",
                [*OURS, SPARK, DUCK, BUILT, "building it"],
                {name: values for _, table in parts for name, values in table.items()},
            )
        ],
    )


def _at(
    amounts: PeerAmounts,
    reduction: float,
    sites: dict[str, Site],
    spark: SparkSession,
    duck: duckdb.DuckDBPyConnection,
    folder: Path,
) -> tuple[list[Metric], dict[str, list[float]]]:
    """Everybody at a reduction."""
    percent = round(100 * (1 - reduction), 7)
    talk.print(f"others at a reduction of {reduction:.0%} …")
    _vacuum_for(sites[ON_READ.name], reduction)
    built = folder / f"built-{reduction}"
    began = time.perf_counter()
    _build_sample(spark, percent / 100, built)
    building = time.perf_counter() - began
    metrics, table = [], {}
    for name, asked in ASKED.items():
        total = name != "count"
        sampled = f"SELECT {asked} FROM {STREAM} TABLESAMPLE ({percent} PERCENT)"
        using = f"SELECT {asked} FROM {STREAM} USING SAMPLE {percent} PERCENT (bernoulli)"
        contenders: dict[str, Callable[[int], object]] = {
            **{each: partial(_count, site, reduction, total) for each, site in sites.items()},
            SPARK: partial(_on_spark, spark, sampled),
            DUCK: partial(_on_duck, duck, using),
            BUILT: partial(_on_built, spark, built, asked),
        }
        times = interleaved(amounts.rounds, warm_up=amounts.warm_up, **contenders)
        table[f"{name} at {reduction:.0%}"] = [*(times.median(each) for each in contenders), building]
        goal = "< 1" if reduction >= GOAL_REDUCTION else None
        for other in (SPARK, DUCK, BUILT):
            title = f"{name} at {reduction:.0%}: {RANDOMISED.name}, beside {other}"
            metrics.append(
                Metric(title, times.ratio(RANDOMISED.name, other), "times", None if other == BUILT else goal)
            )
    return metrics, table


def _count(site: Site, reduction: float, total: bool, _: int) -> object:
    return count_sample(site, reduction, total=total)


def _on_spark(spark: SparkSession, text: str, _: int) -> object:
    return spark.sql(text).collect()


def _on_duck(duck: duckdb.DuckDBPyConnection, text: str, _: int) -> object:
    return duck.execute(text).fetchall()


def _on_built(spark: SparkSession, built: Path, asked: str, _: int) -> object:
    return spark.read.parquet(str(built)).selectExpr(*asked.split(", ")).collect()


def _vacuum_for(site: Site, reduction: float) -> None:
    """As after the visits of several readers at this reduction."""
    count_sample(site, reduction)
    vacuum_copies(site, STREAM)


def _build_sample(spark: SparkSession, rate: float, to: Path) -> None:
    spark.table(STREAM).sample(rate, 7).write.parquet(str(to))


# After corrections


def _revised(
    amounts: PeerAmounts, reduction: float, sites: dict[str, Site], spark: SparkSession, folder: Path
) -> list[Metric]:
    """Rows of everybody's sample that have been deleted from the stream, and what our samples lack."""
    talk.print("the same after corrections …")
    gone = deleted_rows(amounts.rows)
    file = folder / "deleted.parquet"
    pq.write_table(gone, file)
    metrics = []
    for name, site in sites.items():
        report = ingest_batch(site, IngestRequest(STREAM, (str(file),), default_op=Op.DELETE))
        apply_stream_revisions(site, STREAM)
        if report.counts.pending != gone.num_rows:
            raise AssertionError(f"{gone.num_rows} rows are deleted, these were not: {report.counts}")
        sample, exact = sample_rows(site, reduction), sample_rows(site, 0.0)
        wrong = wrong_rows(sample, exact, round(1 - reduction, 9))
        metrics.append(Metric(f"{name}: wrong rows of the sample after corrections", wrong, "rows", "<= 0"))
    spark.read.parquet(str(file)).createOrReplaceTempView("deleted")
    percent = round(100 * (1 - reduction), 7)
    spark.read.parquet(str(folder / f"built-{reduction}")).createOrReplaceTempView("built")
    for name, sample in {SPARK: f"{STREAM} TABLESAMPLE ({percent} PERCENT) REPEATABLE (7)", BUILT: "built"}.items():
        text = (
            f"SELECT count(*) AS wrong FROM (SELECT * FROM {sample}) AS s LEFT SEMI JOIN deleted USING (time, userattr)"
        )
        (row,) = spark.sql(text).collect()
        metrics.append(Metric(f"{name}: the same", row["wrong"], "rows"))
    return metrics


def deleted_rows(count: int) -> pa.Table:
    """One row in a hundred of the feed."""
    return pa.concat_tables(
        rows(first, min(500_000, count - first)).take(
            pa.array(np.arange(0, min(500_000, count - first), DELETED_EVERY))
        )
        for first in range(0, count, 500_000)
    )


def sample_rows(site: Site, reduction: float) -> pa.Table:
    """The rows of a sample."""
    scan, found = sample_scan(site, reduction)
    made, _ = site.engines().read(
        scan_demand(scan, found), lambda session: scan_rows(session, site.catalog, site.warehouse, scan, found)
    )
    return made if isinstance(made, pa.Table) else fetch_rows(made)


def wrong_rows(sample: pa.Table, exact: pa.Table, rate: float) -> int:
    """The number of rows that a sample has and should not, and of those that it lacks."""
    key = [*exact.column_names]
    expected = exact.filter(pa.array(sampling_hashes(exact, key) <= last_hash(rate)))
    sides = (sample, expected), (expected, sample)
    wrong: int = sum(left.join(right, key, join_type="left anti").num_rows for left, right in sides)
    return wrong
