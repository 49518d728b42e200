"""Steps on frames that the DataFrame API takes as columns only, written as SQL text.

A `pyspark.sql.functions` column belongs to a classic session or to Spark Connect, and a process may have both. Text
belongs to neither: with these a plan is written once for every engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame

from errata.engine.near import is_near


def column(frame: DataFrame, text: str) -> Column:
    """SQL text as a column that the frame's own session takes."""
    if is_of_connect(frame):
        from pyspark.sql.connect.functions import expr as connect_expr  # noqa: PLC0415 - takes a second to import

        return connect_expr(text)
    from pyspark.sql.functions import expr  # noqa: PLC0415 - a client of Spark Connect may not need it

    return expr(text)


def is_of_connect(frame: DataFrame) -> bool:
    """Whether a frame belongs to a session of Spark Connect."""
    return type(frame).__module__.startswith("pyspark.sql.connect")


_PLAIN = re.compile(r"(`[^`]+`|[A-Za-z_][A-Za-z_0-9]*)(?: AS (`[^`]+`|[A-Za-z_][A-Za-z_0-9]*))?")
_WORDS = frozenset({"NULL", "TRUE", "FALSE"})


def selected(frame: DataFrame, *texts: str) -> DataFrame:
    """Columns from SQL. To the near engine those that are only called otherwise go as they are: it takes longer to read
    a text than to carry it out, and keeps for good some kilobytes of each."""
    if not is_near(frame.sparkSession):
        return frame.selectExpr(*texts)
    from pyspark.sql.connect.functions import col, expr  # noqa: PLC0415 - takes a second to import

    def item(text: str) -> Any:
        plain = _PLAIN.fullmatch(text)
        if plain is None or plain[1].upper() in _WORDS:
            return expr(text)
        return col(plain[1]) if plain[2] is None else col(plain[1]).alias(plain[2].strip("`"))

    return frame.select(*(item(text) for text in texts))


def grouped_by(frame: DataFrame, by: Sequence[str], aggregates: Sequence[str]) -> DataFrame:
    """One row for each group, by columns' names, with aggregates in SQL."""
    return frame.groupBy(*by).agg(*(column(frame, text) for text in aggregates))


def having(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """A frame with more columns from SQL, or with others in the place of those that are called so."""
    return frame.withColumns({name: column(frame, text) for name, text in columns.items()}) if columns else frame


def joined(left: DataFrame, right: DataFrame, condition: str, how: str = "inner") -> DataFrame:
    """A join on a condition in SQL. Both sides' columns have different names."""
    return left.join(right, column(left, condition), how)


def broadcast(frame: DataFrame) -> DataFrame:
    """The frame, marked as small enough to go to every task whole."""
    return frame.hint("broadcast")


def united(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of one or more frames whose columns have the same names."""
    # Not by `DataFrame.unionByName` as a function: that is of the kind of session that the process began with.
    return reduce(lambda left, right: left.unionByName(right), frames)


def stacked(*frames: DataFrame) -> DataFrame:
    """The rows of one or more frames whose columns stand in the same places, under the names of the first."""
    # What is stacked already comes first: Sail loses the columns of a union that is the right side of another.
    return reduce(lambda left, right: left.unionAll(right), frames)
