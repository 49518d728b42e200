"""What a scan leaves out of the rows that it reads, as SQL: other places, other groups, and rows outside of its sample.

A row belongs to a sample if its sampling hash is below the bound that its rate sets. The rate follows from its place or
from its value in a column, so the condition is one comparison of the hash with a constant or with a CASE. Rows of base
buckets, of their copies and of overlays are sampled alike; so each row of an exact scan is in the sample or not,
wherever it is read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame

from errata.archive.sampling import last_hash
from errata.archive.scan_plan import ArchiveScan, GroupKey
from errata.engine.frames import with_columns
from errata.engine.plans.node_rows import instant_sql, quote_name
from errata.language.expr import STRING, Lit, literal_sql
from errata.model.bucket import Bucket
from errata.model.reduction import SamplingRates
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

RATE = "_rate"
"""The column with the sampling rate of each row; 1/rate is its weight."""


def filter_scan(rows: DataFrame, scan: ArchiveScan, base: Iterable[Bucket] | None = None) -> DataFrame:
    """The rows in the scan's interval, groups and sample that have not been aged out. `base`: the buckets that the rows
    are from, if they are from base buckets."""
    stream, interval, aged_to = scan.state.stream, scan.interval, scan.state.aged_to
    reaches_back = aged_to is not None and (base is None or any(bucket.vs_min < aged_to for bucket in base))
    start = max(interval.start, aged_to) if reaches_back and aged_to is not None else interval.start
    if start > LOWEST:
        rows = rows.where(f"{quote_name(stream.order)} >= {order_literal(stream, start)}")
    if interval.end < HIGHEST:
        rows = rows.where(f"{quote_name(stream.order)} < {order_literal(stream, interval.end)}")
    rows = rows if scan.groups is None else rows.where(_group_condition(stream, scan.groups))
    sampled = None if scan.rates is None else sample_condition(stream, scan.rates)
    return rows if sampled is None else rows.where(sampled)


def sampling_hash_sql(stream: Stream) -> str:
    """The sampling hash of a row, as `sampling.sampling_hashes` computes it."""
    return f"xxhash64({', '.join(map(quote_name, stream.key))})"


def sample_condition(stream: Stream, rates: SamplingRates) -> str | None:
    """SQL: a row belongs to the sample; None if all do."""
    if rates.exact:
        return None
    bound = _by_row(stream, rates, lambda rate: instant_sql(last_hash(rate)))
    return f"{sampling_hash_sql(stream)} <= {bound}"


def with_rate_column(rows: DataFrame, stream: Stream, rates: SamplingRates | None) -> DataFrame:
    """The rows with the rate of each."""
    text = "CAST(1 AS DOUBLE)" if rates is None else _by_row(stream, rates, lambda rate: f"CAST('{rate!r}' AS DOUBLE)")
    return with_columns(rows, {RATE: text})


def _by_row(stream: Stream, rates: SamplingRates, text: Callable[[float], str]) -> str:
    """SQL of what follows from the rate of a row."""
    if (one := rates.uniform) is not None:
        return text(one)
    if rates.column is not None:
        cases = [
            f"WHEN {_equals(stream, rates.column, value)} THEN {text(rate)}" for value, rate in rates.by_value.items()
        ]
        return f"CASE {' '.join(cases)} ELSE {text(rates.rates[0])} END"
    order = quote_name(stream.order)
    cases = [
        f"WHEN {order} < {order_literal(stream, end)} THEN {text(rate)}"
        for end, rate in zip(rates.starts[1:], rates.rates[:-1], strict=True)
    ]
    return f"CASE {' '.join(cases)} ELSE {text(rates.rates[-1])} END"


def order_literal(stream: Stream, value: int) -> str:
    """A place as a SQL literal of the order field's type."""
    return f"timestamp_micros({value}L)" if stream.timed else instant_sql(value)


def _group_condition(stream: Stream, groups: frozenset[GroupKey]) -> str:
    """SQL: the group columns equal one of the groups, compared as values and not as text, so that Parquet can prune."""
    return (
        " OR ".join(
            " AND ".join(_equals(stream, *each) for each in zip(stream.group, group, strict=True))
            for group in sorted(groups, key=repr)
        )
        or "false"
    )


def _equals(stream: Stream, name: str, text: str | None) -> str:
    """SQL: a column has a value, given as text."""
    if text is None:
        return f"{quote_name(name)} IS NULL"
    return f"{quote_name(name)} = CAST({literal_sql(Lit(text, STRING))} AS {stream.column(name).type})"
