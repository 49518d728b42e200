"""A glance over the files: about how many rows there are, and how their order values are spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.intake.convert import convert
from errata.intake.csv_lines import parse_csv
from errata.intake.json_lines import parse_object
from errata.intake.layout import FileLayout
from errata.intake.parquet_rows import opened_parquet
from errata.intake.source import opened
from errata.intake.spans import group_span
from errata.model.batch import Format, SourceFile
from errata.model.stream import Stream

_BLOCK = 4 * 1024
_GZIP_BLOCK = 256 * 1024
_MOST_LINES = 512
_READ_GROUPS = 4
_PER_GROUP = 256
_MOST_RANGES = 4096


@dataclass(frozen=True, slots=True)
class OrderSample:
    """Order values in ascending order, and for how many rows each stands."""

    rows: int
    values: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, slots=True)
class _Glance:
    """What one file's glance gave."""

    rows: float
    values: np.ndarray

    def weights(self) -> np.ndarray:
        return np.full(len(self.values), self.rows / max(len(self.values), 1))


def sample_order(
    files: Sequence[SourceFile], layouts: Sequence[FileLayout], stream: Stream, blocks: int = 64
) -> OrderSample:
    """Look at about `blocks` small pieces of the files."""
    total = sum(file.bytes for file in files) or 1
    glances: list[_Glance] = []
    for file, layout in zip(files, layouts, strict=True):
        share = max(1, round(blocks * file.bytes / total))
        glances.extend(_glances(file, layout, stream, share))
    values = np.concatenate([np.array([], dtype=np.int64), *(glance.values for glance in glances)])
    weights = np.concatenate([np.array([], dtype=np.float64), *(glance.weights() for glance in glances)])
    order = np.argsort(values, kind="stable")
    return OrderSample(round(sum(glance.rows for glance in glances)), values[order], weights[order])


def boundaries(sample: OrderSample, bucket_rows: int, fill: float = 0.97) -> list[int]:
    """Where to cut the order so that each range has about `bucket_rows * fill` rows; each cut begins a range."""
    if sample.rows <= bucket_rows or not len(sample.values):
        return []
    ranges = min(_MOST_RANGES, math.ceil(sample.rows / max(1.0, bucket_rows * fill)))
    passed = np.cumsum(sample.weights)
    targets = passed[-1] * np.arange(1, ranges) / ranges
    # A value's rows count as passed when half of them are: it begins a range when the target lies in them.
    cuts = np.unique(sample.values[np.searchsorted(passed - sample.weights / 2, targets).clip(max=len(passed) - 1)])
    return [int(cut) for cut in cuts if cut > sample.values[0]]


def _glances(file: SourceFile, layout: FileLayout, stream: Stream, blocks: int) -> list[_Glance]:
    if file.format is Format.PARQUET:
        return _parquet_glances(file, layout, stream, blocks)
    if file.gzip:
        return [_gzip_glance(file, layout, stream)]
    return [_text_glance(file, layout, stream, blocks)]


def _text_glance(file: SourceFile, layout: FileLayout, stream: Stream, blocks: int) -> _Glance:
    size = file.bytes - layout.data_start
    blocks = min(blocks, max(1, size // _BLOCK))
    lines: list[bytes] = []
    with opened(file) as content:
        for block in range(blocks):
            offset = layout.data_start + size * block // blocks
            content.seek(offset)
            found = content.read(_BLOCK)
            at_end = offset + len(found) >= file.bytes
            lines.extend(_whole_lines(found, offset == layout.data_start, at_end))
    return _of_lines(lines, size, file, layout, stream)


def _gzip_glance(file: SourceFile, layout: FileLayout, stream: Stream) -> _Glance:
    with opened(file) as content:
        found = content.read(_GZIP_BLOCK)
        at_end = len(found) < _GZIP_BLOCK
        # The stream under the gzip tells how many compressed bytes the block took.
        taken = file.bytes if at_end else max(1, _compressed_position(content))
    lines = _whole_lines(found[layout.data_start :], first=True, last=at_end)
    size = len(found) * max(1.0, file.bytes / taken) - layout.data_start
    step = max(1, len(lines) // _MOST_LINES)
    return _of_lines(lines[::step], size, file, layout, stream)


def _compressed_position(content: object) -> int:
    inner = getattr(content, "fileobj", None)
    return int(inner.tell()) if inner is not None else 0


def _whole_lines(found: bytes, first: bool, last: bool) -> list[bytes]:
    """The lines that begin and end in the block."""
    lines = found.split(b"\n")
    tail = lines.pop()
    if last and tail:
        lines.append(tail)
    return lines if first else lines[1:]


def _of_lines(lines: list[bytes], size: float, file: SourceFile, layout: FileLayout, stream: Stream) -> _Glance:
    if not lines:
        return _Glance(1.0 if size > 0 else 0.0, np.array([], dtype=np.int64))
    rows = size * len(lines) / sum(len(line) + 1 for line in lines)
    if file.format is Format.JSON:
        return _Glance(rows, _orders(pa.array(_json_values(lines, stream), pa.string()), stream))
    if stream.order not in layout.columns:
        return _Glance(rows, np.array([], dtype=np.int64))
    return _Glance(rows, _orders(parse_csv(b"\n".join(lines), layout.columns).columns[stream.order], stream))


def _json_values(lines: list[bytes], stream: Stream) -> list[str]:
    objects = (parse_object(line) for line in lines)
    values = (found.get(stream.order) for found in objects if isinstance(found, dict))
    return [value for value in values if isinstance(value, str) and value.isascii()]


def _orders(values: pa.Array | pa.ChunkedArray, stream: Stream) -> np.ndarray:
    """Those that can be read, as integers."""
    typed, _ = convert(values, stream.order_type)
    numbers: np.ndarray = typed.drop_null().view(pa.int64()).to_numpy()
    return numbers


def _parquet_glances(file: SourceFile, layout: FileLayout, stream: Stream, blocks: int) -> list[_Glance]:
    groups = [group for group, rows in enumerate(layout.row_groups) if rows]
    if stream.order not in layout.columns:
        return [_Glance(float(sum(layout.row_groups)), np.array([], dtype=np.int64))]
    with opened_parquet(file) as parquet:
        if len(groups) <= _READ_GROUPS:
            return [_Glance(layout.row_groups[group], _group_values(parquet, group, stream)) for group in groups]
        spans = [_spread(parquet, group, stream, blocks) for group in groups]
    return [_Glance(layout.row_groups[group], span) for group, span in zip(groups, spans, strict=True)]


def _group_values(parquet: pq.ParquetFile, group: int, stream: Stream) -> np.ndarray:
    column = parquet.read_row_group(group, columns=[stream.order], use_threads=False).column(0)
    step = max(1, len(column) // _PER_GROUP)
    return _orders(column.take(pa.array(range(0, len(column), step))), stream)


def _spread(parquet: pq.ParquetFile, group: int, stream: Stream, blocks: int) -> np.ndarray:
    """Values spread evenly from the group's least to its greatest, by its statistics if they tell."""
    span = group_span(parquet, group, stream)
    if span is None:
        return _group_values(parquet, group, stream)
    low, high = span
    points = max(2, blocks // 8)
    return np.array([low + (high - low) * point // (points - 1) for point in range(points)], dtype=np.int64)
