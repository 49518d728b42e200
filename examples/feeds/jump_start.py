"""Jump-start from an archive: a query over the last hour is declared at ten o'clock. What it needs of the hour before
has been stored elsewhere; from ten on a live feed has everything. Both are feeds of one stream and overlap: the archive
was written until five past ten. The first answer is right at once, not after an hour. Then the archive is detached.

Run `python jump_start.py` in this folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from market import HERE, OPENING, land, minute_of_quotes, out_of_order

import errata
from errata.flows.open_project import OpenProject

STORED = range(-60, 5)
"""The minutes that the archive has, counted from ten o'clock."""
LIVE = range(10)
"""And the live feed."""


@dataclass(frozen=True)
class Answer:
    """How many quotes an answer is made of, and how many there were in its hour."""

    until: str
    quotes: int
    written: int


def stored_file(root: Path) -> Path:
    """The archive, as a file."""
    file = root / "stored.parquet"
    pq.write_table(pa.concat_tables(minute_of_quotes(each) for each in STORED), file)
    return file


def jump_start(project: OpenProject) -> list[Answer]:
    """Take in the archive, then what comes live; the answers for one company, minute by minute."""
    project.apply()
    project.ingest("started", stored_file(HERE), feed="stored")
    for minute in LIVE:
        land(HERE, "live", f"{minute:02}", out_of_order(minute_of_quotes(minute), seed=minute))
        project.run()
        if minute == STORED.stop:
            project.detach("started", "stored")
    answers = project.results("last_hour").to_pylist()
    whole = pa.concat_tables(minute_of_quotes(each) for each in range(STORED.start, LIVE.stop))
    return [
        Answer(f"{row['window_end']:%H:%M}", row["quotes"], _quotes_before(whole, row["window_end"], row["symbol"]))
        for row in answers
        if row["symbol"] == "IBM" and row["window_end"] >= OPENING
    ]


def _quotes_before(rows: pa.Table, end: object, symbol: str) -> int:
    """How many quotes a company has in the hour before a time."""
    hour = pc.and_(pc.less(rows["time"], end), pc.greater_equal(rows["time"], pc.subtract(pa.scalar(end), _HOUR)))
    return rows.filter(pc.and_(hour, pc.equal(rows["symbol"], symbol))).num_rows


_HOUR = pa.scalar(3_600_000_000, pa.duration("us"))


if __name__ == "__main__":
    with errata.open(HERE) as opened:
        print("until  quotes of IBM in the last hour  written")
        for each in jump_start(opened):
            print(f"{each.until}  {each.quotes:31}  {each.written:7}")
