"""Who has consumed which revisions."""

from __future__ import annotations

from errata.catalog import declarations, streams
from errata.catalog.database import Catalog
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_stream


def test_the_slowest_consumer_of_a_stream_counts(catalog: Catalog, ticks: Stream) -> None:
    declarations.apply_changes(catalog, Cause("apply"), write=[a_stream("other")], drop=[], summary={})
    with catalog.writing() as connection:
        assert streams.consumed_revision(connection, 1) is None
        streams.record_consumed(connection, 1, "quick", 9)
        streams.record_consumed(connection, 1, "slow", 0)
        streams.record_consumed(connection, 2, "quick", 3)
        assert (streams.consumed_revision(connection, 1), streams.consumed_revision(connection, 2)) == (0, 3)
        streams.record_consumed(connection, 1, "slow", 5)
        assert streams.consumed_revision(connection, 1) == 5
        streams.record_consumed(connection, 1, "slow", 4)
        assert streams.consumed_revision(connection, 1) == 5, "what was consumed may have been folded"
        streams.drop_consumer(connection, 1, "slow")
        assert (streams.consumed_revision(connection, 1), streams.consumed_revision(connection, 2)) == (9, 3)
        streams.drop_consumer(connection, 1, "quick")
        streams.drop_consumer(connection, 1, "nobody")
        assert (streams.consumed_revision(connection, 1), streams.consumed_revision(connection, 2)) == (None, 3)
