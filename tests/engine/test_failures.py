"""What is said of Spark jobs that fail."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from errata.engine.failures import job_advice, query_errors_in_words, spark_errors_in_words
from errata.errors import ErrataError

SHORT_OF_MEMORY = (
    "org.apache.spark.memory.SparkOutOfMemoryError: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 262144 bytes",
    "Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space",
)


@pytest.mark.parametrize("said", SHORT_OF_MEMORY)
def test_who_is_short_of_memory_is_told_where_to_give_more(said: str) -> None:
    for telling in (spark_errors_in_words, query_errors_in_words):
        with pytest.raises(ErrataError) as raised, telling():
            raise PySparkException(said)
        assert raised.value.how is not None
        assert raised.value.how.startswith("give Spark more memory by spark.driver.memory")
        assert "again" in raised.value.how


def test_other_failures_are_for_persons_to_mend() -> None:
    assert job_advice(PySparkException("the worker has no such interpreter")) == "mend the cause"


def test_who_is_short_of_disk_is_told_to_make_room() -> None:
    assert job_advice(PySparkException("java.io.IOException: No space left on device")) == "make room on the disk"
