"""Houses to run flows in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.flows import Builder
from fixtures.layers import Make, layers, plain


@pytest.fixture
def a_house(tmp_path: Path, spark: SparkSession) -> Iterator[Builder]:
    """`a_house(stream, …)`: a project with these streams, applied; Spark is running."""
    builder = Builder(tmp_path)
    yield builder
    builder.close()


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """`make(bucket_rows=5, …)`: a stream of its own in a house for all that is done without Spark."""
    builder = Builder(tmp_path_factory.mktemp("layers"))
    house = builder(plain("first"))
    yield lambda inline=True, **changes: layers(house, plain(**changes), inline=inline)
    builder.close()
