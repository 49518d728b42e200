"""CSV: one record a line, quoted as in RFC 4180; each line is good or bad by itself.

Clean text goes through Arrow's reader in one go. Arrow ends a record at a bare carriage return, and lets a quote that
is not closed run over the line's end, so text with either is looked at line by line first, in numpy.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from errata.errors import ErrataError
from errata.intake.parsed import Lines, Parsed, count_lines

_QUOTE, _COMMA, _RETURN, _NEWLINE = (ord(mark) for mark in '",\r\n')
_BLOCK = 1 << 20

NOT_UTF8 = "not UTF-8"
_RETURNS = "a carriage return within the line"
_QUOTES = "quotes that do not pair: a value in quotes begins and ends with one, and doubles those within"


def header(line: bytes) -> list[str]:
    """The names that a header line gives."""
    text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    rows = list(csv.reader([text], strict=True))
    return rows[0] if rows else []


def parse_csv(data: bytes, names: Sequence[str]) -> Parsed:
    """The cells of whole lines as strings."""
    if b'"' not in data and data.count(b"\r") == data.count(b"\r\n"):
        columns = _cells(data, names, _BLOCK)
        lines = count_lines(data)
        if columns is not None and len(columns[names[0]]) == lines:
            return Parsed(columns, np.arange(lines, dtype=np.int64), lines)
    return _parse_with_care(data, names)


def _parse_with_care(data: bytes, names: Sequence[str]) -> Parsed:
    lines = Lines(data)
    bad = np.full(len(lines), "", dtype=object)
    bad[_stray_returns(lines)] = _RETURNS
    bad[_unpaired(lines)] = _QUOTES
    bad[_not_utf8(lines)] = NOT_UTF8
    rows = (bad == "") & ~_blank(lines)
    columns = _cells_of(lines, rows, names)
    if columns is None:
        counts = _value_counts(lines, rows)
        wrong = rows & (counts != len(names))
        for ordinal in np.flatnonzero(wrong):
            given = int(counts[ordinal])
            bad[ordinal] = f"{given} value{'' if given == 1 else 's'}, the header names {len(names)}"
        rows &= ~wrong
        columns = _cells_of(lines, rows, names)
    if columns is None:
        raise ErrataError("the lines cannot be taken apart", why="the CSV reader refuses what the line rules allow")
    reasons = {int(ordinal): bad[ordinal] for ordinal in np.flatnonzero(bad != "")}
    return Parsed(columns, np.flatnonzero(rows).astype(np.int64), len(lines), bad=reasons)


def _cells(data: bytes | pa.Buffer, names: Sequence[str], block: int) -> dict[str, pa.Array] | None:
    """What Arrow reads, or None when it refuses."""
    if not data:
        return {name: pa.array([], pa.string()) for name in names}
    try:
        table = pv.read_csv(
            pa.BufferReader(data),
            read_options=pv.ReadOptions(column_names=list(names), use_threads=False, block_size=block),
            parse_options=pv.ParseOptions(newlines_in_values=False),
            convert_options=pv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    return {name: table.column(name).combine_chunks() for name in names}


def _cells_of(lines: Lines, rows: np.ndarray, names: Sequence[str]) -> dict[str, pa.Array] | None:
    count = int(rows.sum())
    kept = lines.data if count == len(lines) else _kept(lines, rows)
    if not count:
        return _cells(b"", names, _BLOCK)
    if not kept.endswith(b"\n"):
        # Arrow takes an empty last value for a quoted one when a quoted one precedes it and the text ends there.
        kept += b"\n"
    longest = int((lines.nexts - lines.starts).max(initial=0))
    columns = _cells(kept, names, max(_BLOCK, longest + 2))
    return columns if columns is None or len(columns[names[0]]) == count else None


def _kept(lines: Lines, rows: np.ndarray) -> bytes:
    """The text of the marked lines, joined by runs of neighbours."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], rows, [False])).astype(np.int8)))
    runs = zip(edges[::2], edges[1::2], strict=True)
    return b"".join([lines.data[lines.starts[first] : lines.nexts[behind - 1]] for first, behind in runs])


def _blank(lines: Lines) -> np.ndarray:
    lengths = lines.ends - lines.starts
    blank: np.ndarray = lengths == 0
    single = np.flatnonzero(lengths == 1)
    blank[single] = lines.content[lines.starts[single]] == _RETURN
    return blank


def _stray_returns(lines: Lines) -> np.ndarray:
    returns = np.flatnonzero(lines.content == _RETURN)
    where = lines.of(returns)
    # One at the end of a line that has its newline is half of CRLF; at the end of the text it is forgiven as well.
    return np.unique(where[returns != lines.ends[where] - 1])


def _not_utf8(lines: Lines) -> np.ndarray:
    try:
        lines.data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        return np.array([], dtype=np.int64)
    suspects = np.unique(lines.of(np.flatnonzero(lines.content >= 0x80)))
    return np.array([ordinal for ordinal in suspects.tolist() if not _is_utf8(lines.raw(ordinal))], dtype=np.int64)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _unpaired(lines: Lines) -> np.ndarray:
    """Lines whose quotes are not those of whole values.

    Within a line quotes pair off in order. The first of a pair stands at a value's beginning or right behind the
    last of the pair before (a doubled quote); the last of a pair at a value's end or right before the next pair.
    """
    quotes = np.flatnonzero(lines.content == _QUOTE)
    where = lines.of(quotes)
    odd = np.bincount(where, minlength=len(lines)) % 2 == 1
    even = ~odd[where]
    quotes, where = quotes[even], where[even]
    firsts, lasts, pair_line = quotes[::2], quotes[1::2], where[::2]
    before = lines.content[np.maximum(firsts - 1, 0)]
    begins = (firsts == lines.starts[pair_line]) | (before == _COMMA) | (before == _QUOTE)
    behind = lines.content[np.minimum(lasts + 1, len(lines.content) - 1)]
    ends = (lasts + 1 == lines.ends[pair_line]) | (behind == _COMMA) | (behind == _QUOTE)
    ends |= (behind == _RETURN) & (lasts + 2 == lines.ends[pair_line])
    odd[pair_line[~(begins & ends)]] = True
    return np.flatnonzero(odd)


def _value_counts(lines: Lines, rows: np.ndarray) -> np.ndarray:
    """How many values each of the marked lines has: its commas outside quotes, and one."""
    commas = np.flatnonzero(lines.content == _COMMA)
    where = lines.of(commas)
    quotes = np.flatnonzero(lines.content == _QUOTE)
    quotes = quotes[rows[lines.of(quotes)]]
    outside = np.searchsorted(quotes, commas) % 2 == 0
    counts: np.ndarray = np.bincount(where[outside], minlength=len(lines)) + 1
    return counts
