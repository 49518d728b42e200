"""The second pass over files with bad rows: what their lines say."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from errata.intake.parquet_rows import opened_parquet, row_text
from errata.intake.source import BOM, decode, opened
from errata.model.batch import Format, SourceFile


def fetch_lines(file: SourceFile, lines: AbstractSet[int]) -> dict[int, str]:
    """The text of the lines with these numbers, from 1; of Parquet, the rows as JSON. One pass, one line in memory."""
    if not lines:
        return {}
    return _parquet_rows(file, lines) if file.format is Format.PARQUET else _text_lines(file, lines)


def _text_lines(file: SourceFile, lines: AbstractSet[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    last = max(lines)
    with opened(file) as stream:
        for number, line in enumerate(stream, start=1):
            if number in lines:
                found[number] = decode(line.removeprefix(BOM) if number == 1 else line)
            if number >= last:
                break
    return found


def _parquet_rows(file: SourceFile, lines: AbstractSet[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    with opened_parquet(file) as parquet:
        first = 1
        for group in range(parquet.num_row_groups):
            behind = first + parquet.metadata.row_group(group).num_rows
            wanted = sorted(number for number in lines if first <= number < behind)
            if wanted:
                table = parquet.read_row_group(group, use_threads=False)
                found.update({number: row_text(table, number - first) for number in wanted})
            first = behind
    return found
