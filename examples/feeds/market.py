"""The quotes of a market, minute by minute, and files of them as they land in a feed's folder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
OPENING = datetime(2026, 11, 18, 10, tzinfo=UTC)
SYMBOLS = ("AAPL", "IBM", "MSFT", "NVDA", "ORCL")
SECONDS = 60


def minute_of_quotes(minute: int) -> pa.Table:
    """The quotes of a minute, counted from the opening: each company's price, every second. Always the same."""
    draw = np.random.default_rng([2012, minute + 1_000])
    count = SECONDS * len(SYMBOLS)
    begin = int((OPENING + timedelta(minutes=minute)).timestamp()) * 1_000_000
    times = begin + np.repeat(np.arange(SECONDS), len(SYMBOLS)) * 1_000_000 + np.tile(np.arange(len(SYMBOLS)), SECONDS)
    return pa.table(
        {
            "time": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array(np.tile(np.array(SYMBOLS), SECONDS)),
            "price": np.round(100 + 10 * draw.random(count), 2),
        }
    )


def out_of_order(rows: pa.Table, seed: int) -> pa.Table:
    """The rows as they come by one way: each up to three seconds later than the first."""
    late = np.random.default_rng(seed).integers(0, 3_000_000, rows.num_rows)
    return rows.take(pa.array(np.argsort(rows["time"].cast(pa.int64()).to_numpy() + late, kind="stable")))


def without_share(rows: pa.Table, share: float, seed: int) -> pa.Table:
    """The rows, without a share of them that was lost on the way."""
    return rows.filter(pa.array(np.random.default_rng(seed).random(rows.num_rows) >= share))


def land(root: Path, feed: str, name: str, rows: pa.Table | Sequence[pa.Table]) -> Path:
    """Write a file to the folder in which a feed lands."""
    folder = root / "landing" / feed
    folder.mkdir(parents=True, exist_ok=True)
    whole = rows if isinstance(rows, pa.Table) else pa.concat_tables(rows)
    # Written under another name first: a file that is half written must not be taken in.
    pq.write_table(whole, folder / f".{name}")
    return (folder / f".{name}").rename(folder / f"{name}.parquet")


def clock_time(minute: int) -> str:
    """The end of a minute, as it is printed."""
    return f"{OPENING + timedelta(minutes=minute + 1):%H:%M}"
