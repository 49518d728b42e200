"""Quotes as lines of CSV and JSON, made a column at a time.

A row is a record of fixed-width byte fields padded with NUL; taking the NULs out of the block leaves the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from errata.generate.faults import Extra, Mistake
from errata.generate.feed import Feed, Numbers, Quotes
from errata.model.batch import Format
from errata.model.instants import SECOND, format_instant

REVISED_COLUMNS = ("_op", "_old_price")

_THOUSAND = np.array([f"{number:03d}" for number in range(1_000)], "S3")
_DOLLARS = np.array([str(number) for number in range(10_000)], "S4")
_CENTS = np.array([f"{number:02d}" for number in range(100)], "S2")

_VALUE: dict[str, Callable[[Quotes, Feed], npt.NDArray[Any]]] = {
    "second": lambda rows, _: _seconds(rows.time // SECOND),
    "milli": lambda rows, _: _THOUSAND[rows.time % SECOND // 1_000],
    "micro": lambda rows, _: _THOUSAND[rows.time % 1_000],
    "symbol": lambda rows, feed: np.array(feed.names, "S")[rows.symbol],
    "dollars": lambda rows, _: _DOLLARS[rows.cents // 100],
    "cents": lambda rows, _: _CENTS[rows.cents % 100],
}
_CSV = ("<second>", ".", "<milli>", "<micro>", ",", "<symbol>", ",", "<dollars>", ".", "<cents>")
_JSON = (
    '{"time":"', "<second>", ".", "<milli>", "<micro>", '","symbol":"', "<symbol>", '","price":', "<dollars>", ".",
    "<cents>", "}\n",
)  # fmt: skip


def plain_lines(rows: Quotes, feed: Feed, kind: Format, revised: bool) -> npt.NDArray[np.uint8]:
    """One line of padded bytes for each row; `text` takes the padding out."""
    pattern = _JSON if kind is Format.JSON else (*_CSV, ",,\n" if revised else "\n")
    columns = [_VALUE[part[1:-1]](rows, feed) if part[0] == "<" else part.encode() for part in pattern]
    fields = [
        (f"f{number}", column.dtype if isinstance(column, np.ndarray) else f"S{len(column)}")
        for number, column in enumerate(columns)
    ]
    record = np.empty(len(rows), np.dtype(fields))
    for (name, _), column in zip(fields, columns, strict=True):
        record[name] = column
    return record.view(np.uint8).reshape(len(rows), record.itemsize)


def text(lines: npt.NDArray[np.uint8]) -> bytes:
    """The lines without their padding."""
    flat = lines.reshape(-1)
    return bytes(flat[flat != 0].tobytes())


def header(revised: bool) -> bytes:
    return (",".join(("time", "symbol", "price", *(REVISED_COLUMNS if revised else ()))) + "\n").encode()


def csv_line(extra: Extra, feed: Feed, revised: bool) -> bytes:
    """A correction or a mistake as a line of CSV."""
    values = [format_instant(extra.time), feed.names[extra.symbol], price(extra.cents)]
    match extra.mistake:
        case Mistake.UNREADABLE_PRICE:
            values[2] = values[2].replace(".", ".x")
        case Mistake.MISSING_SYMBOL:
            values[1] = ""
        case Mistake.TOO_FEW_VALUES:
            return (",".join(values[:2]) + "\n").encode()
    if revised:
        values += ["", ""] if extra.old_cents is None else ["replace", price(extra.old_cents)]
    return (",".join(values) + "\n").encode()


def json_line(extra: Extra, feed: Feed) -> bytes:
    """A correction or a mistake as a line of JSON."""
    values: dict[str, Any] = {
        "time": format_instant(extra.time),
        "symbol": feed.names[extra.symbol],
        "price": extra.cents / 100,
    }
    match extra.mistake:
        case Mistake.UNREADABLE_PRICE:
            values["price"] = price(extra.cents).replace(".", ".x")
        case Mistake.MISSING_SYMBOL:
            values["symbol"] = None
        case Mistake.TOO_FEW_VALUES:
            del values["price"], values["symbol"]
    if extra.old_cents is not None:
        values |= {"_op": "replace", "_old_price": extra.old_cents / 100}
    return (json.dumps(values, separators=(",", ":")) + "\n").encode()


def price(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _seconds(second: Numbers) -> npt.NDArray[Any]:
    """The text of each second; a second has many rows, so each is written once and looked up."""
    first, last = int(second.min()), int(second.max())
    if last - first > len(second):
        return _iso(second)
    return _iso(np.arange(first, last + 1))[second - first]


def _iso(second: Numbers) -> npt.NDArray[Any]:
    return np.datetime_as_string(second.astype("datetime64[s]"), unit="s").astype("S19")
