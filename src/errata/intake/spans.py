"""What the footers of Parquet files tell of the order field: exactly between which values each piece lies."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from errata.intake.convert import convert
from errata.intake.layout import OP, FileLayout
from errata.intake.parquet_rows import opened_parquet
from errata.model.batch import Format, SourceFile, Split
from errata.model.stream import Stream

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
        if pieces[0].file.format is not Format.PARQUET or OP in layout.columns or stream.order not in layout.columns:
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
        return [_group_span(parquet, group, stream) for group in range(parquet.num_row_groups)]


def _group_span(parquet: pq.ParquetFile, group: int, stream: Stream) -> Span | None:
    """By the group's statistics; NULLs and values that cannot be converted make it unknown."""
    names = parquet.schema_arrow.names
    statistics = parquet.metadata.row_group(group).column(names.index(stream.order)).statistics
    if statistics is None or not statistics.has_min_max or statistics.null_count != 0:
        return None
    kind = parquet.schema_arrow.field(stream.order).type
    ends, wrong = convert(pa.array([statistics.min, statistics.max]).cast(kind), stream.order_type)
    if wrong is not None:
        return None
    low, high = ends.view(pa.int64()).to_pylist()
    return low, high
