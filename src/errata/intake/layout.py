"""The layout of a file, read from its beginning (for Parquet, its footer), and the splits that tasks read.

A file is refused as a whole only for what its layout shows: unknown, repeated or missing columns, types that cannot be
converted, a document instead of lines. All other faults are those of single rows.
"""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from errata.errors import BadFileError, candidates_text
from errata.intake.convert import is_convertible
from errata.intake.formats import open_parquet, parse_header, parse_object
from errata.intake.source import BOM, open_source, read_line
from errata.model.batch import FileFormat, FileSplit, Op, ReadSplit, SourceFile
from errata.model.columns import ColumnType, TypeKind
from errata.model.stream import Stream

OP, SEQ, OLD_PREFIX = "_op", "_seq", "_old_"
STABLE_MARK = "_stable"
"""Of files of feeds: up to which place the feed is stable after the row."""
SPLIT_BYTES = 32 * 1024 * 1024
HEADER_BYTES = 1024 * 1024
"""Bytes of the longest CSV header. A longer first line is no header."""
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the beginning of a file (for Parquet, its footer) tells."""

    columns: tuple[str, ...]
    """The names in the header; empty for JSON lines, where each row names its own."""
    data_start: int = 0
    """The byte after the header, in the content before compression."""
    row_groups: tuple[int, ...] = ()
    """The rows of each row group of a Parquet file."""
    gives_order: bool = True
    """Whether rows give the order column; for JSON lines of a stream ordered on arrival, judged by the first row."""
    default_op: Op = Op.INSERT
    """The operation of rows that do not give one."""
    header: str | None = None
    """The first line of a CSV file as it is, which is needed to read any other line."""

    @property
    def may_correct(self) -> bool:
        """Whether rows may be other than plain inserts, by the header."""
        return OP in self.columns or self.default_op is not Op.INSERT


def reserved_columns(stream: Stream) -> dict[str, ColumnType]:
    """The columns that a correction, or a row of a feed, may have beside the stream's own."""
    old = {OLD_PREFIX + column.name: column.type for column in stream.columns}
    marks = {} if stream.merged.is_empty else {STABLE_MARK: stream.order_type}
    return {OP: ColumnType(TypeKind.STRING), SEQ: ColumnType(TypeKind.BIGINT), **marks, **old}


def known_columns(stream: Stream) -> dict[str, ColumnType]:
    """Every column that a file may have, the declared ones first."""
    return {column.name: column.type for column in stream.columns} | reserved_columns(stream)


def read_layout(file: SourceFile, stream: Stream, default_op: Op = Op.INSERT) -> FileLayout:
    """The file's layout; raises if nothing of the file can be ingested."""
    match file.format:
        case FileFormat.CSV:
            layout = _csv_layout(file)
        case FileFormat.JSON:
            return replace(_json_layout(file, stream), default_op=default_op)
        case FileFormat.PARQUET:
            layout = _parquet_layout(file, stream)
    layout = replace(layout, gives_order=stream.order in layout.columns, default_op=default_op)
    _check_columns(file, layout, stream)
    return layout


def _csv_layout(file: SourceFile) -> FileLayout:
    with open_source(file) as content:
        line = content.readline(HEADER_BYTES + 1)
    _refuse_gzip(file, line)
    if len(line) > HEADER_BYTES:
        raise BadFileError(
            f"the header is longer than {HEADER_BYTES >> 20} MiB",
            where=file.name,
            how="the first line of a CSV file names its columns; see that its lines end in LF or CRLF",
        )
    text = line.removeprefix(BOM)
    if not text.strip():
        raise BadFileError(
            "the file has no header" if line else "the file is empty",
            where=file.name,
            how="the first line of a CSV file names its columns",
        )
    try:
        columns = parse_header(text)
    except UnicodeDecodeError as error:
        raise BadFileError("the header is not UTF-8", where=file.name, how="save the file as UTF-8") from error
    except csv.Error as error:
        raise BadFileError("the header cannot be read", where=file.name, why=str(error)) from error
    return FileLayout(tuple(columns), len(line), header=text.decode().removesuffix("\n").removesuffix("\r"))


def _json_layout(file: SourceFile, stream: Stream) -> FileLayout:
    with open_source(file) as content:
        line = read_line(content, file, 0)
        passed = len(line)
        start = len(BOM) if line.startswith(BOM) else 0
        line = line[start:]
        _refuse_gzip(file, line)
        _refuse_document(file, line)
        first = parse_object(line)
        while line and stream.ordered_on_arrival and isinstance(first, str):
            line = read_line(content, file, passed)
            passed += len(line)
            first = parse_object(line)
    gives_order = not stream.ordered_on_arrival or (isinstance(first, dict) and stream.order in first)
    return FileLayout((), start, gives_order=gives_order)


def _refuse_gzip(file: SourceFile, beginning: bytes) -> None:
    if beginning.startswith(_GZIP_MAGIC):
        raise BadFileError(
            "the file is compressed with gzip, and its name does not say so",
            where=file.name,
            how=f"name it {file.name.rpartition('/')[2]}.gz, or unpack it",
        )


def _refuse_document(file: SourceFile, line: bytes) -> None:
    """Refuse an array, or an object over several lines, of which nearly every line would be a bad row."""
    text = line.strip()
    if text.startswith(b"[") or text == b"{":
        what = "one JSON array" if text.startswith(b"[") else "a JSON object over several lines"
        raise BadFileError(
            f"the file is {what}, and rows are objects of one line each",
            where=file.name,
            how="write one object a line, for instance with: jq -c '.[]' or jq -c .",
        )


def _parquet_layout(file: SourceFile, stream: Stream) -> FileLayout:
    with open_parquet(file) as parquet:
        schema: pa.Schema = parquet.schema_arrow
        groups = tuple(parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups))
    known = known_columns(stream)
    for field in schema:
        kind = known.get(field.name)
        if kind is not None and not is_convertible(field.type, kind):
            raise BadFileError(
                f"column {field.name} holds {field.type}, and {field.name} is a {kind}",
                where=file.name,
                how="write the file with the declared type, or as text",
            )
    return FileLayout(tuple(schema.names), row_groups=groups)


def _check_columns(file: SourceFile, layout: FileLayout, stream: Stream) -> None:
    known, columns = known_columns(stream), layout.columns
    for name in columns:
        if name not in known:
            raise BadFileError(
                f"unknown column {name!r}",
                where=file.name,
                why=_header_hint(file, columns, stream),
                how=candidates_text(name, known if name.startswith("_") else stream.names),
            )
        if columns.count(name) > 1:
            raise BadFileError(f"column {name!r} is named twice", where=file.name, how="name each column once")
    missing = [name for name in required_columns(layout, stream) if name not in columns]
    if missing:
        raise BadFileError(
            f"column{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing",
            where=file.name,
            why="rows are known by their key and kept in their order",
            how=f"add it to the file, which has {', '.join(columns)}",
        )


def _header_hint(file: SourceFile, columns: Sequence[str], stream: Stream) -> str | None:
    """A guess at what is wrong with a header that has no column of the stream."""
    if file.format is not FileFormat.CSV or set(columns) & set(stream.names):
        return None
    other = next((mark for mark in (";", "\t", "|") if len(columns) == 1 and mark in columns[0]), None)
    if other is not None:
        return f"values are separated by commas, and this file's seem to be by {other!r}"
    return "the first line of a CSV file names its columns, and this one names none of the stream's"


def required_columns(layout: FileLayout, stream: Stream) -> list[str]:
    """The columns that a header must name: the key, and the order field unless it is given on arrival.

    A file of corrections may leave out an order field that is not part of the key, since columns that are not given do
    not change; and it may give the old value of a key column instead of the column.
    """
    names = [column.name for column in stream.columns if column.name in stream.required]
    if stream.ordered_on_arrival or (layout.may_correct and not stream.key_has_order):
        names.remove(stream.order)
    return [name for name in names if not layout.may_correct or OLD_PREFIX + name not in layout.columns]


def plan_splits(
    files: Sequence[SourceFile],
    layouts: Sequence[FileLayout],
    target_bytes: int = SPLIT_BYTES,
    most_rows: int | None = None,
) -> list[FileSplit]:
    """The splits that tasks read, in file order: of about `target_bytes`, and for Parquet of about `most_rows` at
    most."""
    splits: list[FileSplit] = []
    for file, layout in zip(files, layouts, strict=True):
        for start, end in _split_ranges(file, layout, target_bytes, most_rows):
            splits.append(FileSplit(len(splits), file, start, end))
    return splits


def _split_ranges(file: SourceFile, layout: FileLayout, target: int, most_rows: int | None) -> list[tuple[int, int]]:
    if file.format is FileFormat.PARQUET:
        return _group_ranges(file, layout, target, most_rows)
    if file.gzip:
        return [(0, file.bytes)]
    size = file.bytes - layout.data_start
    count = -(-size // target)
    cuts = [layout.data_start + size * part // count for part in range(count + 1)] if count > 0 else []
    return list(itertools.pairwise(cuts))


def _group_ranges(file: SourceFile, layout: FileLayout, target: int, most_rows: int | None) -> list[tuple[int, int]]:
    rows = sum(layout.row_groups)
    enough = max(1, rows * target // max(file.bytes, 1))
    enough = enough if most_rows is None else max(1, min(enough, most_rows))
    ranges: list[tuple[int, int]] = []
    start = held = 0
    for group, count in enumerate(layout.row_groups):
        if held and held + count > enough:
            ranges.append((start, group))
            start, held = group, 0
        held += count
    return [*ranges, (start, len(layout.row_groups))] if held else ranges


def first_record_line(file: SourceFile) -> int:
    """The line number of a file's first record: 2 for CSV, after the header, else 1."""
    return 2 if file.format is FileFormat.CSV else 1


def number_lines(splits_with_lines: list[tuple[FileSplit, int]]) -> list[ReadSplit]:
    """The splits with the line at which each begins, given how many lines each has."""
    passed: dict[str, int] = defaultdict(int)
    numbered: list[ReadSplit] = []
    for split, lines in sorted(splits_with_lines, key=lambda pair: pair[0].number):
        numbered.append(ReadSplit(split, first_record_line(split.file) + passed[split.file.name], lines))
        passed[split.file.name] += lines
    return numbered
