"""Files of physical feeds: the elements as rows, cut into what arrives in each stretch of the clock.

The rows of a file are of the columns `at`, `value`, `until` and `text`; `at` and `value` identify an event, and `until`
is its end. `_op` says what an element does. A stable element is a row of its own, which gives only `at`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from errata.generate.feed import IntArray, mix_hash
from errata.generate.feeds import OPEN, VALUES, PhysicalFeed
from errata.model.time import LOWEST, Interval

OPERATIONS = ("insert", "adjust", "delete", "stable")
"""What `_op` says, in the order of the numbers of elements."""

_POOL_BYTES = 1 << 20


FEED_SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("value", pa.int64()),
        pa.field("until", pa.timestamp("us", "UTC")),
        pa.field("text", pa.string()),
        pa.field("_op", pa.dictionary(pa.int8(), pa.string())),
        pa.field("_old_until", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of a feed's files."""


def feed_rows(feed: PhysicalFeed, text_bytes: int = 16) -> pa.Table:
    """The elements as the rows of a file."""
    operations = pa.DictionaryArray.from_arrays(pa.array(feed.kind), pa.array(OPERATIONS))
    columns = [
        _times(feed.at),
        pa.array(feed.value),
        _times(feed.end, (feed.end == OPEN) | (feed.end == LOWEST)),
        event_texts(feed.at, feed.value, text_bytes),
        operations,
        _times(feed.old_end, (feed.old_end == OPEN) | (feed.old_end == LOWEST)),
    ]
    return pa.Table.from_arrays(columns, schema=FEED_SCHEMA)


def event_texts(at: IntArray, value: IntArray, size: int) -> pa.Array:
    """The payload of each event: letters that follow from its time and value."""
    spread = mix_hash(at.astype(np.uint64) * np.uint64(VALUES) + value.astype(np.uint64))
    places = (spread % np.uint64(_POOL_BYTES - size)).astype(np.int64)
    letters = np.lib.stride_tricks.sliding_window_view(_pool(), size)[places]
    ends = np.arange(len(at) + 1, dtype=np.int32) * size
    return pa.StringArray.from_buffers(len(at), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters)))


@cache
def _pool() -> npt.NDArray[np.uint8]:
    letters = np.random.default_rng(2012).integers(ord("a"), ord("z"), _POOL_BYTES, endpoint=True)
    return letters.astype(np.uint8)


def _times(places: IntArray, none: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(places, pa.int64(), mask=none).cast(pa.timestamp("us", "UTC"))


def cut_feeds(feeds: Sequence[PhysicalFeed], pieces: int) -> Iterator[list[PhysicalFeed]]:
    """What arrives in each of so many stretches of the clock, which are equally long."""
    first = min(int(feed.arrival[0]) for feed in feeds)
    last = max(int(feed.arrival[-1]) for feed in feeds) + 1
    borders = np.linspace(first, last, pieces + 1).astype(np.int64).tolist()
    for start, end in pairwise(borders):
        yield [feed.arriving(Interval(start, end)) for feed in feeds]


def write_feeds(
    folder: Path, feeds: Sequence[PhysicalFeed], pieces: int, text_bytes: int = 16, compression: str = "snappy"
) -> list[list[Path]]:
    """Write a folder for each feed, `feed_1` and so on, with a file for each stretch of the clock. The files of each
    stretch are returned together."""
    folders = [folder / f"feed_{number}" for number in range(1, len(feeds) + 1)]
    for each in folders:
        each.mkdir(parents=True, exist_ok=True)
    files = []
    for number, parts in enumerate(cut_feeds(feeds, pieces), 1):
        files.append([each / f"{number:05}.parquet" for each in folders])
        for part, file in zip(parts, files[-1], strict=True):
            rows = feed_rows(part, text_bytes)
            pq.write_table(rows, file, compression=compression, use_dictionary=["_op"])
    return files
