"""Rows of a DataFrame given out: encoded where they are, or fetched when few, always the same."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from errata.errors import ErrataError
from errata.read.output import LOCAL_ENCODE_ROWS, encode_blocks, format_first_rows, sort_rows, write_file, write_rows
from errata.read.wording import ExportFormat

NAMES = ["time", "who", "price", "amount", "day", "sure"]
ROWS = 3_000


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Rows of every kind in disorder, spread over several tasks."""
    texts = ["plain", 'a "quoted", one', "two\nlines", "", None, " edge "]
    table = pa.table(
        [
            pa.array(
                [datetime.fromtimestamp(n * 7 % ROWS + n / 8, UTC) for n in range(ROWS)], pa.timestamp("us", "UTC")
            ),
            pa.array([texts[n % 6] for n in range(ROWS)]),
            pa.array([None if n % 11 == 0 else float("nan") if n % 13 == 0 else n / 3 for n in range(ROWS)]),
            pa.array([Decimal(n) / 100 for n in range(ROWS)], pa.decimal128(12, 4)),
            pa.array([date.fromordinal(700_000 + n) for n in range(ROWS)]),
            pa.array([n % 2 == 0 for n in range(ROWS)]),
        ],
        NAMES,
    )
    return sort_rows(spark.createDataFrame(table).repartition(3), ["time", "amount"], None)


def content() -> None:
    """What is read is whole."""


def written(frame: DataFrame, kind: ExportFormat, limit: int | None = None) -> bytes:
    out = io.BytesIO()
    write_rows(frame, kind, out, limit)
    return out.getvalue()


def test_csv_is_read_back_by_another_reader(rows: DataFrame) -> None:
    found = pd.read_csv(
        io.BytesIO(written(rows, ExportFormat.CSV)),
        parse_dates=["time"],
        float_precision="round_trip",
        dtype={"amount": str, "who": str},
        keep_default_na=False,
        na_values={"price": ["", "NaN"]},
    )
    expected = rows.toArrow()
    assert found.columns.tolist() == NAMES
    assert found["time"].dt.tz_localize("UTC").tolist() == expected["time"].to_pandas().tolist()
    assert found["who"].tolist() == [text or "" for text in expected["who"].to_pylist()]
    assert found["price"].equals(expected["price"].to_pandas())
    assert [Decimal(text) for text in found["amount"]] == expected["amount"].to_pylist()
    assert found["day"].tolist() == [day.isoformat() for day in expected["day"].to_pylist()]
    assert found["sure"].tolist() == expected["sure"].to_pylist()


@pytest.mark.parametrize("kind", [ExportFormat.CSV, ExportFormat.JSON])
def test_few_rows_fetched_and_many_encoded_where_they_are_say_the_same(rows: DataFrame, kind: ExportFormat) -> None:
    assert written(rows, kind, limit=LOCAL_ENCODE_ROWS) == written(rows, kind)


def test_rows_come_in_blocks_and_not_one_by_one(rows: DataFrame) -> None:
    assert len(list(encode_blocks(rows, lambda batch: bytes([1]) * batch.num_rows))) < 10


def test_a_parquet_file_holds_the_rows_in_order(rows: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    write_file(rows, ExportFormat.PARQUET, out, None, content)
    found = pq.read_table(out)
    expected = rows.toArrow()
    assert found.schema.names == NAMES
    assert found.drop_columns("price").to_pylist() == expected.drop_columns("price").to_pylist()
    assert found["price"].to_pandas().equals(expected["price"].to_pandas())


@pytest.mark.parametrize("limit", [None, 5])
def test_nothing_is_a_header_and_a_file_without_rows(rows: DataFrame, tmp_path: Path, limit: int | None) -> None:
    none = rows.where("false")
    assert written(none, ExportFormat.CSV, limit) == (",".join(NAMES) + "\n").encode()
    assert written(none, ExportFormat.JSON, limit) == b""
    write_file(none, ExportFormat.PARQUET, tmp_path / "none.parquet", limit, content)
    found = pq.read_table(tmp_path / "none.parquet")
    assert (found.num_rows, found.schema.names) == (0, NAMES)


def test_a_write_that_fails_leaves_no_file(rows: DataFrame, tmp_path: Path) -> None:
    failing = rows.selectExpr("raise_error('no') as x")
    with pytest.raises(Exception, match="no"):
        write_file(failing, ExportFormat.CSV, tmp_path / "x.csv", None, content)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ErrataError, match="cannot write"):
        write_file(rows, ExportFormat.CSV, tmp_path / "absent" / "x.csv", None, content)


def test_a_table_shows_the_first_rows_and_says_whether_there_are_more(rows: DataFrame) -> None:
    table, more = format_first_rows(rows.select("who", "sure"), 2, 80)
    screen = Console(file=io.StringIO(), width=40)
    screen.print(table)
    assert isinstance(screen.file, io.StringIO)
    assert len(screen.file.getvalue().splitlines()) == 3
    assert more
    assert format_first_rows(rows.limit(2), 2, 80)[1] is False
    assert format_first_rows(rows.where("false"), 2, 80)[1] is False


def test_a_file_that_the_last_check_refuses_gets_no_name(spark: SparkSession, tmp_path: Path) -> None:
    def refuse() -> None:
        raise ErrataError("the pin has expired")

    with pytest.raises(ErrataError, match="pin has expired"):
        write_file(spark.range(3), ExportFormat.CSV, tmp_path / "x.csv", None, refuse)
    assert list(tmp_path.iterdir()) == []
