"""Houses to run flows in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.flows import Builder


@pytest.fixture
def a_house(tmp_path: Path, spark: SparkSession) -> Iterator[Builder]:
    """`a_house(stream, …)`: a project with these streams, applied; Spark is running."""
    builder = Builder(tmp_path)
    yield builder
    builder.close()
