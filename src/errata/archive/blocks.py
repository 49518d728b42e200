"""Buckets in blocks (randomise then sort): a sample is read block by block (Chandrasekaran and Franklin 2004, 4.1.3).

The range of the sampling hash is cut at fixed rates. A block is what lies between two cuts, and its number is the same
in every bucket. A file of a randomised bucket holds its rows by block and, within a block, in stream order; row groups
begin and end where blocks do:

    rate    0      1%        10%          25%                     50%                                          100%
    rows    | group | group   | group      | group                 | group                                      |

So a sample is a prefix of the file. The hidden column `_block` has the block's number: its statistics tell a reader,
this process or Spark, which row groups it needs. Other columns have none: within a row group they are spread over the
whole bucket, and a footer of few bytes matters where 1% of a file is read. For the same reason a small bucket has few
row groups: the cuts are ordered by importance, and a bucket uses as many as its rows pay for.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.archive.bloom import bloom_options
from errata.archive.bucket_files import POS, columns_with, is_minus_zero
from errata.archive.sampling import last_hash
from errata.model.reduction import FULL_RATE

BLOCK = "_block"
"""The hidden column of files of randomised buckets with the number of a row's block."""

ROWS_PER_CUT = 40_000
"""Rows of a bucket for each cut: the footer, longer by each row group, is then about a tenth of a 1% sample."""

_MAIN_CUTS = (0.5, 0.1, 0.25, 0.01)
"""Rates at which every file is cut: a sample at one of them reads no other row."""

_SMALLEST_CUTS = (0.001, 0.002, 0.005)
_STEP = 1.1
"""The most that a cut is above the one before: a sample between two cuts reads at most so much more than it needs."""


def _fixed_cuts() -> tuple[float, ...]:
    """All cuts below 1, ascending."""
    cuts = [*_SMALLEST_CUTS]
    for low, high in pairwise((*sorted(_MAIN_CUTS), FULL_RATE)):
        steps = int(np.ceil(np.log(high / low) / np.log(_STEP)))
        cuts += [low * (high / low) ** (step / steps) for step in range(steps)]
    return tuple(cuts)


def _by_importance(cuts: tuple[float, ...]) -> tuple[int, ...]:
    """The cuts' numbers, first those that narrow most what a sample reads in vain."""
    chosen = [cuts.index(each) for each in _MAIN_CUTS]
    while len(chosen) < len(cuts):
        ends = [*sorted(chosen), len(cuts)]
        rates = [*cuts, FULL_RATE]
        gaps = [(rates[high] / rates[low], low, high) for low, high in pairwise(ends) if high - low > 1]
        if gaps:
            _, low, high = max(gaps)
            middle = (rates[low] * rates[high]) ** 0.5
            chosen.append(min(range(low + 1, high), key=lambda each: abs(rates[each] - middle)))
        else:
            chosen.append(ends[0] - 1)
    return tuple(chosen)


CUTS = _fixed_cuts()
"""The rates at which blocks end, but for the last block."""
_IMPORTANCE = _by_importance(CUTS)
_LAST_HASHES = np.array([last_hash(each) for each in CUTS], dtype=np.int64)

_RANGES = 1 << 12
"""Equal ranges of the sampling hash, each of the hashes with the same first bits."""
_SHIFT = 64 - 12
_FIRST_HASHES = (np.arange(_RANGES) - (_RANGES >> 1)) << _SHIFT
_FIRST_BLOCKS = np.searchsorted(_LAST_HASHES, _FIRST_HASHES, side="left").astype(np.int16)
_IS_CUT = np.searchsorted(_LAST_HASHES, _FIRST_HASHES + ((1 << _SHIFT) - 1), side="left") != _FIRST_BLOCKS


def block_numbers(hashes: np.ndarray) -> np.ndarray:
    """The block of each row, by its sampling hash. Most follow from its first bits; rows are searched for only where a
    cut lies among the hashes with the same first bits."""
    ranges = (hashes >> _SHIFT) + (_RANGES >> 1)
    found: np.ndarray = _FIRST_BLOCKS[ranges]
    cut = np.flatnonzero(_IS_CUT[ranges])
    found[cut] = np.searchsorted(_LAST_HASHES, hashes[cut], side="left")
    return found


def last_block(rate: float) -> int:
    """The last block that has rows of a sample at this rate."""
    return bisect_left(CUTS, rate)


def read_rate(rate: float, rows: int) -> float:
    """The share of a file of so many rows that is read for a sample at this rate."""
    return next((CUTS[each] for each in sorted(cuts_of(rows)) if CUTS[each] >= rate), FULL_RATE)


def cuts_of(rows: int) -> tuple[int, ...]:
    """The numbers of the cuts at which a file of so many rows is cut into row groups."""
    return _IMPORTANCE[: max(len(_MAIN_CUTS), rows // ROWS_PER_CUT)]


def randomized_bytes(rows: pa.Table, filtered: tuple[str, ...], hashes: np.ndarray) -> bytes:
    """A Parquet file of rows in stream order, arranged in blocks, with Bloom filters on the `filtered` columns."""
    blocks = block_numbers(hashes)
    index = np.argsort(blocks, kind="stable")
    ordered = rows.take(pa.array(index)).append_column(BLOCK, pa.array(blocks[index]))
    ends = np.searchsorted(blocks[index], np.array(sorted(cuts_of(rows.num_rows))), side="right")
    groups = [(low, high) for low, high in pairwise([0, *ends.tolist(), rows.num_rows]) if high > low]
    fullest = max((high - low for low, high in groups), default=1)
    sink = pa.BufferOutputStream()
    # A reader that looks for the dictionary of a row group's blocks would read more than the blocks themselves.
    encoding = dict.fromkeys([BLOCK, *_ascending_columns(rows)], "DELTA_BINARY_PACKED")
    plain = {*encoding, *columns_with(rows, is_minus_zero)}
    with pq.ParquetWriter(
        sink,
        ordered.schema,
        compression="zstd",
        use_dictionary=[name for name in ordered.column_names if name not in plain],
        column_encoding=encoding,
        write_statistics=[BLOCK],
        store_schema=False,
        bloom_filter_options=bloom_options(ordered, filtered, fullest) or None,
    ) as file:
        for low, high in groups:
            file.write_table(ordered.slice(low, high - low), row_group_size=high - low)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _ascending_columns(rows: pa.Table) -> list[str]:
    """The columns of whole numbers or times that ascend in stream order, and so within each block; and positions."""
    found = []
    for name in rows.column_names:
        column = rows[name]
        if name == POS:
            found.append(name)
            continue
        if column.null_count or not (pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type)):
            continue
        values = column.cast(pa.int64()).to_numpy()
        if (values[1:] >= values[:-1]).all():
            found.append(name)
    return found


def wanted_row_groups(metadata: pq.FileMetaData, rate: float) -> list[int]:
    """The row groups of a file in blocks that have rows of a sample at this rate."""
    place, last = metadata.schema.names.index(BLOCK), last_block(rate)
    every = range(metadata.num_row_groups)
    return [each for each in every if metadata.row_group(each).column(place).statistics.min <= last]
