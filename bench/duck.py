"""DuckDB as all benchmarks use it: in UTC, and silent."""

from __future__ import annotations

import duckdb


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    # In a terminal a bar would be drawn through what we print.
    connection.execute("SET enable_progress_bar = false")
    return connection
