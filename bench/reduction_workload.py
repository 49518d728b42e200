"""The stream of the paper's experiments (oscar-archives-2004, 6.1.1), and archives of it with each storage mechanism.

A row is a time and a number, `(float8 timestamp, int4 userattr)` there: times are those of entry, about 20 microseconds
apart as 20 million in 430 seconds are; the number says nothing. Both are the key, so that a sample is drawn from whole
rows, as there.

A run of R blocks is a bucket of as many rows as R of the paper's blocks had: 20 million rows in 108,000 blocks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.reduction_costs import COPY_RATES, PAPER_BLOCKS, PAPER_ROWS, RUN_LENGTHS
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog.database import open_catalog
from errata.catalog.migration import prepare_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import FILE_NAME, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.generate.quotes import DEFAULT_START

STREAM = "arrivals"
SEED = 2004
BLOCK_ROWS = PAPER_ROWS // PAPER_BLOCKS
"""Rows of the paper's blocks of 8 KB."""
BUCKET_ROWS = 500_000
FILE_ROWS = 500_000
"""Rows of a file of the feed."""
APART = 20
"""Microseconds between two rows."""
ATTRIBUTES = 1 << 20
"""Values of the attribute."""

_SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("userattr", pa.int32())])
_DECLARATION = """\
project: bench
catalog: sqlite:///errata.db
warehouse: ./warehouse
spark: {{master: "local[*]", conf: {{spark.driver.memory: 2g}}}}
streams:
  {stream}:
    columns: {{time: timestamp, userattr: int}}
    key: [time, userattr]
    order: time
    bucket_rows: {bucket_rows}
    max_ahead: 36500 days
{declared}"""


@dataclass(frozen=True, slots=True)
class StorageMethod:
    """How a stream is stored: what is declared, and how large its buckets are."""

    name: str
    declared: str = ""
    """What else is declared of the stream, in errata.yaml."""
    bucket_rows: int = BUCKET_ROWS

    def declaration(self, streams: Sequence[str] = (STREAM,)) -> str:
        """The project in errata.yaml."""
        lines = "".join(f"    {line}\n" for line in self.declared.splitlines())
        first, *others = (
            _DECLARATION.format(stream=each, bucket_rows=self.bucket_rows, declared=lines) for each in streams
        )
        return first + "".join(each.partition("streams:\n")[2] for each in others)


STRAWMAN = StorageMethod("strawman")
COPIES = StorageMethod("copies on write", f"reduce: {{copies: [{', '.join(f'{rate:.0%}' for rate in COPY_RATES)}]}}")
ON_READ = StorageMethod("modify on read", "reduce: {on_read: true}")
RANDOMISED = StorageMethod("randomise then sort", "layout: randomized")
RUNS = {
    run: StorageMethod(f"randomise then sort, runs of {run}", RANDOMISED.declared, run * BLOCK_ROWS)
    for run in RUN_LENGTHS
}
"""Randomise-then-sort with buckets of as many rows as a run of so many blocks."""
METHODS = (STRAWMAN, COPIES, ON_READ, RANDOMISED, *RUNS.values())


def rows(first: int, count: int, seed: int = SEED) -> pa.Table:
    """The rows from a number on. A row is the same whichever it is asked with, if `first` is the same."""
    draw = np.random.default_rng([seed, first])
    times = DEFAULT_START + (np.arange(first, first + count) * APART) + draw.integers(0, APART, count)
    return pa.table(
        [
            pa.array(times, pa.int64()).cast(_SCHEMA.field("time").type),
            pa.array(draw.integers(0, ATTRIBUTES, count, np.int32)),
        ],
        schema=_SCHEMA,
    )


def write_feed(folder: Path, count: int, first: int = 0) -> list[Path]:
    """Files of so many rows, as they come."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for start in range(first, first + count, FILE_ROWS):
        files.append(folder / f"{STREAM}-{start:09}.parquet")
        pq.write_table(rows(start, min(FILE_ROWS, first + count - start)), files[-1])
    return files


def make_site(folder: Path, method: StorageMethod, streams: Sequence[str] = (STREAM,)) -> Site:
    """A new project in the folder, its streams declared; all projects of a process share one session."""
    folder.mkdir(parents=True)
    file = folder / FILE_NAME
    file.write_text(method.declaration(streams))
    project = load_project(file)
    catalog = prepare_catalog(project.catalog)
    apply_plan(plan_apply(project))
    return Site(project, catalog, Warehouse(project.warehouse))


def open_copy(folder: Path, to: Path) -> Site:
    """A project like the one in the folder, which must be closed. Buckets never change, so their files are linked."""
    shutil.copytree(folder / "warehouse", to / "warehouse", copy_function=os.link)
    for name in (FILE_NAME, "errata.db"):
        shutil.copy(folder / name, to / name)
    return open_project(to)


def open_project(folder: Path) -> Site:
    """The project in a folder."""
    project = load_project(folder / FILE_NAME)
    return Site(project, open_catalog(project.catalog), Warehouse(project.warehouse))


def take_in(site: Site, files: Sequence[Path], stream: str = STREAM) -> None:
    """Ingest the files as one batch, of which every row is appended."""
    report = ingest_batch(site, IngestRequest(stream, tuple(map(str, files))))
    if report.commit_id is None or report.counts.appended != report.counts.read:
        raise AssertionError(f"a batch without faults goes in whole, this one did not: {report}")
