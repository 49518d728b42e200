"""What a file's beginning tells, who reads what, and how lines are numbered and fetched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from errata.errors import ErrataError
from errata.intake.files import inspect_file
from errata.intake.layout import FileLayout, number_lines, plan_splits, read_layout
from errata.intake.split_reader import fetch_lines
from errata.model.batch import FileFormat, FileSplit, Op, SourceFile
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

Write = Callable[[str, bytes], SourceFile]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_header_tells_columns_and_where_rows_begin(
    name: str, mark: bytes, end: bytes, write: Write, quotes: Stream
) -> None:
    head = mark + b'symbol,"time",_op' + end
    body = b"A,2026-11-18 02:00:00,\n" if end else b""
    layout = read_layout(write(name, head + body), quotes)
    assert layout == FileLayout(("symbol", "time", "_op"), len(head), header='symbol,"time",_op')


BAD = [
    ("a.csv", b"", "the file is empty"),
    ("a.csv", b"\nx", "has no header"),
    ("a.csv", b"time,symbol,prise\n", "unknown column 'prise'"),
    ("a.csv", b"time,symbol,Price\n", "unknown column 'Price'"),
    ("a.csv", b"time,symbol,_old_prise\n", "did you mean _old_price"),
    ("a.csv", b"time,symbol,time\n", "column 'time' is named twice"),
    ("a.csv", b"price\n", "columns time, symbol missing"),
    ("a.csv", b"time,symbol,\xff\n", "the header is not UTF-8"),
    ("a.csv", b'time,"symbol\n', "the header cannot be read"),
    ("a.csv.gz", None, "not a sound gzip file"),
    ("a.parquet", b"time,symbol\n", "the file cannot be read|not a Parquet file"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_a_file_that_cannot_be_taken_says_why(
    name: str, content: bytes | None, message: str, write: Write, quotes: Stream, tmp_path: Path
) -> None:
    if content is None:
        (tmp_path / name).write_bytes(b"time,symbol\n")
        file = inspect_file(UPath(tmp_path / name))
    else:
        file = write(name, content)
    with pytest.raises(ErrataError, match=message) as error:
        read_layout(file, quotes)
    assert name in str(error.value)


def test_a_truncated_gzip_header_and_a_missing_file_are_errors(tmp_path: Path, write: Write, quotes: Stream) -> None:
    file = write("a.csv.gz", b"time,symbol\n" * 100)
    Path(file.name).write_bytes(Path(file.name).read_bytes()[:15])
    with pytest.raises(ErrataError, match="cut off"):
        read_layout(file, quotes)
    Path(file.name).unlink()
    with pytest.raises(ErrataError, match="cannot be read"):
        read_layout(file, quotes)


def test_a_parquet_column_of_another_nature_is_refused(tmp_path: Path, quotes: Stream) -> None:
    pq.write_table(pa.table({"time": [1], "symbol": ["A"]}), tmp_path / "a.parquet")
    with pytest.raises(ErrataError, match="column time holds int64, and time is a timestamp"):
        read_layout(inspect_file(UPath(tmp_path / "a.parquet")), quotes)


def test_an_order_may_be_missing_when_it_is_given_on_arrival_or_unchanged(write: Write, quotes: Stream) -> None:
    columns = tuple(
        Column(n, ColumnType.parse(t)) for n, t in (("id", "int"), ("at", "timestamp"), ("arrived", "bigint"))
    )
    ordered = Stream("s", columns, ("id",), "at")
    arriving = Stream("s", columns, ("id",), "arrived")
    assert not read_layout(write("a.csv", b"id\n"), arriving).gives_order
    assert not read_layout(write("a.csv", b"_op,id\n"), ordered).gives_order
    assert read_layout(write("a.csv", b"id,at\n"), ordered).gives_order
    with pytest.raises(ErrataError, match="column at missing"):
        read_layout(write("a.csv", b"id\n"), ordered)
    with pytest.raises(ErrataError, match="column time missing"):
        read_layout(write("a.csv", b"_op,symbol\n"), quotes)


def test_a_file_of_corrections_may_name_the_key_by_old_values(write: Write, quotes: Stream) -> None:
    for header in (b"_op,_old_time,symbol\n", b"_op,_old_time,_old_symbol,price\n"):
        assert not read_layout(write("a.csv", header), quotes).gives_order
    replacing = read_layout(write("a.csv", b"_old_time,symbol\n"), quotes, Op.REPLACE)
    assert (replacing.default_op, replacing.may_correct) == (Op.REPLACE, True)
    with pytest.raises(ErrataError, match="column time missing"):
        read_layout(write("a.csv", b"_old_time,symbol\n"), quotes)
    with pytest.raises(ErrataError, match="column symbol missing"):
        read_layout(write("a.csv", b"_op,_old_time,price\n"), quotes)
    assert read_layout(write("a.jsonl", b"{}"), quotes, Op.REPLACE).default_op is Op.REPLACE


def a_file(name: str, form: FileFormat, size: int, gzip: bool = False) -> SourceFile:
    return SourceFile(name, form, gzip, size, "00")


def test_splits_cover_each_file_once() -> None:
    files = [
        a_file("a", FileFormat.CSV, 110),
        a_file("b", FileFormat.CSV, 110, gzip=True),
        a_file("c", FileFormat.JSON, 0),
        a_file("d", FileFormat.PARQUET, 100),
        a_file("e", FileFormat.CSV, 10),
    ]
    layouts = [
        FileLayout(("x",), 10),
        FileLayout(("x",), 10),
        FileLayout(()),
        FileLayout(("x",), 0, (5, 5, 0, 5, 20, 5)),
    ]
    splits = plan_splits(files, [*layouts, FileLayout(("x",), 10)], target_bytes=40)
    assert [split.number for split in splits] == list(range(len(splits)))
    spans = [(split.file.name, split.start, split.end) for split in splits]
    assert spans == [
        ("a", 10, 43), ("a", 43, 76), ("a", 76, 110), ("b", 0, 110), ("d", 0, 4), ("d", 4, 5), ("d", 5, 6),
    ]  # fmt: skip


def test_few_rows_to_a_piece_are_asked_of_parquet_alone() -> None:
    files = [
        a_file("a", FileFormat.CSV, 90_010),
        a_file("b", FileFormat.PARQUET, 100),
        a_file("c", FileFormat.JSON, 60_000),
    ]
    layouts = [FileLayout(("x",), 10), FileLayout(("x",), 0, (2, 2, 2, 9, 1)), FileLayout(())]
    splits = plan_splits(files, layouts, target_bytes=50_000, most_rows=4)
    assert [(split.file.name, split.start, split.end) for split in splits] == [
        ("a", 10, 45_010), ("a", 45_010, 90_010), ("b", 0, 2), ("b", 2, 3), ("b", 3, 4), ("b", 4, 5),
        ("c", 0, 30_000), ("c", 30_000, 60_000),
    ]  # fmt: skip
    assert len(plan_splits(files, layouts, most_rows=1_000_000)) == 3


def test_it_is_known_which_files_have_no_rows(tmp_path: Path, write: Write, quotes: Stream) -> None:
    empty = [write("a.csv", b"time,symbol\n"), write("b.jsonl", b""), write("c.jsonl", b"\xef\xbb\xbf")]
    full = [write("d.csv", b"time,symbol\nx"), write("e.jsonl", b"{}"), write("f.csv.gz", b"time,symbol\n")]
    for name, rows, found in (("g.parquet", 0, empty), ("h.parquet", 1, full)):
        columns = {"time": pa.array([0] * rows, pa.timestamp("us")), "symbol": ["A"] * rows}
        pq.write_table(
            pa.table(columns, schema=pa.schema({"time": pa.timestamp("us"), "symbol": pa.string()})), tmp_path / name
        )
        found.append(inspect_file(UPath(tmp_path / name)))
    assert [plan_splits([file], [read_layout(file, quotes)]) for file in empty] == [[]] * 4
    assert [bool(plan_splits([file], [read_layout(file, quotes)])) for file in full] == [True] * 4


def test_lines_are_numbered_through_each_file() -> None:
    a, b = a_file("a", FileFormat.CSV, 9), a_file("b", FileFormat.PARQUET, 9)
    splits = [FileSplit(0, a, 0, 4), FileSplit(1, a, 4, 9), FileSplit(2, b, 0, 1), FileSplit(3, b, 1, 2)]
    numbered = number_lines([(split, 10 + split.number) for split in reversed(splits)])
    assert [(read.split.number, read.first_line, read.lines) for read in numbered] == [
        (0, 2, 10), (1, 12, 11), (2, 1, 12), (3, 13, 13),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_lines_are_fetched_by_number(name: str, write: Write, quotes: Stream) -> None:
    file = write(name, b"\xef\xbb\xbfhead\r\none\r\n\r\nth\xffree")
    assert fetch_lines(file, {1, 2, 3, 4, 9}, quotes) == {1: "head", 2: "one", 3: "", 4: "th\\xffree"}
    assert fetch_lines(file, set(), quotes) == {}


def test_parquet_rows_are_fetched_by_number(tmp_path: Path, quotes: Stream) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3, 4, None]}), tmp_path / "a.parquet", row_group_size=2)
    file = inspect_file(UPath(tmp_path / "a.parquet"))
    assert fetch_lines(file, {2, 3, 5, 6}, quotes) == {2: '{"n": 2}', 3: '{"n": 3}', 5: '{"n": null}'}
