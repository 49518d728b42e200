"""The sums over the bucket index and the names in the ledger, on both databases."""

from __future__ import annotations

from errata.catalog import activity, bucket_writes, buckets, ledger, streams
from errata.catalog.activity import ArchiveSize
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.stream_commits import commit_append
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket


def test_what_is_live_is_summed_and_what_is_gone_apart(catalog: Catalog, ticks: Stream) -> None:
    assert (activity.archive_sizes(catalog), activity.superseded_sizes(catalog)) == ({}, {})
    inline = a_bucket(30, 40, rows=5, path=None, data=b"x" * 7, size=7)
    with catalog.writing() as connection:
        bucket_writes.add_buckets(
            connection, 1, 1, BucketAddition([a_bucket(0, 1, rows=2), a_bucket(2, 9, rows=3), inline])
        )
    oldest = buckets.visible_buckets(catalog, 1, 1)[0]
    with catalog.writing() as connection:
        bucket_writes.remove_buckets(connection, [oldest.bucket_id], 2)
    assert activity.archive_sizes(catalog) == {(1, Role.BASE): ArchiveSize(2, 8, 107, 1, 2, 40)}
    assert activity.superseded_sizes(catalog) == {1: (1, 100)}


def test_files_are_known_by_name_and_size(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    commit_append(catalog, basis, a_batch("monday"), Cause("append"))
    assert ledger.known_files(catalog, basis.stream_id, ["monday.csv", "tuesday.csv"]) == {("monday.csv", 10, 0)}
    assert ledger.known_files(catalog, basis.stream_id + 1, ["monday.csv"]) == set()
