"""Compaction of a query's results: small buckets are merged, and masked results are removed.

Done by an evaluation as part of its commit, every `BUCKETS_PER_MERGE` evaluations or when there are many masks. Masks
that no longer concern any bucket go, and small buckets of masks keep only the latest mask of each result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from errata.archive.bucket_frames import read_buckets
from errata.archive.overlays import bucket_sources
from errata.archive.results import (
    ResultWriter,
    drop_masked,
    latest_masks,
    latest_rows,
    read_masks,
    read_masks_between,
    results_table,
)
from errata.archive.schemas import conform, feed_schema, result_schema
from errata.catalog import buckets
from errata.catalog.result_archives import ResultArchive
from errata.declare.site import Site
from errata.model.bucket import Bucket, NewBucket, Role, relevant_masks
from errata.model.results import EVALUATION, VS

SMALL_BUCKET_ROWS = 50_000
"""Rows below which a bucket is small."""

BUCKETS_PER_MERGE = 32
"""Evaluations between merges, and small buckets of masks at which a merge is due; half as many are merged."""

MASKED_SHARE = 0.1
"""Share of masked rows, estimated, from which a bucket is rewritten without them."""

REWRITES_PER_MERGE = 8
"""Buckets that are rewritten in one merge, at most: each is read whole."""


@dataclass
class MergedBuckets:
    """Buckets that are replaced, and the buckets that replace them."""

    gone: list[Bucket] = field(default_factory=list)
    into: list[NewBucket] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """By how many final results the count of rows changes, since masked ones are left out."""
        made = sum(each.rows for each in self.into if each.role is Role.BASE)
        return made - sum(each.rows for each in self.gone if each.role is Role.BASE)


def is_merge_due(of: ResultArchive, number: int, masks: Iterable[Bucket]) -> bool:
    """Whether the evaluation with this number is to merge: periodically, or because there are many masks. Corrections
    take numbers, too, and do not merge; the evaluation after one merges for it."""
    numbers = [number, *([of.last.number] if of.last.correction is not None else [])]
    return any(each % BUCKETS_PER_MERGE == 0 for each in numbers) or len(_small_buckets(masks)) >= BUCKETS_PER_MERGE


def merge_results(site: Site, of: ResultArchive, number: int, standing: Iterable[Bucket] = ()) -> MergedBuckets:
    """Merge what is due. `standing`: buckets of results beside the final ones, which stay as they are."""
    merge = _ResultMerge(site, of, number)
    merge.settled(standing)
    merge.small_ones(Role.FEED)
    merge.small_ones(Role.PARTS)
    merge.small_ones(Role.LINEAGE)
    return merge.done


class _ResultMerge:
    """A merge of the buckets of a query, for the evaluation with a number."""

    def __init__(self, site: Site, of: ResultArchive, number: int) -> None:
        self._site, self._of, self._number = site, of, number
        self._writer = ResultWriter(site.warehouse, of.name, of.shape.timed)
        self.done = MergedBuckets()

    def _there(self, role: Role) -> list[Bucket]:
        found = buckets.visible_buckets(self._site.catalog, self._of.stream_id, self._of.last.commit_id, role=role)
        # Buckets that have aged out since are still visible as of that commit.
        return [each for each in found if each.removed_in is None]

    def settled(self, standing: Iterable[Bucket]) -> None:
        """Final results and masks: small buckets are merged, and buckets with many masked results are rewritten. Masks
        that no bucket needs go."""
        base, masks = self._there(Role.BASE), self._there(Role.MASK)
        small = _small_buckets(base)
        merging = small if len(small) >= BUCKETS_PER_MERGE // 2 else []
        if merging:
            self._replaced(merging, self._read([*merging, *relevant_masks(masks, merging)]))
        rest = [each for each in base if each not in merging]
        worn = _masked_buckets(rest, masks)
        for each in worn:
            self._replaced([each], self._without_masked(each, masks))
        self._masks(masks, [*(each for each in rest if each not in worn), *standing])

    def _replaced(self, gone: Sequence[Bucket], rows: pa.Table) -> None:
        self.done.gone += gone
        self.done.into += self._writer.write(Role.BASE, rows, unmasked=self._number - 1)

    def _read(self, some: Sequence[Bucket]) -> pa.Table:
        return results_table(self._site.catalog, self._site.warehouse, self._of.shape, some)

    def _without_masked(self, bucket: Bucket, masks: Sequence[Bucket]) -> pa.Table:
        catalog, warehouse, shape = self._site.catalog, self._site.warehouse, self._of.shape
        rows = read_buckets(catalog, warehouse, result_schema(shape), [bucket])
        some = relevant_masks(masks, [bucket])
        return drop_masked(
            rows, read_masks_between(catalog, warehouse, shape, some, bucket.vs_min, bucket.vs_max), shape
        )

    def _masks(self, masks: Sequence[Bucket], staying: Sequence[Bucket]) -> None:
        """Masks that the remaining buckets need: small buckets of them are merged."""
        needed = relevant_masks(masks, staying)
        small = _small_buckets(needed)
        self.done.gone += [each for each in masks if each not in needed]
        if len(small) >= BUCKETS_PER_MERGE // 2:
            shape = self._of.shape
            told = read_masks(self._site.catalog, self._site.warehouse, shape, small)
            self.done.gone += small
            self.done.into += self._writer.write(Role.MASK, latest_masks(_masks_of_results(told, staying), shape))

    def small_ones(self, role: Role) -> None:
        """Merge small buckets of a role without leaving out rows."""
        small = _small_buckets(self._there(role))
        if len(small) >= BUCKETS_PER_MERGE // 2:
            self.done.gone += small
            self.done.into += self._writer.write(role, self._as_kept(role, small))

    def _as_kept(self, role: Role, some: Sequence[Bucket]) -> pa.Table:
        catalog, warehouse = self._site.catalog, self._site.warehouse
        if role is Role.FEED:
            return read_buckets(catalog, warehouse, feed_schema(self._of.shape), some)
        read = [each.read(warehouse) for each in bucket_sources(catalog, some)]
        whole = pa.concat_tables([conform(each, read[0].schema, missing_as_null=False) for each in read])
        return latest_rows(whole, self._of.shape) if role is Role.LINEAGE else whole


def _small_buckets(some: Iterable[Bucket]) -> list[Bucket]:
    return [each for each in some if each.rows < SMALL_BUCKET_ROWS]


def _masked_buckets(results: Sequence[Bucket], masks: Iterable[Bucket]) -> list[Bucket]:
    """The buckets to rewrite, since by the index about MASKED_SHARE or more of their rows are masked; worst first."""
    masked: dict[int, float] = defaultdict(float)
    for mask in masks:
        lying = {each.bucket_id: _rows_under_masks(each, mask) for each in results if mask.may_mask(each)}
        whole = sum(lying.values())
        for bucket_id, rows in lying.items():
            masked[bucket_id] += mask.rows * rows / whole
    worn = [each for each in results if masked[each.bucket_id] >= MASKED_SHARE * each.rows]
    return sorted(worn, key=lambda each: -masked[each.bucket_id] / each.rows)[:REWRITES_PER_MERGE]


def _rows_under_masks(results: Bucket, masks: Bucket) -> float:
    """About how many results of a bucket lie in the range of a bucket of masks."""
    low, high = max(masks.vs_min, results.vs_min), min(masks.vs_max, results.vs_max)
    return results.rows * (high - low + 1) / (results.vs_max - results.vs_min + 1)


def _masks_of_results(masks: pa.Table, results: Iterable[Bucket]) -> pa.Table:
    """The masks that may be of results in these buckets, by the results' beginnings."""
    masks = masks.sort_by(VS)
    begins, runs = masks[VS].to_numpy(), masks[EVALUATION].to_numpy()
    needed = np.zeros(masks.num_rows, np.bool_)
    for each in results:
        where = slice(np.searchsorted(begins, each.vs_min), np.searchsorted(begins, each.vs_max, side="right"))
        needed[where] |= runs[where] > each.floor
    return masks.filter(pa.array(needed))
