"""One split read: its typed rows, its corrections, and an explanation of each line that is neither."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from errata.intake.csv_lines import parse_csv
from errata.intake.fetch import fetch_lines
from errata.intake.json_lines import parse_json
from errata.intake.judge import Judged, judge
from errata.intake.layout import FileLayout, first_line, known_columns
from errata.intake.parquet_rows import parse_parquet, read_groups, row_text
from errata.intake.parsed import Lines
from errata.intake.source import PIECE_BYTES, decode, pieces
from errata.model.batch import Format, SourceFile, Split
from errata.model.stream import Stream

_KEPT_BYTES = 2 * PIECE_BYTES
"""Text of a compressed file beyond this is not kept but read again when asked for."""


class RowTexts(Protocol):
    """Tells what rows said."""

    def texts(self, ordinals: Collection[int]) -> dict[int, str]: ...


@dataclass(frozen=True)
class SplitRows:
    """What a split holds."""

    rows: pa.Table
    """Plain inserts."""
    ordinals: np.ndarray
    """Where in the split each of `rows` stands, counted in lines from 0."""
    corrections: pa.Table
    correction_ordinals: np.ndarray
    bad: list[tuple[int, str, str]]
    """Ordinal, text and reason of each line that is no row."""
    lines: int
    source: RowTexts

    def text(self, ordinal: int) -> str:
        """What the line said; Parquet's rows as JSON."""
        return self.texts([ordinal])[ordinal]

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        """What several lines said, in one pass."""
        return self.source.texts(ordinals)


def read_split(split: Split, layout: FileLayout, stream: Stream) -> SplitRows:
    """Read one split, whole."""
    if split.file.format is Format.PARQUET:
        table = read_groups(split)
        source: RowTexts = _TableTexts(table, stream)
        parts = [judge(parse_parquet(table), layout, stream)]
    else:
        kept = _PieceTexts([], [])
        parts = list(_judged(split, layout, stream, kept))
        source = kept if kept.whole else _FileTexts(split.file, stream)
    return _joined(parts, source)


def _judged(split: Split, layout: FileLayout, stream: Stream, kept: _PieceTexts) -> Iterator[Judged]:
    names = layout.columns or tuple(known_columns(stream))
    parse = parse_csv if split.file.format is Format.CSV else parse_json
    passed = 0
    for data in pieces(split, layout.data_start):
        part = judge(parse(data, names), layout, stream)
        kept.add(passed, data, split.file.gzip)
        yield part
        passed += part.lines
    if not passed:
        yield judge(parse(b"", names), layout, stream)


def _joined(parts: list[Judged], source: RowTexts) -> SplitRows:
    starts = np.cumsum([0, *(part.lines for part in parts)]).tolist()
    placed = list(zip(starts, parts, strict=False))
    reasons = {start + ordinal: reason for start, part in placed for ordinal, reason in part.bad.items()}
    texts = source.texts(reasons) if reasons else {}
    return SplitRows(
        rows=pa.concat_tables([part.rows for part in parts]),
        ordinals=np.concatenate([start + part.ordinals for start, part in placed]),
        corrections=pa.concat_tables([part.corrections for part in parts]),
        correction_ordinals=np.concatenate([start + part.correction_ordinals for start, part in placed]),
        bad=[(ordinal, texts[ordinal], reasons[ordinal]) for ordinal in sorted(reasons)],
        lines=starts[-1],
        source=source,
    )


class _PieceTexts:
    """The text of a split's pieces, as long as it is not too much to keep."""

    def __init__(self, starts: list[int], kept: list[bytes]) -> None:
        self.starts = starts
        self.kept = kept
        self.whole = True

    def add(self, start: int, data: bytes, compressed: bool) -> None:
        if compressed and sum(map(len, self.kept)) + len(data) > _KEPT_BYTES:
            self.whole = False
            self.kept.clear()
        if self.whole:
            self.starts.append(start)
            self.kept.append(data)

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for start, data in zip(self.starts, self.kept, strict=True):
            lines = Lines(data)
            here = (ordinal for ordinal in ordinals if start <= ordinal < start + len(lines))
            found.update({ordinal: decode(lines.raw(ordinal - start)) for ordinal in here})
        return found


@dataclass(frozen=True)
class _FileTexts:
    """A compressed file's lines, read again."""

    file: SourceFile
    stream: Stream

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        first = first_line(self.file)
        found = fetch_lines(self.file, {first + ordinal for ordinal in ordinals}, self.stream)
        return {number - first: text for number, text in found.items()}


@dataclass(frozen=True)
class _TableTexts:
    """A Parquet split's rows as they were written."""

    table: pa.Table
    stream: Stream

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        kinds = known_columns(self.stream)
        return {ordinal: row_text(self.table, ordinal, kinds) for ordinal in ordinals}
