"""Corrected answers by delta-rs: tables in Delta's format, corrected by MERGE, whose change feed tells what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from bench import duck
from bench.corrections import Corrections

_DAY = "strftime({column}, '%Y-%m-%d') AS day"
_FEED = {"delta.enableChangeDataFeed": "true"}
_OTHER = "abs(s.mean - t.mean) > 1e-9 * abs(t.mean)"


@dataclass
class Delta:
    """A table of quotes and one of answers, both in a folder for each day."""

    files: Sequence[str]
    """The quotes, of which the table is made."""
    text: str
    """The query's answer, for DuckDB."""
    folder: Path

    def __post_init__(self) -> None:
        self.quotes, self.answers = str(self.folder / "quotes"), str(self.folder / "answers")
        with duck.connect() as connection:
            day = _DAY.format(column="time")
            rows = f"SELECT time, symbol, price, {day} FROM read_parquet({list(self.files)!r})"
            write_deltalake(self.quotes, connection.execute(rows).to_arrow_reader(), partition_by=["day"])
            connection.execute(f"CREATE VIEW quotes AS {rows}")
            answer = self._answer(connection)
        write_deltalake(self.answers, answer, partition_by=["day"], configuration=_FEED)

    def correct(self, corrections: Corrections) -> None:
        """Merge the corrections, have the days that they touch recomputed, and merge the result."""
        said = _as_table(corrections)
        days = sorted(set(said["day"].to_pylist()))
        quotes = DeltaTable(self.quotes)
        some = ", ".join(f"'{day}'" for day in days)
        same = f"t.day IN ({some}) AND t.day = s.day AND t.time = s.time AND t.symbol = s.symbol"
        merged = quotes.merge(said, same, source_alias="s", target_alias="t")
        told = merged.when_matched_update({"price": "s.price"}).execute()
        if told["num_target_rows_updated"] != said.num_rows:
            raise AssertionError(
                f"{said.num_rows} corrections are of rows that are there, and this came of them: {told}"
            )
        answers = DeltaTable(self.answers)
        same = f"t.day IN ({some}) AND t.day = s.day AND t.symbol = s.symbol AND t.window_start = s.window_start"
        merged = answers.merge(self._recomputed(quotes, days), same, source_alias="s", target_alias="t")
        merged.when_matched_update({"mean": "s.mean"}, predicate=_OTHER).when_not_matched_insert_all().execute()

    def _recomputed(self, quotes: DeltaTable, days: Sequence[str]) -> pa.Table:
        files = quotes.file_uris(file_pruning_predicate=[("day", "in", list(days))])
        with duck.connect() as connection:
            connection.execute(f"CREATE VIEW quotes AS SELECT time, symbol, price FROM read_parquet({files!r})")
            return self._answer(connection)

    def _answer(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        day = _DAY.format(column="window_start")
        return connection.execute(f"SELECT *, {day} FROM ({self.text})").to_arrow_table()

    def changed(self) -> pa.Table:
        """What the change feed tells of the last version."""
        table = DeltaTable(self.answers)
        told = _plain(pa.table(table.load_cdf(starting_version=table.version(), ending_version=table.version())))
        was = told.filter(pc.equal(told["_change_type"], "update_preimage"))
        now = told.filter(pc.equal(told["_change_type"], "update_postimage"))
        keys = ["symbol", "window_start"]
        olds = was.select([*keys, "mean"]).rename_columns([*keys, "old_mean"])
        return now.select([*keys, "mean"]).join(olds, keys)


def _plain(rows: pa.Table) -> pa.Table:
    """The same with texts as everybody else has them."""
    columns = {name: rows[name] for name in rows.column_names}
    texts = {name: each.cast(pa.string()) for name, each in columns.items() if pa.types.is_string_view(each.type)}
    return pa.table({**columns, **texts})


def _as_table(corrections: Corrections) -> pa.Table:
    """What a file of corrections says."""
    with duck.connect() as connection:
        day = _DAY.format(column="time")
        said = f"SELECT time::TIMESTAMPTZ AS time, symbol, price::DOUBLE AS price, {day} FROM said"
        connection.execute(
            f"CREATE VIEW said AS SELECT * REPLACE (time::TIMESTAMPTZ AS time) FROM '{corrections.file}'"
        )
        return connection.execute(said).to_arrow_table()
