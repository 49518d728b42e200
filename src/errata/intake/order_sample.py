"""Where the order values of files lie, which is needed to cut a batch into slots of about a bucket's rows.

For Parquet, footers tell the exact range of each split. For other files, and where footers do not tell, about `blocks`
small parts are read as a sample, which estimates the number of rows and the distribution of their order values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.intake.convert import convert
from errata.intake.formats import open_parquet, parse_csv, parse_object
from errata.intake.layout import FileLayout
from errata.intake.source import open_source
from errata.model.batch import FileFormat, FileSplit, SourceFile
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

_TIME_UNITS = {"milliseconds": Fraction(1_000), "microseconds": Fraction(1), "nanoseconds": Fraction(1, 1_000)}

OrderRange = tuple[int, int]
"""The least and the greatest value, both included."""


def order_ranges(
    splits: Sequence[FileSplit], layouts: Sequence[FileLayout], stream: Stream
) -> dict[int, OrderRange] | None:
    """The range of each split's order field; None if some file does not tell it, or has more than plain inserts."""
    by_file: dict[str, list[FileSplit]] = {}
    layout_of: dict[str, FileLayout] = {}
    for split, layout in zip(splits, layouts, strict=True):
        by_file.setdefault(split.file.name, []).append(split)
        layout_of[split.file.name] = layout
    spans: dict[int, OrderRange] = {}
    for name, pieces in by_file.items():
        layout = layout_of[name]
        if pieces[0].file.format is not FileFormat.PARQUET or layout.may_correct or not layout.gives_order:
            return None
        groups = _row_group_ranges(pieces[0].file, stream)
        for split in pieces:
            found = [groups[number] for number in range(split.start, split.end) if layout.row_groups[number]]
            known = [span for span in found if span is not None]
            if len(known) < len(found):
                return None
            if known:
                spans[split.number] = min(low for low, _ in known), max(high for _, high in known)
    return spans


def _row_group_ranges(file: SourceFile, stream: Stream) -> list[OrderRange | None]:
    with open_parquet(file) as parquet:
        return [row_group_range(parquet, group, stream) for group in range(parquet.num_row_groups)]


def row_group_range(parquet: pq.ParquetFile, group: int, stream: Stream) -> OrderRange | None:
    """The range of a row group by its statistics, as integers of the order field; None if they are not reliable.

    Only values that Parquet stores as signed integers are used: statistics of text are about its spelling, and those of
    converted types may be beyond what Python can hold.
    """
    index = parquet.schema_arrow.names.index(stream.order)
    unit = _order_unit(parquet, index, stream)
    statistics = parquet.metadata.row_group(group).column(index).statistics
    if unit is None or statistics is None or not statistics.has_min_max or statistics.null_count != 0:
        return None
    ends = int(statistics.min_raw), int(statistics.max_raw)
    low, high = (end * unit.numerator // unit.denominator for end in ends)
    # Milliseconds may overflow 64 bits as microseconds; such rows are refused later, wherever they are.
    return (low, high) if low >= LOWEST and high <= HIGHEST else None


def _order_unit(parquet: pq.ParquetFile, index: int, stream: Stream) -> Fraction | None:
    """How many units of the order field one unit of the stored integers is; None if they cannot be compared."""
    column = parquet.schema.column(index)
    if column.physical_type not in ("INT32", "INT64") or column.path != stream.order:
        return None
    logical = json.loads(column.logical_type.to_json())
    if stream.timed:
        return _TIME_UNITS.get(logical.get("timeUnit")) if logical["Type"] == "Timestamp" else None
    signed = logical["Type"] == "None" or (logical["Type"] == "Int" and logical["isSigned"])
    return Fraction(1) if signed else None


# Samples: about how many rows there are, and how their order values are distributed.

_TEXT_BLOCK = 4 * 1024
_GZIP_BLOCK = 256 * 1024
_MOST_LINES = 512
_READ_GROUPS = 4
_PER_GROUP = 256
_MOST_RANGES = 4096


@dataclass(frozen=True, slots=True)
class OrderSample:
    """Ascending order values, and how many rows each stands for."""

    rows: int
    values: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, slots=True)
class _FileSample:
    """The sample of one file or row group."""

    rows: float
    values: np.ndarray

    def weights(self) -> np.ndarray:
        return np.full(len(self.values), self.rows / max(len(self.values), 1))


def sample_order(
    files: Sequence[SourceFile], layouts: Sequence[FileLayout], stream: Stream, blocks: int = 64
) -> OrderSample:
    """Read about `blocks` small parts of the files."""
    total = sum(file.bytes for file in files) or 1
    glances: list[_FileSample] = []
    for file, layout in zip(files, layouts, strict=True):
        share = max(1, round(blocks * file.bytes / total))
        glances.extend(_sample_file(file, layout, stream, share))
    values = np.concatenate([np.array([], dtype=np.int64), *(glance.values for glance in glances)])
    weights = np.concatenate([np.array([], dtype=np.float64), *(glance.weights() for glance in glances)])
    order = np.argsort(values, kind="stable")
    return OrderSample(round(sum(glance.rows for glance in glances)), values[order], weights[order])


def range_bounds(sample: OrderSample, bucket_rows: int, fill: float = 0.97) -> list[int]:
    """The values at which ranges of about `bucket_rows * fill` rows begin, without the first."""
    if sample.rows <= bucket_rows or not len(sample.values):
        return []
    ranges = min(_MOST_RANGES, math.ceil(sample.rows / max(1.0, bucket_rows * fill)))
    passed = np.cumsum(sample.weights)
    targets = passed[-1] * np.arange(1, ranges) / ranges
    # A value counts as passed when half of its rows are.
    cuts = np.unique(sample.values[np.searchsorted(passed - sample.weights / 2, targets).clip(max=len(passed) - 1)])
    return [int(cut) for cut in cuts if cut > sample.values[0]]


def _sample_file(file: SourceFile, layout: FileLayout, stream: Stream, blocks: int) -> list[_FileSample]:
    if file.format is FileFormat.PARQUET:
        return _sample_parquet(file, layout, stream, blocks)
    if file.gzip:
        return [_sample_gzip(file, layout, stream)]
    return [_sample_text(file, layout, stream, blocks)]


def _sample_text(file: SourceFile, layout: FileLayout, stream: Stream, blocks: int) -> _FileSample:
    size = file.bytes - layout.data_start
    blocks = min(blocks, max(1, size // _TEXT_BLOCK))
    lines: list[bytes] = []
    with open_source(file) as content:
        for block in range(blocks):
            offset = layout.data_start + size * block // blocks
            content.seek(offset)
            found = content.read(_TEXT_BLOCK)
            at_end = offset + len(found) >= file.bytes
            lines.extend(_whole_lines(found, offset == layout.data_start, at_end))
    return _sample_lines(lines, size, file, layout, stream)


def _sample_gzip(file: SourceFile, layout: FileLayout, stream: Stream) -> _FileSample:
    with open_source(file) as content:
        found = content.read(_GZIP_BLOCK)
        at_end = len(found) < _GZIP_BLOCK
        # The position of the compressed stream tells how many compressed bytes the block took.
        taken = file.bytes if at_end else max(1, _compressed_position(content))
    lines = _whole_lines(found[layout.data_start :], first=True, last=at_end)
    size = len(found) * max(1.0, file.bytes / taken) - layout.data_start
    step = max(1, len(lines) // _MOST_LINES)
    return _sample_lines(lines[::step], size, file, layout, stream)


def _compressed_position(content: object) -> int:
    inner = getattr(content, "fileobj", None)
    return int(inner.tell()) if inner is not None else 0


def _whole_lines(found: bytes, first: bool, last: bool) -> list[bytes]:
    """The lines that begin and end in a block."""
    lines = found.split(b"\n")
    tail = lines.pop()
    if last and tail:
        lines.append(tail)
    return lines if first else lines[1:]


def _sample_lines(lines: list[bytes], size: float, file: SourceFile, layout: FileLayout, stream: Stream) -> _FileSample:
    if not lines:
        return _FileSample(1.0 if size > 0 else 0.0, np.array([], dtype=np.int64))
    rows = size * len(lines) / sum(len(line) + 1 for line in lines)
    if file.format is FileFormat.JSON:
        return _FileSample(rows, _order_integers(pa.array(_json_values(lines, stream), pa.string()), stream))
    if stream.order not in layout.columns:
        return _FileSample(rows, np.array([], dtype=np.int64))
    return _FileSample(
        rows, _order_integers(parse_csv(b"\n".join(lines), layout.columns).columns[stream.order], stream)
    )


def _json_values(lines: list[bytes], stream: Stream) -> list[str]:
    objects = (parse_object(line) for line in lines)
    values = (found.get(stream.order) for found in objects if isinstance(found, dict))
    return [value for value in values if isinstance(value, str) and value.isascii()]


def _order_integers(values: pa.Array | pa.ChunkedArray, stream: Stream) -> np.ndarray:
    """The values that can be converted, as integers."""
    typed, _ = convert(values, stream.order_type)
    numbers: np.ndarray = typed.drop_null().view(pa.int64()).to_numpy()
    return numbers


def _sample_parquet(file: SourceFile, layout: FileLayout, stream: Stream, blocks: int) -> list[_FileSample]:
    groups = [group for group, rows in enumerate(layout.row_groups) if rows]
    if stream.order not in layout.columns:
        return [_FileSample(float(sum(layout.row_groups)), np.array([], dtype=np.int64))]
    with open_parquet(file) as parquet:
        if len(groups) <= _READ_GROUPS:
            return [_FileSample(layout.row_groups[group], _group_values(parquet, group, stream)) for group in groups]
        spans = [_evenly_spread(parquet, group, stream, blocks) for group in groups]
    return [_FileSample(layout.row_groups[group], span) for group, span in zip(groups, spans, strict=True)]


def _group_values(parquet: pq.ParquetFile, group: int, stream: Stream) -> np.ndarray:
    column = parquet.read_row_group(group, columns=[stream.order], use_threads=False).column(0)
    step = max(1, len(column) // _PER_GROUP)
    return _order_integers(column.take(pa.array(range(0, len(column), step))), stream)


def _evenly_spread(parquet: pq.ParquetFile, group: int, stream: Stream, blocks: int) -> np.ndarray:
    """Values spread evenly over the row group's range, if its statistics tell it; else a sample."""
    span = row_group_range(parquet, group, stream)
    if span is None:
        return _group_values(parquet, group, stream)
    low, high = span
    points = max(2, blocks // 8)
    return np.array([low + (high - low) * point // (points - 1) for point in range(points)], dtype=np.int64)
