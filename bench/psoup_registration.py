"""New queries over old data: what it costs to register one query over an archive, and a thousand, beside a scan."""

from __future__ import annotations

import gc
import time
import tracemalloc
from dataclasses import dataclass
from random import Random

from bench.measure import Metric, interleaved, talk
from bench.psoup_archive import RegisteredArchive, interval_question
from bench.psoup_workload import SEED
from errata.psoup.materialise import materialise
from errata.psoup.register import register, registered_queries


@dataclass(frozen=True, slots=True)
class RegistrationAmounts:
    """How much is measured."""

    rows: int
    """Rows of the archive."""
    together: int
    """Queries that are registered at once."""
    rounds: int


def registration_figures(amounts: RegistrationAmounts, archive: RegisteredArchive) -> list[Metric]:
    """Register and match new queries, beside Spark, which reads the same files with the same predicate."""
    draw = Random(SEED + 1)
    spark = archive.site.session()

    def scanned(_: int) -> None:
        question = interval_question(draw, 2)
        files = spark.read.parquet(*archive.files("r"))
        conditions = " AND ".join(question.conditions).replace("x.", "")
        files.where(conditions).write.format("noop").mode("overwrite").save()

    talk.print(f"registration over {archive.rows['r']:,} rows: one query")
    one = interleaved(amounts.rounds, ours=lambda _: _registered(archive, draw, 1), plain=scanned)
    talk.print(f"registration: {amounts.together:,} queries together")
    begun = time.perf_counter()
    _registered(archive, draw, amounts.together)
    together = time.perf_counter() - begun
    gc.collect()
    tracemalloc.start()
    known = registered_queries(archive.site)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return [
        Metric(f"registering a query over {archive.rows['r']:,} rows", one.median("ours"), "s"),
        Metric("the same beside a plain Spark scan with its predicate", one.ratio("ours", "plain"), "times", "<= 1.5"),
        Metric(
            f"registering {amounts.together:,} together, beside one", together / one.median("ours"), "times", "<= 10"
        ),
        Metric(f"memory of {len(known):,} registered queries", memory / len(known), "bytes/query", "<= 2048"),
    ]


def _registered(archive: RegisteredArchive, draw: Random, count: int) -> None:
    texts = [interval_question(draw, draw.randint(1, 4)).registered(1_000) for _ in range(count)]
    register(archive.site, texts, owner="bench")
    reports = materialise(archive.site)
    if sum(each.conjunctions for each in reports) == 0:
        raise RuntimeError("nothing was matched, so nothing was measured")
