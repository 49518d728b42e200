"""The second pass over files with bad rows: what their lines say."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from errata.intake.csv_lines import NOT_UTF8
from errata.intake.judge import NOT_TEXT
from errata.intake.layout import known_columns
from errata.intake.parquet_rows import opened_parquet, row_text
from errata.intake.source import BOM, decode, opened
from errata.model.batch import Format, SourceFile
from errata.model.stream import Stream


def fetch_lines(file: SourceFile, lines: AbstractSet[int], stream: Stream) -> dict[int, str]:
    """The text of the lines with these numbers, from 1; of Parquet, the rows as JSON. One pass, one line in memory."""
    if not lines:
        return {}
    return _parquet_rows(file, lines, stream) if file.format is Format.PARQUET else _text_lines(file, lines)


def only_pictured(reason: str) -> bool:
    """Whether the text of a row that is bad for this reason is not what the file says, but a picture of it."""
    return reason == NOT_UTF8 or f" is not {NOT_TEXT}" in reason


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


def _parquet_rows(file: SourceFile, lines: AbstractSet[int], stream: Stream) -> dict[int, str]:
    found: dict[int, str] = {}
    kinds = known_columns(stream)
    with opened_parquet(file) as parquet:
        first = 1
        for group in range(parquet.num_row_groups):
            behind = first + parquet.metadata.row_group(group).num_rows
            wanted = sorted(number for number in lines if first <= number < behind)
            if wanted:
                table = parquet.read_row_group(group, use_threads=False)
                found.update({number: row_text(table, number - first, kinds) for number in wanted})
            first = behind
    return found
