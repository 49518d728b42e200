"""Figure 11 (PSoup, section 5.4.2): a source is probed with the hybrids of one query, apart and together.

A query's probe of a source with one row of another is a hybrid: the query's relation with the row's value put in, and
the query's own condition on the source probed. A composite applies the condition once, and looks up all values in what
it leaves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from errata.language.registered.conditions import mirrored
from errata.model.registered import Comparison


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """The time to probe a source with the hybrids of one query, apart and together."""

    hybrids: int
    pairs: int
    separate_seconds: float
    composite_seconds: float


def measure_probes(
    values: np.ndarray, probed: np.ndarray, relation: Comparison, shared: Comparison, constant: int
) -> ProbeTimes:
    """Probe for the query (R.a relation S.b) AND (S.b shared constant), where the values of R.a are given, and S is
    indexed by b: with each value alone, and with all as one composite. Both find the same number of pairs."""
    index = np.sort(probed)
    begun = time.perf_counter()
    apart = separate_probe(values, index, relation, shared, constant)
    between = time.perf_counter()
    together = composite_probe(values, index, relation, shared, constant)
    ended = time.perf_counter()
    if apart != together:
        raise AssertionError(f"the probes found {apart} and {together} pairs")
    return ProbeTimes(len(values), together, between - begun, ended - between)


def separate_probe(
    values: np.ndarray, index: np.ndarray, relation: Comparison, shared: Comparison, constant: int
) -> int:
    """The number of pairs, by two look-ups for each value: its relation, and the condition that all values share."""
    pairs = 0
    for value in values.tolist():
        low, high = _range(index, value, mirrored(relation))
        shared_low, shared_high = _range(index, constant, shared)
        pairs += len(index[max(low, shared_low) : min(high, shared_high)])
    return pairs


def composite_probe(
    values: np.ndarray, index: np.ndarray, relation: Comparison, shared: Comparison, constant: int
) -> int:
    """The number of pairs, where the condition is applied once, and all values are looked up in what it leaves."""
    low, high = _range(index, constant, shared)
    left = index[low:high]
    places = np.searchsorted(left, values, side="left"), np.searchsorted(left, values, side="right")
    match relation:
        case Comparison.EQUAL:
            counts = places[1] - places[0]
        case Comparison.LESS:
            counts = len(left) - places[1]
        case Comparison.AT_MOST:
            counts = len(left) - places[0]
        case Comparison.GREATER:
            counts = places[0]
        case Comparison.AT_LEAST:
            counts = places[1]
    return int(counts.sum())


def _range(index: np.ndarray, value: int, comparison: Comparison) -> tuple[int, int]:
    """The places of what compares so with a value."""
    first, last = int(np.searchsorted(index, value, side="left")), int(np.searchsorted(index, value, side="right"))
    match comparison:
        case Comparison.EQUAL:
            return first, last
        case Comparison.LESS:
            return 0, first
        case Comparison.AT_MOST:
            return 0, last
        case Comparison.GREATER:
            return last, len(index)
        case Comparison.AT_LEAST:
            return first, len(index)
