"""What readers asked of a stream at reduced resolution: the demand that modify on read follows.

Equal readings of a stream are one request with a number of readers. A round lasts from one vacuum to the next: vacuum
decides by the readers since the last one, and for buckets that have no copy yet by those of the round before, so that
buckets which came since, or were rewritten, get the copies that their neighbours have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.model.bucket import Bucket
from errata.model.reduction import SamplingRates
from errata.model.time import EVERYTHING, HIGHEST, Interval


class RequestMethod(StrEnum):
    """The kind of smaller version that a reader asked for."""

    SAMPLE = "sample"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class AskedReduction:
    """One reading at reduced resolution: which rates, or which summary, of which places."""

    rates: SamplingRates | None = None
    """Of a sample."""
    summary: str | None = None
    """The name of a summary."""
    interval: Interval = EVERYTHING

    def __post_init__(self) -> None:
        if (self.rates is None) == (self.summary is None):
            raise ValueError("a reader asks for a sample or for a summary")

    @property
    def method(self) -> RequestMethod:
        return RequestMethod.SAMPLE if self.rates is not None else RequestMethod.SUMMARY

    @property
    def label(self) -> str:
        """The reduction in the words of the reader."""
        return self.summary or (self.rates.label if self.rates is not None else "")

    @property
    def digest(self) -> str:
        """Equal for readings that ask for the same."""
        text = json.dumps(asked_to_record(self), sort_keys=True)
        return hashlib.sha256(f"{self.label} {text}".encode()).hexdigest()

    def rate_of(self, bucket: Bucket) -> float | None:
        """The rate at which a bucket is read; None if it is not."""
        if self.rates is None or not _meets(self.interval, bucket):
            return None
        last = self.interval.end - (self.interval.end < HIGHEST)
        return self.rates.ceiling(max(bucket.vs_min, self.interval.start), min(bucket.vs_max, last))


@dataclass(frozen=True, slots=True)
class ReductionRequest:
    """What some readers asked for alike, as the catalog has it."""

    asked: AskedReduction
    readers: int
    """Readers since the last vacuum."""
    last_readers: int
    """Readers of the round before it."""
    all_readers: int
    """Readers ever."""
    from_copies: int
    """Bytes of copies or summaries that they read, all together."""
    from_originals: int
    """Bytes of originals and of corrections that they read."""
    user: str
    """Who asked last."""
    asked_at: int
    """When."""
    settled_at: int | None = None
    """When vacuum last took it into account; None: it has not yet."""


def _meets(interval: Interval, bucket: Bucket) -> bool:
    # Everything is meant to the very end, which no half-open interval holds.
    return interval == EVERYTHING or interval.meets(bucket.vs_min, bucket.vs_max)


def asked_to_record(asked: AskedReduction) -> dict[str, Any]:
    """The reading as a JSON object, which `asked_from_record` reads."""
    record: dict[str, Any] = {"start": asked.interval.start, "end": asked.interval.end}
    if asked.rates is None:
        return record | {"summary": asked.summary}
    rates = asked.rates
    values = sorted(rates.by_value.items(), key=lambda each: (each[0] is not None, each[0] or ""))
    return record | {
        "starts": list(rates.starts),
        "rates": list(rates.rates),
        "column": rates.column,
        "by_value": [list(each) for each in values],
    }


def asked_from_record(record: Mapping[str, Any], label: str) -> AskedReduction:
    """The reading in a record of `asked_to_record`."""
    interval = Interval(record["start"], record["end"])
    if "summary" in record:
        return AskedReduction(summary=record["summary"], interval=interval)
    rates = SamplingRates(
        tuple(record["starts"]),
        tuple(record["rates"]),
        record["column"],
        dict(record["by_value"]),
        label,
    )
    return AskedReduction(rates, interval=interval)
