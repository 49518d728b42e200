from __future__ import annotations

import pytest

from errata.language.expr import expr_sql, transform_expr
from errata.language.near_dialect import near_expr, near_sql
from fixtures.plans.expressions import read


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("n0 + 1", "CAST(CAST(n0 AS BIGINT) + CAST(1 AS BIGINT) AS INT)"),
        ("n1 * n0", "CAST(CAST(n1 AS DECIMAL(38,0)) * CAST(n0 AS DECIMAL(38,0)) AS BIGINT)"),
        ("-n1", "CAST(-(CAST(n1 AS DECIMAL(38,0))) AS BIGINT)"),
        ("n3 + n0", "n3 + CAST(n0 AS DOUBLE)"),
        (
            "n3 > n4",
            "nanvl(n3, CAST('nan' AS DOUBLE)) > nanvl(CAST(CAST(n4 AS STRING) AS DOUBLE), CAST('nan' AS DOUBLE))",
        ),
        ("n4 / n0", "CAST(CAST(n4 AS DECIMAL(38,10)) / CAST(n0 AS DECIMAL(10,0)) AS DECIMAL(21,13))"),
        ("hour(t)", "CASE WHEN CAST(t AS DATE) IS NOT NULL THEN hour(t) END"),
        ("n4 + n0", "CAST(n4 + CAST(n0 AS DECIMAL(10,0)) AS DECIMAL(13,2))"),
        ("try_add(n0, n0)", "TRY_CAST(CAST(n0 AS BIGINT) + CAST(n0 AS BIGINT) AS INT)"),
        ("nullif(n0, 0L)", "CASE WHEN CAST(n0 AS BIGINT) = 0L THEN CAST(NULL AS INT) ELSE n0 END"),
        ("d = t", "CAST(d AS TIMESTAMP) = t"),
        ("datediff(d, d)", "CAST(datediff(d, d) AS INT)"),
        ("-9223372036854775808", "CAST('-9223372036854775808' AS BIGINT)"),
        ("s || 'x'", "s || 'x'"),
    ],
)
def test_what_near_computes_otherwise_is_written_around(written: str, near: str) -> None:
    assert near_sql(read(written)) == near


def test_types_stay() -> None:
    for written in (
        "n0 + n1",
        "abs(n1)",
        "nullif(n3, n0)",
        "greatest(n2, 1.5F)",
        "round(n4, 1)",
        "timestamp_seconds(n1)",
    ):
        expr = read(written)
        assert transform_expr(expr, near_expr).type == expr.type, expr_sql(expr)
