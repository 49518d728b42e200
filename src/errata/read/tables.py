"""Small tables of ready rows as table, JSON or CSV, and event time drawn as a line of blocks."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from errata.read.wording import OutputFormat

_MIN_FOLDED_WIDTH = 20
"""Least width of a column with folded text."""

_COLUMN_GAP = 2

UNLIMITED_WIDTH = 100_000
"""Width of a table that is not printed on a terminal, so that nothing is cut off."""


@dataclass(frozen=True, slots=True)
class TableField:
    """A column of a small table: its name in JSON and CSV, and how a table shows it."""

    name: str
    title: str
    right: bool = False
    """Whether values are aligned to the right, as numbers are."""
    fold: bool = False
    """Whether long text is folded; other columns never are."""


TableRecord = Mapping[str, object]


def print_records(
    fields: Sequence[TableField],
    records: Sequence[TableRecord],
    shown: Sequence[TableRecord],
    kind: OutputFormat,
    out: TextIO,
) -> None:
    """Print rows: `records` hold plain values for JSON and CSV, `shown` the same rows as text for tables."""
    if kind is OutputFormat.TABLE:
        console = open_console(out)
        console.print(format_table(fields, shown, console.width))
    elif kind is OutputFormat.JSON:
        out.writelines(json.dumps(dict(record), ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    else:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([field.name for field in fields])
        writer.writerows([[_csv_cell(record[field.name]) for field in fields] for record in records])


def format_table(
    fields: Sequence[TableField], rows: Sequence[TableRecord], width: int = UNLIMITED_WIDTH
) -> Table | Text:
    """The rows as a table without borders; as blocks if they do not fit the width."""
    if _least_width(fields, rows) > width:
        return _format_blocks(fields, rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for field in fields:
        table.add_column(
            field.title,
            justify="right" if field.right else "left",
            no_wrap=not field.fold,
            overflow="fold" if field.fold else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(_cell_text(row[field.name])) for field in fields))
    return table


def _least_width(fields: Sequence[TableField], rows: Sequence[TableRecord]) -> int:
    """The width that a table needs to show every value; only folded columns may be narrower than their longest."""
    widths = [
        max(
            [len(field.title), *(len(_cell_text(row[field.name])) for row in rows)]
            if not field.fold
            else [_MIN_FOLDED_WIDTH]
        )
        for field in fields
    ]
    return sum(widths) + _COLUMN_GAP * (len(fields) - 1)


def _format_blocks(fields: Sequence[TableField], rows: Sequence[TableRecord]) -> Text:
    """The rows as blocks, one line for each value."""
    width = max(len(field.title) for field in fields)
    blocks = (
        "\n".join(f"{field.title:<{width}}  {_cell_text(row[field.name])}".rstrip() for field in fields) for row in rows
    )
    return Text("\n\n".join(blocks))


def open_console(out: TextIO) -> Console:
    """A console for the stream: as wide as the terminal, or unlimited if it is not one."""
    return _PipeSafeConsole(file=out, highlight=False, markup=False, width=None if out.isatty() else UNLIMITED_WIDTH)


class _PipeSafeConsole(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error, as other writes do; rich would end the process."""
        raise BrokenPipeError


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


# Drawings in text.

TIMELINE_LEVELS = " ▁▂▃▄▅▆▇█"
STABLE_MARK = "┃"


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """Rows from low to high on an axis, both included."""

    low: int
    high: int
    rows: int


def draw_timeline(stretches: Sequence[TimelineSpan], stable: int | None, width: int) -> str:
    """Draw where rows lie between the least and the greatest place, as a line of blocks whose height is the number of
    rows.

    The stable point is marked, at the edge if it lies beyond. Without rows nothing is drawn.
    """
    if not stretches or width < 1:
        return ""
    low, high = min(each.low for each in stretches), max(each.high for each in stretches)
    density = [0.0] * width

    length = high + 1 - low
    for each in stretches:
        # In units of 1/width of the axis, so that a cell is as long as the axis and the sums stay whole.
        start, end = (each.low - low) * width, (each.high + 1 - low) * width
        for index in range(start // length, (end - 1) // length + 1):
            here = min(end, (index + 1) * length) - max(start, index * length)
            density[index] += each.rows * here / (end - start)
    most = max(density)
    line = [_block_character(share / most) for share in density]
    if stable is not None:
        line[min(width - 1, max(0, (stable - low) * width // length))] = STABLE_MARK
    return "".join(line)


def _block_character(share: float) -> str:
    """The block for a share of the fullest cell; a cell with any row is not empty."""
    return TIMELINE_LEVELS[0] if share <= 0 else TIMELINE_LEVELS[max(1, round(share * (len(TIMELINE_LEVELS) - 1)))]
