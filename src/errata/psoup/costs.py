"""What registered queries cost: rows matched, bytes held, time of matching and of invocation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.catalog import commits, match_segments, streams
from errata.catalog.match_segments import bucket_key
from errata.declare.site import Site
from errata.model.registered import RegisteredQuery
from errata.psoup.segments import read_segment

ENTRY_BYTES = 24
"""Bytes of a conjunction in a segment besides its row set."""


def with_costs(site: Site, queries: Sequence[RegisteredQuery]) -> list[RegisteredQuery]:
    """The queries with what the match segments of the present buckets hold for them. What several queries share counts
    for each of them; the time that a segment took counts for its conjunctions in equal parts."""
    amounts = _conjunction_amounts(site, {source.stream for each in queries for source in each.plan.sources})
    found = []
    for each in queries:
        rows, size, micros = sum((amounts[number] for number in set(each.conjunctions)), np.zeros(3)).astype(int)
        cost = replace(each.cost, rows=int(rows), size=int(size), matching_micros=int(micros))
        found.append(replace(each, cost=cost))
    return found


def _conjunction_amounts(site: Site, names: Collection[str]) -> defaultdict[int, np.ndarray]:
    """Of each conjunction the rows, bytes and microseconds in the segments of the streams' present buckets."""
    amounts: defaultdict[int, np.ndarray] = defaultdict(lambda: np.zeros(3))
    commit_id = commits.newest_commit(site.catalog)
    for state in streams.stream_states(site.catalog, commit_id):
        if state.stream.name not in names:
            continue
        keys = list(map(bucket_key, candidate_buckets(site.catalog, ArchiveScan(state, commit_id)).all))
        for segments in match_segments.find_segments(site.catalog, keys).values():
            for segment in segments:
                content = read_segment(site, segment)
                if content is None or not len(content.conjunctions):
                    continue
                share = segment.micros / len(content.conjunctions)
                sizes, counts = content.sizes + ENTRY_BYTES, np.maximum(content.counts, 0)
                for number, rows, size in zip(content.conjunctions.tolist(), counts, sizes, strict=True):
                    amounts[number] = amounts[number] + (rows, size, share)
    return amounts
