"""What the footers of Parquet files tell of the order field: exactly between which values each piece lies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

import pyarrow.parquet as pq

from errata.intake.layout import FileLayout
from errata.intake.parquet_rows import opened_parquet
from errata.model.batch import Format, SourceFile, Split
from errata.model.interval import HIGHEST, LOWEST
from errata.model.stream import Stream

_TIME_UNITS = {"milliseconds": Fraction(1_000), "microseconds": Fraction(1), "nanoseconds": Fraction(1, 1_000)}

Span = tuple[int, int]
"""The least and the greatest value, both included."""


def order_spans(splits: Sequence[Split], layouts: Sequence[FileLayout], stream: Stream) -> dict[int, Span] | None:
    """For each split the span of its order field. None when any file cannot tell, or brings more than plain inserts."""
    by_file: dict[str, list[Split]] = {}
    layout_of: dict[str, FileLayout] = {}
    for split, layout in zip(splits, layouts, strict=True):
        by_file.setdefault(split.file.name, []).append(split)
        layout_of[split.file.name] = layout
    spans: dict[int, Span] = {}
    for name, pieces in by_file.items():
        layout = layout_of[name]
        if pieces[0].file.format is not Format.PARQUET or layout.may_correct or not layout.gives_order:
            return None
        groups = _group_spans(pieces[0].file, stream)
        for split in pieces:
            found = [groups[number] for number in range(split.start, split.end) if layout.row_groups[number]]
            known = [span for span in found if span is not None]
            if len(known) < len(found):
                return None
            if known:
                spans[split.number] = min(low for low, _ in known), max(high for _, high in known)
    return spans


def _group_spans(file: SourceFile, stream: Stream) -> list[Span | None]:
    with opened_parquet(file) as parquet:
        return [group_span(parquet, group, stream) for group in range(parquet.num_row_groups)]


def group_span(parquet: pq.ParquetFile, group: int, stream: Stream) -> Span | None:
    """By the row group's statistics, as integers of the order field; None where they do not tell surely.

    Only numbers that Parquet itself stores as signed integers are trusted: the statistics of text are of its spelling,
    and those of a type that is converted can lie beyond what Python can hold.
    """
    index = parquet.schema_arrow.names.index(stream.order)
    unit = _unit(parquet, index, stream)
    statistics = parquet.metadata.row_group(group).column(index).statistics
    if unit is None or statistics is None or not statistics.has_min_max or statistics.null_count != 0:
        return None
    ends = int(statistics.min_raw), int(statistics.max_raw)
    low, high = (end * unit.numerator // unit.denominator for end in ends)
    # Many milliseconds can be more microseconds than 64 bits hold; where such rows belong nobody need know.
    return (low, high) if low >= LOWEST and high <= HIGHEST else None


def _unit(parquet: pq.ParquetFile, index: int, stream: Stream) -> Fraction | None:
    """How many units of the order field one of the stored integers is."""
    column = parquet.schema.column(index)
    if column.physical_type not in ("INT32", "INT64") or column.path != stream.order:
        return None
    logical = json.loads(column.logical_type.to_json())
    if stream.timed:
        return _TIME_UNITS.get(logical.get("timeUnit")) if logical["Type"] == "Timestamp" else None
    signed = logical["Type"] == "None" or (logical["Type"] == "Int" and logical["isSigned"])
    return Fraction(1) if signed else None
