"""Parts of summaries as buckets: what a base bucket adds to each window and group, computed from its stored rows.

Parts are a pure fact of the bucket: neither overlays nor ages touch them, so they are right for as long as the bucket
itself is visible, and they become visible and invisible with it. What overlays change is computed on reading, window by
window (`reduce.summaries`). A bucket of parts has the ranges of its original, and names the definition that its values
follow from by its digest, in the place of the groups' bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

import pyarrow as pa

from errata.archive.approximation_parts import approximation_parts
from errata.archive.bucket_files import NOT_INLINE, parquet_bytes, store_rows
from errata.archive.partials import partial_aggregates
from errata.declare.warehouse import Warehouse
from errata.language.summaries import SummaryForm, summary_forms
from errata.model.bucket import MAX_INLINE_BYTES, Bucket, Groups, NewBucket, Role
from errata.model.reduction import SummaryTrigger
from errata.model.stream import Stream

_CACHED_STREAMS = 16


def digest_of(parts: Bucket) -> str | None:
    """The digest of the definition that a bucket of parts follows."""
    return parts.groups.low


def parts_by_original(parts: Iterable[Bucket], digest: str) -> dict[int, Bucket]:
    """The buckets of parts that follow a definition, by the id of the base bucket that they were made from."""
    return {each.original: each for each in parts if each.original is not None and digest_of(each) == digest}


def eager_summaries(
    stream: Stream, warehouse: Warehouse, rows: pa.Table, original: NewBucket, *, inline: bool
) -> list[NewBucket]:
    """The parts that are stored with a new base bucket of these rows: those of all summaries that are kept from the
    append on. Sketches are left to vacuum."""
    if not stream.reduced.summaries:
        return []
    eager = [each for each in cached_forms(stream) if each.declaration.when is SummaryTrigger.APPEND]
    wanted = {digest: form for form in eager for digest in in_process_digests(form)}
    return [store_row_parts(form, digest, warehouse, rows, original, inline=inline) for digest, form in wanted.items()]


def in_process_digests(form: SummaryForm) -> list[str]:
    """The parts of a summary that are computed from rows in memory: all but sketches."""
    return [form.digest, *([form.approximation_digest] if form.approximations else [])]


def store_row_parts(
    form: SummaryForm, digest: str, warehouse: Warehouse, rows: pa.Table, original: NewBucket | Bucket, *, inline: bool
) -> NewBucket:
    """The exact parts of a base bucket's rows, or their approximations, stored."""
    parts = partial_aggregates(form, rows) if digest == form.digest else approximation_parts(form, rows)
    return store_parts(form.stream, warehouse, parts, digest, original, inline=inline)


def store_parts(
    stream: Stream, warehouse: Warehouse, parts: pa.Table, digest: str, original: NewBucket | Bucket, *, inline: bool
) -> NewBucket:
    """Parts of a base bucket, stored inline or as a file of a new name."""
    low, high = original.vs_min, original.vs_max
    return store_rows(
        warehouse,
        partial(warehouse.new_name, stream, low, Role.SUMMARY.value),
        parts,
        partial(NewBucket, Role.SUMMARY, parts.num_rows, vs_min=low, vs_max=high, groups=Groups(digest, digest)),
        MAX_INLINE_BYTES if inline else NOT_INLINE,
        parquet_bytes,
    )


@lru_cache(maxsize=_CACHED_STREAMS)
def _forms(stream: _ByIdentity) -> Sequence[SummaryForm]:
    return summary_forms(stream.stream)


class _ByIdentity:
    """A declaration as a key: declarations hold mappings, which have no hash."""

    __slots__ = ("stream",)

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.stream is other.stream

    def __hash__(self) -> int:
        return id(self.stream)


def cached_forms(stream: Stream) -> Sequence[SummaryForm]:
    """The summaries of a stream, planned; those of a declaration in use are planned once."""
    return _forms(_ByIdentity(stream))
