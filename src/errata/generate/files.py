"""Quotes as files of CSV, JSON lines or Parquet, written a column at a time.

A row of text is a record of fixed-width byte fields padded with NUL; removing the NULs from the block leaves the text.
Files are written under a name that no landing folder picks up, and renamed when complete.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from errata.generate.faults import ExtraLine, FeedMistake
from errata.generate.feed import IntArray, QuoteFeed, QuoteRows
from errata.model.batch import FileFormat
from errata.model.time import SECOND, format_instant, to_datetime

REVISED_COLUMNS = ("_op", "_old_price")

_THREE_DIGITS = np.array([f"{number:03d}" for number in range(1_000)], "S3")
_DOLLAR_TEXTS = np.array([str(number) for number in range(10_000)], "S4")
_CENT_TEXTS = np.array([f"{number:02d}" for number in range(100)], "S2")

_COLUMN_TEXTS: dict[str, Callable[[QuoteRows, QuoteFeed], npt.NDArray[Any]]] = {
    "second": lambda rows, _: _second_texts(rows.time // SECOND),
    "milli": lambda rows, _: _THREE_DIGITS[rows.time % SECOND // 1_000],
    "micro": lambda rows, _: _THREE_DIGITS[rows.time % 1_000],
    "symbol": lambda rows, feed: np.array(feed.names, "S")[rows.symbol],
    "dollars": lambda rows, _: _DOLLAR_TEXTS[rows.cents // 100],
    "cents": lambda rows, _: _CENT_TEXTS[rows.cents % 100],
}
_CSV_PARTS = ("<second>", ".", "<milli>", "<micro>", ",", "<symbol>", ",", "<dollars>", ".", "<cents>")
_JSON_PARTS = (
    '{"time":"', "<second>", ".", "<milli>", "<micro>", '","symbol":"', "<symbol>", '","price":', "<dollars>", ".",
    "<cents>", "}\n",
)  # fmt: skip


def plain_lines(rows: QuoteRows, feed: QuoteFeed, kind: FileFormat, revised: bool) -> npt.NDArray[np.uint8]:
    """One line of padded bytes for each row; `text` takes the padding out."""
    pattern = _JSON_PARTS if kind is FileFormat.JSON else (*_CSV_PARTS, ",,\n" if revised else "\n")
    columns = [_COLUMN_TEXTS[part[1:-1]](rows, feed) if part[0] == "<" else part.encode() for part in pattern]
    fields = [
        (f"f{number}", column.dtype if isinstance(column, np.ndarray) else f"S{len(column)}")
        for number, column in enumerate(columns)
    ]
    record = np.empty(len(rows), np.dtype(fields))
    for (name, _), column in zip(fields, columns, strict=True):
        record[name] = column
    return record.view(np.uint8).reshape(len(rows), record.itemsize)


def unpadded_text(lines: npt.NDArray[np.uint8]) -> bytes:
    """The lines without their padding."""
    flat = lines.reshape(-1)
    return bytes(flat[flat != 0].tobytes())


def csv_header_line(revised: bool) -> bytes:
    return (",".join(("time", "symbol", "price", *(REVISED_COLUMNS if revised else ()))) + "\n").encode()


def csv_line(extra: ExtraLine, feed: QuoteFeed, revised: bool) -> bytes:
    """A correction or a mistake as a line of CSV."""
    values = [format_instant(extra.time), feed.names[extra.symbol], price_text(extra.cents)]
    match extra.mistake:
        case FeedMistake.UNREADABLE_PRICE:
            values[2] = values[2].replace(".", ".x")
        case FeedMistake.MISSING_SYMBOL:
            values[1] = ""
        case FeedMistake.TOO_FEW_VALUES:
            return (",".join(values[:2]) + "\n").encode()
    if revised:
        values += ["", ""] if extra.old_cents is None else ["replace", price_text(extra.old_cents)]
    return (",".join(values) + "\n").encode()


def json_line(extra: ExtraLine, feed: QuoteFeed) -> bytes:
    """A correction or a mistake as a line of JSON."""
    values: dict[str, Any] = {
        "time": format_instant(extra.time),
        "symbol": feed.names[extra.symbol],
        "price": extra.cents / 100,
    }
    match extra.mistake:
        case FeedMistake.UNREADABLE_PRICE:
            values["price"] = price_text(extra.cents).replace(".", ".x")
        case FeedMistake.MISSING_SYMBOL:
            values["symbol"] = None
        case FeedMistake.TOO_FEW_VALUES:
            del values["price"], values["symbol"]
    if extra.old_cents is not None:
        values |= {"_op": "replace", "_old_price": extra.old_cents / 100}
    return (json.dumps(values, separators=(",", ":")) + "\n").encode()


def price_text(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _second_texts(second: IntArray) -> npt.NDArray[Any]:
    """The text of each second; a second has many rows, so each is written once and looked up."""
    first, last = int(second.min()), int(second.max())
    if last - first > len(second):
        return _iso_second(second)
    return _iso_second(np.arange(first, last + 1))[second - first]


def _iso_second(second: IntArray) -> npt.NDArray[Any]:
    return np.datetime_as_string(second.astype("datetime64[s]"), unit="s").astype("S19")


# Files.

_SUFFIX = {FileFormat.CSV: ".csv", FileFormat.JSON: ".json", FileFormat.PARQUET: ".parquet"}


class QuoteFile(Protocol):
    """A file being written, one block of rows after another."""

    def write(self, rows: QuoteRows, extras: list[tuple[int, ExtraLine]]) -> list[int]:
        """Write rows, and each extra after as many of them as its number says; returns the extras' lines."""

    def close(self) -> None: ...


class TextFile:
    """CSV or JSON lines, optionally gzipped. The same content gives the same bytes: gzip gets no name and no time."""

    def __init__(self, path: Path, feed: QuoteFeed, kind: FileFormat, revised: bool, zipped: bool) -> None:
        self._feed, self._kind, self._revised = feed, kind, revised
        self._raw = path.open("wb")
        self._zip = gzip.GzipFile("", "wb", 1, self._raw, mtime=0) if zipped else None
        self._out: BinaryIO | gzip.GzipFile = self._zip or self._raw
        self._line = 1
        if kind is FileFormat.CSV:
            self._out.write(csv_header_line(revised))
            self._line = 2

    def write(self, rows: QuoteRows, extras: list[tuple[int, ExtraLine]]) -> list[int]:
        lines = plain_lines(rows, self._feed, self._kind, self._revised)
        placed, done = [], 0
        for behind, extra in extras:
            self._out.write(unpadded_text(lines[done:behind]))
            self._out.write(self._extra(extra))
            self._line += behind - done
            placed.append(self._line)
            self._line += 1
            done = behind
        self._out.write(unpadded_text(lines[done:]))
        self._line += len(rows) - done
        return placed

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()
        self._raw.close()

    def _extra(self, extra: ExtraLine) -> bytes:
        if self._kind is FileFormat.CSV:
            return csv_line(extra, self._feed, self._revised)
        return json_line(extra, self._feed)


class ParquetFile:
    """Parquet; a block is a row group, and a row's line is its number."""

    def __init__(self, path: Path, feed: QuoteFeed, revised: bool) -> None:
        self._names = pa.array(feed.names, pa.string())
        self._revised = revised
        fields = [("time", pa.timestamp("us", "UTC")), ("symbol", pa.string()), ("price", pa.float64())]
        if revised:
            fields += [("_op", pa.string()), ("_old_price", pa.float64())]
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(path, self._schema, compression="snappy", store_schema=False)
        self._line = 1

    def write(self, rows: QuoteRows, extras: list[tuple[int, ExtraLine]]) -> list[int]:
        stretch, done = [], 0
        placed = []
        for number, (behind, extra) in enumerate(extras):
            stretch += [self._rows(rows[done:behind]), self._extra(extra)]
            placed.append(self._line + behind + number)
            done = behind
        stretch.append(self._rows(rows[done:]))
        self._writer.write_table(pa.concat_tables(stretch))
        self._line += len(rows) + len(extras)
        return placed

    def close(self) -> None:
        self._writer.close()

    def _rows(self, rows: QuoteRows) -> pa.Table:
        columns = [pa.array(rows.time), self._names.take(pa.array(rows.symbol)), pa.array(rows.cents / 100)]
        if self._revised:
            columns += [pa.nulls(len(rows), pa.string()), pa.nulls(len(rows), pa.float64())]
        typed = [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.table(typed, schema=self._schema)

    def _extra(self, extra: ExtraLine) -> pa.Table:
        symbol = None if extra.mistake is FeedMistake.MISSING_SYMBOL else self._names[extra.symbol].as_py()
        values = [to_datetime(extra.time), symbol, extra.cents / 100]
        if self._revised:
            values += [None, None] if extra.old_cents is None else ["replace", extra.old_cents / 100]
        columns = [pa.array([value], field.type) for value, field in zip(values, self._schema, strict=True)]
        return pa.table(columns, schema=self._schema)


def quote_file_name(first: int, kind: FileFormat, zipped: bool) -> str:
    """The file's name: the number of its first row, so that files sort in the order of the feed."""
    return f"quotes-{first:012d}{_SUFFIX[kind]}{'.gz' if zipped else ''}"


def open_quote_file(path: Path, feed: QuoteFeed, kind: FileFormat, revised: bool, zipped: bool) -> QuoteFile:
    if kind is FileFormat.PARQUET:
        return ParquetFile(path, feed, revised)
    return TextFile(path, feed, kind, revised, zipped)
