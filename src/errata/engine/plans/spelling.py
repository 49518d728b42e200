"""What the compiler writes otherwise for the near engine than for Spark, so that both do the same.

Expressions of the language are spelled by `language.near_spelling`; here are the aggregates, and what values are told
apart by. The near engine adds up whole numbers without a look at where they end, does not know that NaN is the greatest
number, takes one that arithmetic made for the least, and tells zeros apart by their sign where it partitions rows and
where it compares structs.
"""

from __future__ import annotations

from errata.language.nodes import Aggregate
from errata.language.partial import FLOATING
from errata.model.columns import ColumnType, Kind

_WHOLE = (Kind.INT, Kind.BIGINT)


def told_apart(text: str, kind: ColumnType, *, near: bool) -> str:
    """A value that rows are partitioned by, grouped by or joined by."""
    if not near or kind.kind not in FLOATING:
        return text
    return one_nan(f"({text}) + CAST(0 AS {kind})", str(kind), near=near)


def one_nan(text: str, kind: str, *, near: bool) -> str:
    """A value of a type in SQL that is compared with others of it."""
    if not near or not _is_floating(kind):
        return text
    return f"nanvl({text}, CAST('NaN' AS {kind}))"


def _is_floating(kind: str) -> bool:
    return kind.upper() in ("FLOAT", "DOUBLE")


def extreme(function: str, text: str, kind: str, *, near: bool) -> str:
    """The greatest or the least of values of a type, NaN being the greatest."""
    if not near or function == "sum" or not _is_floating(kind):
        return f"{function}({text})"
    return f"{function}_by({text}, IF({text} IS NULL, NULL, named_struct('n', isnan({text}), 'v', {text})))"


def summand(text: str, function: str, kind: ColumnType, *, near: bool) -> str:
    """What a sum or an average is made of."""
    if near and function == "sum" and kind.kind in _WHOLE:
        return f"CAST({text} AS DECIMAL(38,0))"
    if near and function == "avg" and kind.kind is Kind.DECIMAL:
        # An average is cut off after four more digits: a fifth tells which way the fourth is rounded.
        return f"CAST({text} AS DECIMAL({min(kind.precision + 1, 38)},{min(kind.scale + 1, 38)}))"
    return text


def brought_back(text: str, aggregate: Aggregate, *, near: bool) -> str:
    """What an aggregate comes to, from what it was made in; a sum that does not fit fails here."""
    whole = aggregate.function == "sum" and aggregate.type.kind in _WHOLE
    rounded = aggregate.function == "avg" and aggregate.type.kind is Kind.DECIMAL
    return f"CAST({text} AS {str(aggregate.type).upper()})" if near and (whole or rounded) else text
