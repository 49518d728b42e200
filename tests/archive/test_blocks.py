"""Files of randomised buckets are encoded so that a reader of few blocks reads few bytes."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errata.archive.blocks import BLOCK, randomized_bytes, wanted_row_groups
from errata.archive.bucket_files import POS, parquet_bytes
from errata.archive.sampling import last_hash, sampling_hashes

ROWS = 60_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    draw = np.random.default_rng(7)
    times = np.cumsum(draw.integers(1, 40, ROWS))
    return pa.table(
        {
            "time": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "n": draw.integers(0, 1 << 40, ROWS),
            POS: draw.permutation(ROWS),
        }
    )


def test_no_reader_looks_for_a_dictionary_of_blocks_or_of_what_ascends(rows: pa.Table) -> None:
    file = pq.ParquetFile(io.BytesIO(randomized_bytes(rows, (), sampling_hashes(rows, ["time", "n"]))))
    for group in range(file.metadata.num_row_groups):
        columns = [file.metadata.row_group(group).column(each) for each in range(file.metadata.num_columns)]
        found = {each.path_in_schema: each for each in columns}
        for name in ("time", POS, BLOCK):
            assert not found[name].has_dictionary_page
            assert "DELTA_BINARY_PACKED" in found[name].encodings
        assert found["n"].has_dictionary_page  # it does not ascend


def test_a_file_in_blocks_is_hardly_larger_and_has_the_same_rows(rows: pa.Table) -> None:
    hashes = sampling_hashes(rows, ["time", "n"])
    data = randomized_bytes(rows, (), hashes)
    assert len(data) < 1.1 * len(parquet_bytes(rows))
    file = pq.ParquetFile(io.BytesIO(data))
    assert file.read(rows.column_names).sort_by("time").equals(rows)
    some = file.read_row_groups(wanted_row_groups(file.metadata, 0.1), ["time", "n"])
    assert some.sort_by("time").equals(rows.select(["time", "n"]).filter(pa.array(hashes <= last_hash(0.1))))
