"""Files as they land: written under a name that no landing folder takes, renamed when complete."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from errata.generate.faults import Extra, Mistake
from errata.generate.feed import Feed, Quotes
from errata.generate.lines import csv_line, header, json_line, plain_lines, text
from errata.model.batch import Format
from errata.model.instants import to_datetime

_SUFFIX = {Format.CSV: ".csv", Format.JSON: ".json", Format.PARQUET: ".parquet"}


class QuoteFile(Protocol):
    """A file being written, one stretch after the other."""

    def write(self, rows: Quotes, extras: list[tuple[int, Extra]]) -> list[int]:
        """Write rows, and each extra behind as many of them as its number says; returns the extras' lines."""

    def close(self) -> None: ...


class TextFile:
    """CSV or JSON lines, gzipped if wanted. The same content gives the same bytes: gzip is told no name and no time."""

    def __init__(self, path: Path, feed: Feed, kind: Format, revised: bool, zipped: bool) -> None:
        self._feed, self._kind, self._revised = feed, kind, revised
        self._raw = path.open("wb")
        self._zip = gzip.GzipFile("", "wb", 1, self._raw, mtime=0) if zipped else None
        self._out: BinaryIO | gzip.GzipFile = self._zip or self._raw
        self._line = 1
        if kind is Format.CSV:
            self._out.write(header(revised))
            self._line = 2

    def write(self, rows: Quotes, extras: list[tuple[int, Extra]]) -> list[int]:
        lines = plain_lines(rows, self._feed, self._kind, self._revised)
        placed, done = [], 0
        for behind, extra in extras:
            self._out.write(text(lines[done:behind]))
            self._out.write(self._extra(extra))
            self._line += behind - done
            placed.append(self._line)
            self._line += 1
            done = behind
        self._out.write(text(lines[done:]))
        self._line += len(rows) - done
        return placed

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()
        self._raw.close()

    def _extra(self, extra: Extra) -> bytes:
        if self._kind is Format.CSV:
            return csv_line(extra, self._feed, self._revised)
        return json_line(extra, self._feed)


class ParquetFile:
    """Parquet; a stretch is a row group, and a row's line is its number."""

    def __init__(self, path: Path, feed: Feed, revised: bool) -> None:
        self._names = pa.array(feed.names, pa.string())
        self._revised = revised
        fields = [("time", pa.timestamp("us", "UTC")), ("symbol", pa.string()), ("price", pa.float64())]
        if revised:
            fields += [("_op", pa.string()), ("_old_price", pa.float64())]
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(path, self._schema, compression="snappy", store_schema=False)
        self._line = 1

    def write(self, rows: Quotes, extras: list[tuple[int, Extra]]) -> list[int]:
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

    def _rows(self, rows: Quotes) -> pa.Table:
        columns = [pa.array(rows.time), self._names.take(pa.array(rows.symbol)), pa.array(rows.cents / 100)]
        if self._revised:
            columns += [pa.nulls(len(rows), pa.string()), pa.nulls(len(rows), pa.float64())]
        typed = [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.table(typed, schema=self._schema)

    def _extra(self, extra: Extra) -> pa.Table:
        symbol = None if extra.mistake is Mistake.MISSING_SYMBOL else self._names[extra.symbol].as_py()
        values = [to_datetime(extra.time), symbol, extra.cents / 100]
        if self._revised:
            values += [None, None] if extra.old_cents is None else ["replace", extra.old_cents / 100]
        columns = [pa.array([value], field.type) for value, field in zip(values, self._schema, strict=True)]
        return pa.table(columns, schema=self._schema)


def file_name(first: int, kind: Format, zipped: bool) -> str:
    """Named by the number of its first row, so that files sort as the feed runs."""
    return f"quotes-{first:012d}{_SUFFIX[kind]}{'.gz' if zipped else ''}"


def open_file(path: Path, feed: Feed, kind: Format, revised: bool, zipped: bool) -> QuoteFile:
    if kind is Format.PARQUET:
        return ParquetFile(path, feed, revised)
    return TextFile(path, feed, kind, revised, zipped)
