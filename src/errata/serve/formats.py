"""The formats in which rows are given out, and small tables of ready rows in each of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

_FOLDED = 20
"""The least width in which folded text can be read."""

_BETWEEN = 2

UNLIMITED = 100_000
"""The width of a table that nobody looks at on a screen: nothing is cut off for want of room."""


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class ScanFormat(StrEnum):
    """How the rows of an archive are given out."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a small table: its name for programs, and how persons see it."""

    name: str
    title: str
    right: bool = False
    """Numbers stand to the right."""
    fold: bool = False
    """Long text goes on in the next line; other columns never break."""


Record = Mapping[str, object]


def print_records(
    fields: Sequence[Field], records: Sequence[Record], shown: Sequence[Record], kind: Format, out: TextIO
) -> None:
    """Print rows: `records` hold plain values for programs, `shown` the same rows as persons read them."""
    if kind is Format.TABLE:
        console = console_on(out)
        console.print(drawn(fields, shown, console.width))
    elif kind is Format.JSON:
        out.writelines(json.dumps(dict(record), ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    else:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([field.name for field in fields])
        writer.writerows([[_cell(record[field.name]) for field in fields] for record in records])


def drawn(fields: Sequence[Field], rows: Sequence[Record], width: int = UNLIMITED) -> Table | Text:
    """The rows as a table without frames, or each value in a line of its own where they do not fit side by side."""
    if _least_width(fields, rows) > width:
        return _below_each_other(fields, rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for field in fields:
        table.add_column(
            field.title,
            justify="right" if field.right else "left",
            no_wrap=not field.fold,
            overflow="fold" if field.fold else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(_words(row[field.name])) for field in fields))
    return table


def _least_width(fields: Sequence[Field], rows: Sequence[Record]) -> int:
    """The width that a table needs to show every value: only what folds can do with less than its longest."""
    widths = [
        max([len(field.title), *(len(_words(row[field.name])) for row in rows)] if not field.fold else [_FOLDED])
        for field in fields
    ]
    return sum(widths) + _BETWEEN * (len(fields) - 1)


def _below_each_other(fields: Sequence[Field], rows: Sequence[Record]) -> Text:
    """The rows as blocks of a line for each value, for a screen on which they do not fit side by side."""
    width = max(len(field.title) for field in fields)
    blocks = (
        "\n".join(f"{field.title:<{width}}  {_words(row[field.name])}".rstrip() for field in fields) for row in rows
    )
    return Text("\n\n".join(blocks))


def console_on(out: TextIO) -> Console:
    """A console for the stream: as wide as the screen, or without bounds where there is none."""
    return _Screen(file=out, highlight=False, markup=False, width=None if out.isatty() else UNLIMITED)


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the caller, as every other write does; rich would end the process as failed."""
        raise BrokenPipeError


def _words(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
