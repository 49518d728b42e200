"""Plans through Spark Connect: the same as in a session of one's own."""

from __future__ import annotations

import ast
from pathlib import Path

from pyspark.sql import SparkSession

from fixtures.connect import RunOnConnect
from fixtures.evaluation import INTERPRETED, configured
from fixtures.plans.all_operators import everything

TESTS = Path(__file__).resolve().parent.parent.parent


def test_all_operators_give_the_same(run_on_connect: RunOnConnect, spark: SparkSession) -> None:
    printed = run_on_connect(
        """
        import sys
        sys.path.insert(0, os.environ["TESTS"])
        from fixtures.evaluation import INTERPRETED, configured
        from fixtures.plans.all_operators import everything
        with configured(spark, INTERPRETED):
            print(everything(spark))
        """,
        TESTS=str(TESTS),
    )
    with configured(spark, INTERPRETED):
        here = everything(spark)
    assert len(here) > 20
    assert ast.literal_eval(printed.strip().splitlines()[-1]) == here
