"""Writes a feed of a freeway: seven mornings of the week before, and this morning in files of a quarter of an hour.

A car passes Ashby between 07:00 and 10:00 and some time later University or the Bay Bridge; the fuller the freeway, the
later. Each exit has six sensors in a row, which read every car. Commuters come every day at about the same time, other
cars on any day at any time. The same arguments always write the same files.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TODAY = datetime(2026, 11, 18, tzinfo=UTC)
BEGIN, END = timedelta(hours=7), timedelta(hours=10)
"""The rush hour: after midnight."""
QUARTER = timedelta(minutes=15)
DAYS = 7
SENSORS = 6
EXITS = ("Ashby", "University", "Bay Bridge")
SECOND = 1_000_000

COMMUTERS = 0.3
"""The share of the cars of a day that come every day."""
PRESENT = 0.985
"""The chance of a commuter to come on a day."""


def day_of_traffic(number: int, cars: int, seed: int) -> pa.Table:
    """The readings of a morning, so many days before today, in the order of time."""
    habits = np.random.default_rng([seed, 0])
    daily = int(cars * COMMUTERS)
    rush = (END - BEGIN) // timedelta(seconds=1)
    usual = habits.uniform(0, rush, daily)
    draw = np.random.default_rng([seed, 1 + number])
    there = draw.random(daily) < PRESENT
    occasional = cars - daily
    names = np.concatenate([np.flatnonzero(there), daily + draw.integers(0, 1 << 40, occasional)])
    # A commuter is some minutes earlier or later than usual.
    entered = np.concatenate([usual[there] + draw.normal(0, 180, there.sum()), draw.uniform(0, rush, occasional)])
    entered = np.clip(entered, 0, rush - 1)
    left = draw.random(len(names)) < 0.2
    # Five minutes to University and ten to the bridge while the freeway is empty, and more by the hour.
    travelled = np.where(left, 300, 600) * (1 + entered / 3600) * draw.uniform(0.9, 1.3, len(names))
    cars_twice = np.concatenate([names, names])
    exits = np.concatenate([np.zeros(len(names), np.int8), np.where(left, 1, 2).astype(np.int8)])
    seconds = np.concatenate([entered, entered + travelled])
    midnight = int((TODAY - timedelta(days=number)).timestamp()) + BEGIN // timedelta(seconds=1)
    first = ((midnight + seconds) * SECOND).astype(np.int64)
    sensor = np.tile(np.arange(1, SENSORS + 1, dtype=np.int32), len(first))
    # A sensor reads the car a fifth of a second after the one before it.
    times = np.repeat(first, SENSORS) + (sensor - 1) * (SECOND // 5)
    readings = pa.table(
        {
            "time": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "exit": pa.array(np.repeat(np.array(EXITS)[exits], SENSORS)),
            "sensor": sensor,
            "car": np.repeat(cars_twice, SENSORS).astype(np.int64),
        }
    )
    return readings.sort_by("time")


def quarters() -> list[datetime]:
    """The ends of this morning's quarters of an hour."""
    return [TODAY + BEGIN + number * QUARTER for number in range(1, (END - BEGIN) // QUARTER + 1)]


def write_traffic(out: Path, cars: int, seed: int = 1) -> list[Path]:
    """A file for each day of the week before, and one for each quarter of an hour of this morning."""
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for number in range(DAYS, 0, -1):
        files.append(out / f"day-{TODAY - timedelta(days=number):%Y-%m-%d}.parquet")
        pq.write_table(day_of_traffic(number, cars, seed), files[-1])
    today = day_of_traffic(0, cars, seed)
    for end in quarters():
        inside = pc.and_(pc.greater_equal(today["time"], end - QUARTER), pc.less(today["time"], end))
        files.append(out / f"today-{end:%H%M}.parquet")
        pq.write_table(today.filter(inside), files[-1])
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cars", type=int, default=10_000, help="cars of a morning")
    parser.add_argument("--out", type=Path, default=Path("feed"))
    given = parser.parse_args()
    for file in write_traffic(given.out, given.cars):
        print(file, f"{pq.read_metadata(file).num_rows:,} readings")
