"""The columns of what a merge step gives out, the same for every algorithm."""

from __future__ import annotations

import pyarrow as pa

from errata.intake.types import arrow_schema
from errata.merge.elements import FEED, GIVEN, POS, element_schema
from errata.merge.step import BATCH, CHOSEN, OP, REASON
from errata.model.stream import Stream

_PLACE = [pa.field(BATCH, pa.int64()), pa.field(POS, pa.int64())]


def insert_schema(stream: Stream) -> pa.Schema:
    """The columns of `MergeStep.inserts`."""
    return pa.schema([*arrow_schema(stream), *_PLACE])


def correction_schema(stream: Stream) -> pa.Schema:
    """The columns of `MergeStep.corrections`."""
    own = [pa.field(OP, pa.string()), pa.field(GIVEN, pa.string())]
    return pa.schema([*own, *arrow_schema(stream), *_PLACE])


def behind_schema(stream: Stream) -> pa.Schema:
    """The columns of `MergeStep.behind`."""
    return element_schema(stream)


def refused_schema() -> pa.Schema:
    """The columns of `MergeStep.refused`."""
    return pa.schema([pa.field(FEED, pa.int16()), pa.field(POS, pa.int64()), pa.field(REASON, pa.string())])


def disagreement_schema(stream: Stream) -> pa.Schema:
    """The columns of `MergeStep.disagreements`."""
    own = [pa.field(FEED, pa.int16()), pa.field(CHOSEN, pa.bool_()), *_PLACE]
    return pa.schema([*own, *arrow_schema(stream)])


def agreed_schema(stream: Stream) -> pa.Schema:
    """The columns of `MergeStep.agreed`."""
    whole = arrow_schema(stream)
    return pa.schema([whole.field(name) for name in stream.key])
