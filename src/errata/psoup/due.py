"""What is to be matched: asked of the catalog alone, so that a scheduler starts a job only where there is work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.catalog import commits, match_segments, registered, registered_views, streams
from errata.catalog.match_segments import bucket_key
from errata.declare.site import Site


@dataclass(frozen=True, slots=True)
class DueMatching:
    """What a run of `materialise` would do."""

    streams: Sequence[str]
    """Streams with a bucket that has not been matched with every query in force whose matches are kept."""
    views: bool
    """Whether views are as of an earlier commit than the newest one."""

    def __bool__(self) -> bool:
        return bool(self.streams) or self.views


def due_matching(site: Site) -> DueMatching:
    """What is to be matched, as of the newest commit."""
    catalog = site.catalog
    commit_id = commits.newest_commit(catalog)
    last = registered.kept_conjunction_streams(catalog)
    due = []
    for state in streams.stream_states(catalog, commit_id):
        if state.stream_id not in last:
            continue
        keys = [bucket_key(each) for each in candidate_buckets(catalog, ArchiveScan(state, commit_id)).all if each.rows]
        covered = match_segments.covered_to(catalog, keys)
        if any(covered.get(key, (0, 0))[0] < last[state.stream_id] for key in keys):
            due.append(state.stream.name)
    return DueMatching(due, registered_views.views_are_behind(catalog, commit_id))
