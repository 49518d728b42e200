"""Small tables, as wide as the screen allows."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from errata.read.tables import TableField, TableRecord, format_table

FIELDS = (
    TableField("commit", "commit", right=True),
    TableField("at", "time"),
    TableField("did", "what it did", fold=True),
)
ROWS: tuple[TableRecord, ...] = (
    {"commit": 12_345, "at": "2026-11-18T02:00:00", "did": "nothing that would be worth a mention in a narrow place"},
    {"commit": 2, "at": None, "did": "all"},
)


def on_screen(width: int) -> str:
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(format_table(FIELDS, ROWS, width))
    return captured.get()


def test_a_table_where_there_is_room() -> None:
    assert isinstance(format_table(FIELDS, ROWS, 80), Table)
    assert isinstance(format_table(FIELDS, ROWS, 49), Table)
    assert "12,345  2026-11-18T02:00:00" in on_screen(49)


def test_a_line_for_each_value_where_there_is_not() -> None:
    shown = on_screen(48)
    assert shown.splitlines()[:2] == ["commit       12,345", "time         2026-11-18T02:00:00"]
    assert "\n\ncommit       2\ntime\nwhat it did  all\n" in shown


def test_no_width_loses_a_value() -> None:
    for width in range(20, 120):
        folded = "".join(on_screen(width).split())
        assert "12,345" in folded
        assert "2026-11-18T02:00:00" in folded
