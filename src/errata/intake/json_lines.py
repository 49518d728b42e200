"""JSON lines: one object a line, every value kept as text so that the rules for text serve it too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from errata.errors import candidates
from errata.intake.csv_lines import NOT_UTF8
from errata.intake.parsed import Parsed

_SHOWN = 80


class _Repeated(ValueError):
    """An object that says the same thing twice."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Repeated(f"{twice!r} is given twice")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_int=str, parse_float=str, parse_constant=str)


def parse_json(data: bytes, names: Sequence[str]) -> Parsed:
    """The members of whole lines as strings, one column for each of the known names that some row gives."""
    raw = data.split(b"\n")
    if raw and not raw[-1]:
        raw.pop()
    known = frozenset(names)
    rows: list[dict[str, str | None]] = []
    ordinals: list[int] = []
    bad: dict[int, str] = {}
    notes: dict[int, dict[str, str]] = {}
    for ordinal, line in enumerate(raw):
        if not line or line.isspace():
            continue
        row = parse_object(line)
        if isinstance(row, str):
            bad[ordinal] = row
            continue
        if faults := _settle(row, known, line):
            notes[len(rows)] = faults
        rows.append(row)
        ordinals.append(ordinal)
    seen: set[str] = set().union(*rows)
    given = [name for name in names if name in seen]
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in given}
    absent = {name: np.array([name not in row for row in rows], dtype=bool) for name in given}
    return Parsed(columns, np.array(ordinals, dtype=np.int64), len(raw), bad, notes, absent)


def parse_object(line: bytes) -> dict[str, Any] | str:
    """The line's object, or why it has none."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        return NOT_UTF8
    except _Repeated as error:
        return str(error)
    except RecursionError:
        return "not a JSON object: nested too deeply"
    except json.JSONDecodeError as error:
        return f"not a JSON object: {error.msg.lower()} at character {error.colno}"
    if isinstance(value, dict):
        return value
    return f"not a JSON object: {line.decode('utf-8').strip()[:_SHOWN]}"


def _settle(row: dict[str, Any], known: frozenset[str], line: bytes) -> dict[str, str]:
    """Make the row's values text, and say of which columns they cannot be."""
    faults: dict[str, str] = {}
    for name, value in row.items():
        if name not in known:
            faults[name] = _unknown(name, known)
        elif value is True or value is False:
            row[name] = "true" if value else "false"
        elif isinstance(value, dict | list):
            faults[name] = f"{name}: {json.dumps(value)[:_SHOWN]} is nested, and a column holds one value"
            row[name] = None
        elif value is not None and b"\\u" in line and not _encodes(value):
            faults[name] = f"{name}: {value!r} holds half a character"
            row[name] = None
    return faults


@lru_cache(maxsize=1024)
def _unknown(name: str, known: frozenset[str]) -> str:
    """The fault of a name; looking for near ones is slow, and a file repeats its mistake in every row."""
    return f"unknown column {name!r}: {candidates(name, known)}"


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
