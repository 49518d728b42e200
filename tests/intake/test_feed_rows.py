"""Files of feeds: inserts, adjusts and stable elements are told apart, in any format, and each line is judged alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from errata.errors import BadFileError
from errata.intake.feed_rows import type_feed_rows
from errata.intake.files import inspect_files
from errata.intake.layout import plan_splits, read_layout
from errata.intake.split_reader import SplitRows, read_split
from errata.model.columns import Column, ColumnType
from errata.model.feed import Feed, MergedFeeds
from errata.model.stream import Stream

COLUMNS = {"who": "string", "at": "bigint", "price": "double", "until": "bigint"}
STREAM = Stream(
    "quotes",
    tuple(Column(name, ColumnType.parse(kind)) for name, kind in COLUMNS.items()),
    key=("who", "at"),
    order="at",
    merged=MergedFeeds((Feed("a"), Feed("b")), end="until"),
)

LINES = [
    {"who": "x", "at": 5, "price": 1.5},
    {"_op": "adjust", "who": "x", "at": 5, "until": 9},
    {"_op": "stable", "at": 7},
    {"_op": "delete", "who": "x", "at": 8},
    {"_op": "insert", "who": "y", "at": 8, "price": 2.0, "_stable": 8},
    {"_op": "stable"},
    {"_op": "stable", "at": "noon"},
    {"who": "z", "at": 9, "_stable": "late"},
    {"who": None, "at": 9, "_stable": 10},
    {"_op": "unstable", "who": "z", "at": 9},
]


def read(path: Path, stream: Stream = STREAM) -> SplitRows:
    [file] = inspect_files([UPath(path)])
    layout = read_layout(file, stream)
    [split] = plan_splits([replace(file, header=layout.header)], [layout])
    return read_split(split, layout, stream, type_feed_rows)


def as_csv(folder: Path) -> Path:
    names = ["_op", "_stable", *COLUMNS]
    rows = [",".join("" if line.get(name) is None else str(line[name]) for name in names) for line in LINES]
    path = folder / "a.csv"
    path.write_text("\n".join([",".join(names), *rows, ""]))
    return path


def as_json(folder: Path) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def as_parquet(folder: Path) -> Path:
    names = ["_op", "_stable", *COLUMNS]
    table = {name: [None if line.get(name) is None else str(line[name]) for line in LINES] for name in names}
    path = folder / "a.parquet"
    pq.write_table(pa.table(table), path)
    return path


@pytest.mark.parametrize("written", [as_csv, as_json, as_parquet])
def test_lines_of_a_feed(written: object, tmp_path: Path) -> None:
    found = read(written(tmp_path))  # type: ignore[operator]
    assert found.lines == len(LINES)
    assert found.rows["who"].to_pylist() == ["x", "y"]
    assert found.ordinals.tolist() == [0, 4]
    said = sorted(
        zip(
            found.correction_ordinals.tolist(),
            found.corrections["_op"].to_pylist(),
            found.corrections["at"].to_pylist(),
            strict=True,
        )
    )
    assert said == [(1, "replace", 5), (2, "stable", 7), (3, "delete", 8), (4, "stable", 8), (8, "stable", 10)]
    reasons = {ordinal: reason for ordinal, _, reason in found.bad}
    assert reasons.keys() == {5, 6, 7, 8, 9}
    assert reasons[5] == "at: not given, and a stable element says nothing else"
    assert reasons[6] == "at: 'noon' is not a bigint"
    assert reasons[7] == "_stable: 'late' is not a bigint"
    assert reasons[8].startswith("who: ")
    assert reasons[9].startswith("unknown _op 'unstable'")


def test_a_file_without_operations_has_inserts_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("who,at,price,until\nx,5,1.5,\n")
    found = read(path)
    assert (found.rows.num_rows, found.corrections.num_rows, found.bad) == (1, 0, [])


def test_a_stream_without_feeds_knows_no_marks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("who,at,price,until,_stable\nx,5,1.5,,5\n")
    with pytest.raises(BadFileError, match="unknown column '_stable'"):
        read(path, replace(STREAM, merged=MergedFeeds()))


def test_feeds_do_not_number_equal_rows() -> None:
    columns = (*STREAM.columns, Column("n", ColumnType.parse("bigint")))
    counted = replace(STREAM, columns=columns, key=("who", "at", "n"), merged=replace(STREAM.merged, occurrence="n"))
    assert counted.as_fed == replace(STREAM, merged=STREAM.merged)
    assert STREAM.as_fed is STREAM
