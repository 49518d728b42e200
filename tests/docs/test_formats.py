"""The examples of docs/formats.md say what becomes of their lines: here intake says it, without Spark."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pytest
from upath import UPath

from errata.archive.revisions.resolve import BUCKET, RevisionOutcome, resolve_revisions
from errata.declare.project import load_project
from errata.errors import UsageError
from errata.intake.convert import convert, is_convertible
from errata.intake.encoding import json_lines
from errata.intake.files import inspect_file
from errata.intake.layout import OLD_PREFIX, OP, SEQ, first_record_line, plan_splits, read_layout
from errata.intake.split_reader import GIVEN, OLD_GIVEN, SplitRows, read_split
from errata.model.batch import (
    Op,
    aged_out_reason,
    duplicate_key_reason,
    key_taken_reason,
    no_such_row_reason,
    old_value_reason,
)
from errata.model.columns import ColumnType
from errata.model.stream import Stream
from fixtures.claims import claim, live_table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^The file `(\S+)`:\n\n```\w+\n(.*?)```\n\n```text\n(.*?)```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {name: (content, told) for name, content, told in EXAMPLE.findall(PAGE)}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(title: str) -> list[list[str]]:
    """The rows of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture
def streams(tmp_path: Path) -> dict[str, Stream]:
    (tmp_path / "errata.yaml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
    return dict(load_project(tmp_path).streams)


def read(path: Path, stream: Stream, default_op: Op = Op.INSERT) -> SplitRows:
    file = inspect_file(UPath(path))
    layout = read_layout(file, stream, default_op)
    [split] = plan_splits([file], [layout])
    return read_split(split, layout, stream)


def outcome(path: Path, stream: Stream) -> str:
    """What becomes of each line, in the words of the page."""
    file = inspect_file(UPath(path))
    found = read(path, stream)
    told = [(ordinal, "bad", reason) for ordinal, _, reason in found.bad]
    told += [(int(ordinal), "in", row) for ordinal, row in zip(found.ordinals, json_of(found.rows), strict=True)]
    told += [
        (int(ordinal), "correction", row)
        for ordinal, row in zip(found.correction_ordinals, corrections_of(found), strict=True)
    ]
    return "".join(
        f"line {first_record_line(file) + ordinal}  {kind:10}  {text}\n" for ordinal, kind, text in sorted(told)
    )


def json_of(rows: pa.Table) -> list[str]:
    return "".join(json_lines(batch).decode() for batch in rows.combine_chunks().to_batches()).splitlines()


def corrections_of(found: SplitRows) -> list[str]:
    """Each correction with the columns that it gives, and no others."""
    told = []
    for index, row in enumerate(found.corrections.to_pylist()):
        given = [name for name in row[GIVEN].split(",") if name]
        given += [f"{OLD_PREFIX}{name}" for name in row[OLD_GIVEN].split(",") if name]
        marks = [OP] if row[SEQ] is None else [OP, SEQ]
        told += json_of(found.corrections.slice(index, 1).select([*marks, *given]))
    return told


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_what_becomes_of_its_lines(name: str, streams: dict[str, Stream], tmp_path: Path) -> None:
    content, told = EXAMPLES[name]
    (tmp_path / name).write_text(content)
    assert outcome(tmp_path / name, streams[name.partition(".")[0]]) == told


def test_there_is_an_example_for_each_format_of_text_and_for_corrections() -> None:
    assert list(EXAMPLES) == ["orders.csv", "orders.jsonl", "quotes.csv", "orders.ndjson"]


def test_gzip_changes_nothing(streams: dict[str, Stream], tmp_path: Path) -> None:
    content, told = EXAMPLES["orders.csv"]
    (tmp_path / "orders.csv.gz").write_bytes(gzip.compress(content.encode()))
    assert outcome(tmp_path / "orders.csv.gz", streams["orders"]) == told


def test_the_endings_are_those_that_are_known(tmp_path: Path) -> None:
    plain, zipped = [], []
    for endings, _, compressed in table("Files"):
        plain += codes(endings)
        zipped += codes(compressed)
    for ending in (*plain, *zipped):
        (tmp_path / f"x{ending}").write_bytes(b"")
        assert inspect_file(UPath(tmp_path / f"x{ending}")).gzip is (ending in zipped)
    (tmp_path / "x.txt").write_bytes(b"")
    with pytest.raises(UsageError) as refused:
        inspect_file(UPath(tmp_path / "x.txt"))
    assert refused.value.how is not None
    assert set(refused.value.how.removeprefix("names end in ").split(", ")) == {*plain, *zipped}


TEXTS = [(codes(kind)[0], codes(good), codes(bad)) for kind, good, bad in table("How text is read")]


@pytest.mark.parametrize(("kind", "good", "bad"), TEXTS)
def test_text_is_read_as_the_table_tells(kind: str, good: list[str], bad: list[str]) -> None:
    declared = ColumnType.parse(kind)
    for text in good:
        assert convert(pa.array([text]), declared)[1] is None, text
    for text in bad:
        values, mask = convert(pa.array([text]), declared)
        assert mask is not None, text
        assert values.null_count == 1


SOURCES = {
    "text": pa.string(),
    "binary that is UTF-8": pa.binary(),
    "whole numbers": pa.int16(),
    "floating point": pa.float64(),
    "decimals": pa.decimal128(9, 3),
    "booleans": pa.bool_(),
    "dates": pa.date32(),
    "timestamps": pa.timestamp("ns"),
}


@pytest.mark.parametrize(("kind", "sources"), [(codes(kind)[0], sources) for kind, sources in table("Parquet")])
def test_parquet_types_are_those_of_the_table(kind: str, sources: str) -> None:
    declared = ColumnType.parse(kind)
    assert {name for name, source in SOURCES.items() if is_convertible(source, declared)} == set(sources.split(", "))


def test_floating_point_becomes_a_decimal_by_its_text() -> None:
    values, mask = convert(pa.array([0.1, 0.125]), ColumnType.parse("decimal(10,2)"))
    assert str(values[0].as_py()) == "0.10"
    assert mask is not None
    assert mask.tolist() == [False, True]


APPLIED = re.compile(
    r"these rows, .*?\n```csv\n(.*?)```.*?\n```json\n(.*?)```\n\ndoes this:\n\n```text\n(.*?)```", re.DOTALL
)


def test_corrections_do_what_the_page_says_when_they_are_applied(streams: dict[str, Stream], tmp_path: Path) -> None:
    [(rows, corrections, told)] = APPLIED.findall(PAGE)
    stream = streams["quotes"]
    (tmp_path / "quotes.csv").write_text(rows)
    (tmp_path / "corrections.jsonl").write_text(corrections)
    archived = read(tmp_path / "quotes.csv", stream).rows
    stable = max(archived[stream.order].cast(pa.int64()).to_pylist())
    found = read(tmp_path / "corrections.jsonl", stream, Op.REPLACE)
    lines, revisions = numbered(found)
    live = [
        row | {"_batch": 1, "_pos": at, "_revision": None, BUCKET: 1} for at, row in enumerate(archived.to_pylist())
    ]
    done = resolve_revisions(stream, claim(stream, revisions), live_table(stream, live), stable, None)
    assert not found.bad
    assert all(row["time"] < archived[stream.order][-1].as_py() for row in found.rows.to_pylist())  # all of them late
    outcomes = sorted(zip(lines, became(done, len(lines)), strict=True))
    assert "".join(f"line {line + 1:<2}  {text}\n" for line, text in outcomes) == told


def numbered(found: SplitRows) -> tuple[list[int], list[dict[str, object]]]:
    """The lines of late rows and behind them of corrections, and what they are as revisions."""
    late = [row | {"_op": "insert"} for row in found.rows.to_pylist()]
    revisions = [*late, *found.corrections.to_pylist()]
    lines = [*map(int, found.ordinals), *map(int, found.correction_ordinals)]
    return lines, [row | {"_number": number, "_batch": 2, "_pos": number} for number, row in enumerate(revisions, 1)]


def became(done: RevisionOutcome, count: int) -> list[str]:
    """What became of each revision, in the words of the page."""
    words = ["dropped   it is so already"] * count
    for at in done.waiting.tolist():
        words[at] = "waiting"
    for at, reason in zip(done.refused.tolist(), done.reasons.to_pylist(), strict=True):
        words[at] = f"refused   {reason}"
    rows = json_of(done.overlay.select(["time", "symbol", "price"]))
    for row, now in zip(done.overlay.to_pylist(), rows, strict=True):
        before = {"insert": "inserted", "replace": "replaced", "delete": "deleted"}[row["_op"]]
        words[row["_revision"] - 1] = f"{before:8}  {now}" if row["_live"] else before
    return words


def test_the_reasons_are_those_that_corrections_are_refused_for() -> None:
    known = [
        no_such_row_reason(),
        old_value_reason("price", "1", "2"),
        key_taken_reason(),
        duplicate_key_reason(),
        aged_out_reason(),
    ]
    told = [cells[0] for cells in table("Revision files") if len(cells) == 3]
    assert {reason.partition(":")[0] for reason in known} <= set(told)
