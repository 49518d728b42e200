"""The example of the freeway: both queries over what arrives and what is stored, reduced beside exact, and exact beside
what its files say."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import errata
from errata.archive import bucket_writer

EXAMPLE = Path(__file__).parents[2] / "examples" / "freeway"
CARS = 1_000


@pytest.fixture(scope="module")
def freeway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The example's program, in a copy of its folder with a feed."""
    folder = tmp_path_factory.mktemp("example") / "freeway"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("feed", "warehouse", "errata.db*", "__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ERRATA_CATALOG", "ERRATA_WAREHOUSE", "ERRATA_PROJECT"):
            patch.delenv(name, raising=False)
        patch.syspath_prepend(str(folder))
        patch.setattr(bucket_writer, "MAX_INLINE_BYTES", 0)  # files with blocks, though there are few cars
        import_module("traffic").write_traffic(folder / "feed", CARS)
        yield import_module("rush_hour")
    for name in ("traffic", "rush_hour"):
        del sys.modules[name]


def test_both_questions_are_answered_reduced_as_exactly(freeway: ModuleType) -> None:
    feed = freeway.HERE / "feed"
    with errata.open(freeway.HERE) as project:
        freeway.take_in_week(project, feed)
        loads = [*freeway.rush_hour(project, feed)]
        exact, reduced = (freeway.commuters(project, name) for name in ("commuters", "commuters_reduced"))
    today = pa.concat_tables(pq.read_table(file) for file in sorted(feed.glob("today-*")))
    assert [load.until for load in loads] == [f"{hour:02}:{quarter:02}" for hour, quarter in _ends()]
    assert [load.exact for load in loads] == [_load(today, *end) for end in _ends()]
    _check_estimates(loads)
    assert exact == reduced == _commuters(feed, today)
    assert exact["Ashby"] > CARS / 20


def _check_estimates(loads: list[object]) -> None:
    """Nothing is left out of the first hour; afterwards each estimate has an interval, which is not far off. No bucket
    of the days before is read."""
    shown = [(each.exact, each.low, each.estimate, each.high) for each in loads]  # type: ignore[attr-defined]
    assert all(len(set(some)) == 1 for some in shown[:4])
    assert all(low < estimate < high for _, low, estimate, high in shown[5:])
    assert all(abs(estimate - exact) <= high - low for exact, low, estimate, high in shown)
    read = [each.read for each in loads]  # type: ignore[attr-defined]
    assert all(each.endswith("all rows were read, nothing is estimated of it") for each in read[:4])
    for quarters, each in enumerate(read[4:], 5):
        assert "blocks to" in each
        assert sum(map(int, re.findall(r"\((\d+) bucket", each))) == quarters, each


def _ends() -> list[tuple[int, int]]:
    return [(7 + number // 4, number % 4 * 15) for number in range(1, 13)]


def _load(today: pa.Table, hour: int, minute: int) -> int:
    """How many more cars the files have at Ashby than at the bridge, up to a time of day."""
    first = today.filter(pc.equal(today["sensor"], 1))
    before = pc.add(pc.multiply(pc.hour(first["time"]), 60), pc.minute(first["time"]))
    exits = first.filter(pc.less(before, 60 * hour + minute))["exit"].to_pylist()
    more: int = exits.count("Ashby") - exits.count("Bay Bridge")
    return more


def _commuters(feed: Path, today: pa.Table) -> dict[str, int]:
    """Cars of today that the files of all seven days have at the same exit and hour."""
    seen = [_passes(pq.read_table(file)) for file in feed.glob("day-*")]
    assert len(seen) == 7
    daily = _passes(today).intersection(*seen)
    exits = [place for place, _, _ in daily]
    return {place: exits.count(place) for place in set(exits)}


def _passes(readings: pa.Table) -> set[tuple[str, int, int]]:
    columns = readings["exit"], readings["car"], pc.hour(readings["time"])
    return set(zip(*(column.to_pylist() for column in columns), strict=True))
