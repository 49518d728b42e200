"""Splits read by the fast path against a reader in plain Python, and every kind of bad input by name."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from upath import UPath

from errata.errors import ErrataError
from errata.intake import source
from errata.intake.files import inspect_file
from errata.intake.layout import FileLayout, plan_splits, read_layout
from errata.intake.split_reader import SplitRows, read_split
from errata.intake.types import arrow_schema
from errata.model.batch import FileSplit, SourceFile
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

Write = Callable[[str, bytes], SourceFile]
HEADER = b"time,symbol,price\n"
T = "2026-11-18 02:00:00"
AT = datetime(2026, 11, 18, 2, tzinfo=UTC)

STREAM = Stream(
    "quotes",
    tuple(Column(name, ColumnType.parse(kind)) for name, kind in (("id", "bigint"), ("name", "string"), ("n", "int"))),
    ("id",),
    "id",
)


def only(file: SourceFile, stream: Stream) -> SplitRows:
    """The whole file as one split."""
    layout = read_layout(file, stream)
    (split,) = plan_splits([file], [layout], 1 << 40)
    return read_split(split, layout, stream)


def cut(file: SourceFile, layout: FileLayout, cuts: Iterable[int]) -> list[FileSplit]:
    """Splits at arbitrary bytes."""
    inner = sorted({point for point in cuts if layout.data_start < point < file.bytes})
    edges = [layout.data_start, *inner, file.bytes]
    return [FileSplit(n, file, a, b) for n, (a, b) in enumerate(itertools.pairwise(edges))]


def together(
    splits: list[FileSplit], layout: FileLayout
) -> tuple[list[tuple[object, ...]], list[tuple[int, str]], int]:
    """Rows with their line, bad lines with their text, and the lines, of all splits."""
    rows: list[tuple[object, ...]] = []
    bad: list[tuple[int, str]] = []
    lines = 0
    for split in splits:
        found = read_split(split, layout, STREAM)
        values = zip(*(column.to_pylist() for column in found.rows.columns), strict=True)
        rows += [(lines + int(o), *row) for o, row in zip(found.ordinals, values, strict=True)]
        bad += [(lines + ordinal, text) for ordinal, text, _ in found.bad]
        lines += found.lines
    return rows, bad, lines


def plain_cells(line: bytes) -> list[str | None] | None:
    """The cells of a CSV line, read a character at a time; None when it is no record."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return None
    cells: list[str | None] = []
    rest = text.removesuffix("\r")
    if "\r" in rest:
        return None
    while True:
        quoted = rest.startswith('"')
        if quoted:
            end = 1
            while end < len(rest) and (rest[end] != '"' or rest[end : end + 2] == '""'):
                end += 2 if rest[end] == '"' else 1
            if end >= len(rest):
                return None
            value, rest = rest[1:end].replace('""', '"'), rest[end + 1 :]
        else:
            value, comma, tail = rest.partition(",")
            rest = comma + tail
            if '"' in value:
                return None
        cells.append(value if value or quoted else None)
        if not rest:
            return cells
        if not rest.startswith(","):
            return None
        rest = rest[1:]


def plain_int(text: str | None, bits: int) -> int | None:
    if text is None:
        return None
    if not text.removeprefix("-").isdecimal() or not text.isascii() or not -(2**bits) <= int(text) < 2**bits:
        raise ValueError(text)
    return int(text)


def plain_row(cells: list[str | None] | None) -> tuple[object, ...] | None:
    if cells is None or len(cells) != 3 or cells[0] is None:
        return None
    try:
        return plain_int(cells[0], 63), cells[1], plain_int(cells[2], 31)
    except ValueError:
        return None


def plain_csv(body: bytes) -> tuple[list[tuple[object, ...]], list[tuple[int, str]], int]:
    """What `together` tells, slowly."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    rows: list[tuple[object, ...]] = []
    bad: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if not line.removesuffix(b"\r"):
            continue
        if (row := plain_row(plain_cells(line))) is not None:
            rows.append((number, *row))
        else:
            bad.append((number, line.removesuffix(b"\r").decode("utf-8", errors="backslashreplace")))
    return rows, bad, len(lines)


good_lines = st.builds(
    lambda number, name, n: f"{number},{name},{n}".encode(),
    st.integers(-9, 2**40),
    st.sampled_from(["", "a", '""', '"a,b"', '"say ""so"""', "é", " x "]),
    st.sampled_from(["", "7", "-1"]),
)
odd_lines = st.one_of(
    st.sampled_from(
        [b"", b"\r", b"1,a", b"1,a,2,3", b",a,1", b"x,y,z", b'1,"a,2', b'1,a"b,2', b'1,"a"b,2', b"\xff,a,1"]
    ),
    st.sampled_from(
        [b'1,a"b,"2', b'"1","a","2"', b'"', b'""', b"1,a\rb,2", b"2,a,1\r", b',"",', b'1,"a\r",2', b"9" * 20]
    ),
    st.text('",1a\r', max_size=8).map(str.encode),
)


@given(
    lines=st.lists(good_lines | odd_lines, max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    ended=st.booleans(),
)
@example(lines=[b"1,a,2", b"3,b,4"], cuts=[len(b"id,name,n\n1,a,2\n")], ended=True)
@example(lines=[b"1,a,2", b"3,b,4"], cuts=[len(b"id,name,n\n1,a,2")], ended=False)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_csv_reads_the_same_however_it_is_cut(lines: list[bytes], cuts: list[int], ended: bool, tmp_path: Path) -> None:
    body = b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path / "some.csv"
    path.write_bytes(b"id,name,n\n" + body)
    file = inspect_file(UPath(path))
    layout = read_layout(file, STREAM)
    assert together(cut(file, layout, cuts), layout) == plain_csv(body)


@given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=5), st.none() | st.integers(-9, 2**31 - 1)
        ),
        max_size=8,
    ),
    cuts=st.lists(st.integers(0, 300), max_size=4),
    crlf=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_format_and_cut_gives_the_same_rows(
    rows: list[tuple[int, str | None, int | None]], cuts: list[int], crlf: bool, tmp_path: Path
) -> None:
    meant = [(id_, None if name is None else name.replace("\r", "_").replace("\n", "_"), n) for id_, name, n in rows]
    end = "\r\n" if crlf else "\n"
    quoted = [
        (str(a), "" if b is None else '"' + b.replace('"', '""') + '"', "" if c is None else str(c))
        for a, b, c in meant
    ]
    texts = {
        "a.csv": "id,name,n" + end + end.join(map(",".join, quoted)),
        "a.jsonl": end.join(json.dumps({"id": a, "name": b, "n": c}) for a, b, c in meant) + end,
    }
    table = (
        pa.table(
            dict(zip(STREAM.names, zip(*meant, strict=True), strict=True)) if meant else {}, schema=arrow_schema(STREAM)
        )
        if meant
        else arrow_schema(STREAM).empty_table()
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        file = inspect_file(UPath(tmp_path / name))
        layout = read_layout(file, STREAM)
        splits = plan_splits([file], [layout], 1) if name == "a.parquet" else cut(file, layout, cuts)
        found, bad, _ = together(splits, layout)
        assert [row[1:] for row in found] == meant, name
        assert bad == []


BAD_CSV = [
    (b"x,A,abc", "time: 'x' is not a timestamp; price: 'abc' is not a double"),
    (T.encode() + b",,1", "symbol: empty, and it is part of the key"),
    (T.encode() + b",A", "2 values, the header names 3"),
    (b"A", "1 value, the header names 3"),
    (T.encode() + b",A,1,2", "4 values, the header names 3"),
    (T.encode() + b",\xff,1", "not UTF-8"),
    (T.encode() + b',"A,1', "quotes that do not pair"),
    (T.encode() + b',A"B",1', "quotes that do not pair"),
    (T.encode() + b",A\rB,1", "a carriage return within the line"),
    (T.encode() + b',A,""', "price: '' is not a double"),
    (T.encode() + b".1234567,A,1", "is not a timestamp"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_CSV)
def test_a_bad_csv_line_is_explained_and_the_others_go_in(
    line: bytes, reason: str, write: Write, quotes: Stream
) -> None:
    good = T.encode() + b",A,1.5\n"
    found = only(write("a.csv", HEADER + good + line + b"\n\n" + good), quotes)
    assert found.ordinals.tolist() == [0, 3]
    assert found.rows.to_pylist() == [{"time": AT, "symbol": "A", "price": 1.5}] * 2
    ((ordinal, text, why),) = found.bad
    assert (ordinal, text) == (1, line.decode("utf-8", errors="backslashreplace"))
    assert reason in why
    assert found.lines == 4
    assert found.texts([3])[3] == T + ",A,1.5"


def test_an_embedded_newline_spoils_its_own_lines_only(write: Write, quotes: Stream) -> None:
    found = only(write("a.csv", HEADER + f'{T},"A\nB",1\n{T},C,2\n'.encode()), quotes)
    assert found.rows.column("symbol").to_pylist() == ["C"]
    assert [ordinal for ordinal, _, _ in found.bad] == [0, 1]


def test_a_line_longer_than_a_block_is_read(write: Write, quotes: Stream) -> None:
    found = only(write("a.csv", HEADER + f"{T},{'x' * 3_000_000},1\n{T},A,2\n".encode()), quotes)
    assert found.rows.num_rows == 2
    assert not found.bad


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("body", [b"", b"\n\r\n"])
def test_a_file_without_records_has_no_rows(name: str, body: bytes, write: Write, quotes: Stream) -> None:
    file = write(name, HEADER + body)
    layout = read_layout(file, quotes)
    found = [read_split(split, layout, quotes) for split in plan_splits([file], [layout])]
    assert sum(part.rows.num_rows for part in found) == 0
    assert sum(part.lines for part in found) == body.count(b"\n")
    assert all(part.rows.schema == arrow_schema(quotes) for part in found)


BAD_JSON = [
    (b"[1]", "not a JSON object: [1]"),
    (b'{"time": ', "not a JSON object"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"time": 1, "time": 2}', "'time' is given twice"),
    (b'{"time": "2026-11-18 02:00:00", "symbol": "A", "prise": 1}', "unknown column 'prise': did you mean price"),
    (b'{"time": "2026-11-18 02:00:00", "symbol": {"a": 1}}', 'symbol: {"a": "1"} is nested'),
    (b'{"time": "2026-11-18 02:00:00", "price": 1}', "symbol: not given, and it is part of the key"),
    (b'{"time": "2026-11-18 02:00:00", "symbol": null}', "symbol: empty, and it is part of the key"),
    (b'{"time": "2026-11-18 02:00:00", "symbol": "\\ud800"}', "holds half a character"),
    (b'{"time": "2026-11-18 02:00:00", "symbol": "A", "price": true}', "price: 'true' is not a double"),
    (b'{"time": "\xff"}', "not UTF-8"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_JSON, ids=[reason for _, reason in BAD_JSON])
def test_a_bad_json_line_is_explained_and_the_others_go_in(
    line: bytes, reason: str, write: Write, quotes: Stream
) -> None:
    good = json.dumps({"time": T, "symbol": "A", "price": 1.5}).encode()
    found = only(write("a.jsonl", b"\n".join([good, line, b" ", good])), quotes)
    assert found.ordinals.tolist() == [0, 3]
    ((ordinal, text, why),) = found.bad
    assert (ordinal, text) == (1, line.decode("utf-8", errors="backslashreplace"))
    assert reason in why
    assert why.count("symbol:") <= 1


def test_json_values_follow_the_rules_for_text(write: Write) -> None:
    stream = Stream(
        "s",
        tuple(
            Column(n, ColumnType.parse(t))
            for n, t in (("t", "bigint"), ("d", "decimal(20,2)"), ("x", "double"), ("b", "boolean"))
        ),
        ("t",),
        "t",
    )
    lines = b"""{"t": 1, "d": 12345678901234567.89, "x": NaN, "b": true}
{"t": "2", "d": "1E+1", "x": -Infinity, "b": "FALSE"}
{"t": 3}"""
    assert [
        tuple(row.values()) for row in only(write("a.json", b"\xef\xbb\xbf" + lines), stream).rows.to_pylist()[1:]
    ] == [
        (2, Decimal(10), float("-inf"), False),
        (3, None, None, None),
    ]
    assert only(write("a.json", lines), stream).rows.column("d")[0].as_py() == Decimal("12345678901234567.89")


def test_corrections_are_told_from_inserts(write: Write, quotes: Stream) -> None:
    body = f"""_op,_seq,time,symbol,price,_old_price
insert,,{T},A,1,
,,{T},B,2,
replace,7,{T},C,,3
delete,8,{T},D,,
upsert,9,{T},E,,
replace,x,{T},,5,
"""
    found = only(write("a.csv", body.encode()), quotes)
    assert found.rows.column("symbol").to_pylist() == ["A", "B"]
    assert found.ordinals.tolist() == [0, 1]
    assert found.correction_ordinals.tolist() == [2, 3]
    assert found.corrections.to_pylist()[0] == {
        "time": AT, "symbol": "C", "price": None, "_op": "replace", "_seq": 7, "_given": "time,symbol,price",
        "_old_time": None, "_old_symbol": None, "_old_price": 3.0, "_claimed": "price",
    }  # fmt: skip
    assert [reason for _, _, reason in found.bad] == [
        "unknown _op 'upsert': insert, replace or delete",
        "_seq: 'x' is not a bigint; symbol: empty, and it is part of the key",
    ]


def test_json_tells_row_by_row_what_a_correction_gives(write: Write, quotes: Stream) -> None:
    rows = [
        {"_op": "replace", "time": T, "symbol": "A", "price": 2},
        {"_op": "delete", "time": T, "symbol": "B", "_old_price": None},
        {"time": T, "symbol": "C", "price": None},
    ]
    found = only(write("a.jsonl", "\n".join(map(json.dumps, rows)).encode()), quotes)
    assert found.corrections.column("_given").to_pylist() == ["time,symbol,price", "time,symbol"]
    assert found.corrections.column("_claimed").to_pylist() == ["", "price"]
    assert found.rows.column("symbol").to_pylist() == ["C"]


def test_corrections_may_leave_out_an_order_that_is_not_in_the_key(write: Write) -> None:
    columns = tuple(Column(n, ColumnType.parse(t)) for n, t in (("id", "int"), ("at", "timestamp"), ("x", "double")))
    stream = Stream("s", columns, ("id",), "at")
    found = only(write("a.csv", b"_op,id,x\nreplace,1,2\ndelete,2,\n,3,4\n"), stream)
    assert found.corrections.column("_given").to_pylist() == ["id,x", "id,x"]
    assert [reason for _, _, reason in found.bad] == ["at: not given, and it is the order"]
    given = only(write("b.csv", b"_op,id,x,at\nreplace,1,2,\ndelete,2,,\n"), stream)
    assert given.corrections.column("_op").to_pylist() == ["delete"]
    assert [reason for _, _, reason in given.bad] == ["at: empty, and it is the order"]


def test_an_order_given_on_arrival_is_not_asked_of_the_file(write: Write) -> None:
    columns = tuple(Column(n, ColumnType.parse(t)) for n, t in (("id", "int"), ("arrived", "timestamp")))
    stream = Stream("s", columns, ("id",), "arrived")
    for name, text in (("a.csv", "id\n1\n"), ("a.jsonl", '\n{"id": 1}\n')):
        assert only(write(name, text.encode()), stream).rows.column_names == ["id"]
    for name, text in (("b.csv", f"id,arrived\n1,{T}\n2,\n"), ("b.jsonl", f'{{"id":1,"arrived":"{T}"}}\n{{"id":2}}\n')):
        found = only(write(name, text.encode()), stream)
        assert found.rows.to_pylist() == [{"id": 1, "arrived": AT}]
        assert len(found.bad) == 1
    mixed = only(write("c.jsonl", f'{{"id": 1}}\n{{"id": 2, "arrived": "{T}"}}\n'.encode()), stream)
    assert mixed.bad[0][2] == "arrived: the file's first row does not give it"


def test_parquet_rows_are_judged_like_the_others(tmp_path: Path, quotes: Stream) -> None:
    table = pa.table(
        {"symbol": ["A", None, "C"], "time": pa.array([1, 2, 3], pa.timestamp("ns")), "price": ["1", "2", "x"]}
    )
    table = table.set_column(1, "time", pa.array([1_000, 1_001, 2_000], pa.timestamp("ns")))
    pq.write_table(table, tmp_path / "a.parquet")
    found = only(inspect_file(UPath(tmp_path / "a.parquet")), quotes)
    assert found.rows.schema == arrow_schema(quotes)
    assert found.ordinals.tolist() == [0]
    assert [(ordinal, reason) for ordinal, _, reason in found.bad] == [
        (1, "time: '1970-01-01 00:00:00.000001001' is not a timestamp; symbol: empty, and it is part of the key"),
        (2, "price: 'x' is not a double"),
    ]
    assert json.loads(found.texts([2])[2]) == {"symbol": "C", "time": "1970-01-01T00:00:00.000002", "price": "x"}


def test_gzip_is_read_in_pieces_and_its_text_again(
    write: Write, quotes: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{T},S{n},{n}" if n % 10 else "bad" for n in range(100)]
    file = write("a.csv.gz", b"\xef\xbb\xbf" + HEADER + "\n".join(lines).encode())
    whole = only(file, quotes)
    monkeypatch.setattr(source, "PIECE_BYTES", 64)
    monkeypatch.setattr("errata.intake.split_reader._KEPT_BYTES", 200)
    piecemeal = only(file, quotes)
    assert piecemeal.rows.equals(whole.rows)
    assert piecemeal.ordinals.tolist() == whole.ordinals.tolist() == [n for n in range(100) if n % 10]
    assert piecemeal.bad == whole.bad
    assert piecemeal.texts([99, 3]) == {3: lines[3], 99: lines[99]}
    assert (piecemeal.lines, whole.lines) == (100, 100)


def test_a_gzip_that_is_cut_off_names_the_file(write: Write, quotes: Stream, tmp_path: Path) -> None:
    whole = write("a.csv.gz", HEADER + "\n".join(f"{T},S{n * 7919 % 1000},{n}" for n in range(50_000)).encode())
    content = Path(whole.name).read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ErrataError, match=r"cut\.csv\.gz: the gzip file is cut off"):
        only(inspect_file(UPath(tmp_path / "cut.csv.gz")), quotes)


def test_a_file_that_shrank_is_noticed(write: Write, quotes: Stream) -> None:
    file = write("a.csv", HEADER + f"{T},A,1\n".encode() * 9)
    layout = read_layout(file, quotes)
    (split,) = plan_splits([file], [layout])
    Path(file.name).write_bytes(HEADER)
    with pytest.raises(ErrataError, match="became shorter"):
        read_split(split, layout, quotes)


def test_what_tasks_are_given_can_be_sent_to_them(write: Write, quotes: Stream) -> None:
    file = write("a.csv", HEADER + f"{T},A,1\n".encode())
    layout = read_layout(file, quotes)
    (split,) = plan_splits([file], [layout])
    sent = pickle.loads(pickle.dumps((split, layout, quotes)))
    assert read_split(*sent).rows.equals(read_split(split, layout, quotes).rows)
