"""Who has consumed which revisions."""

from __future__ import annotations

from errata.catalog import consumers, streams
from errata.catalog.open import Catalog
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_stream


def test_the_slowest_consumer_of_a_stream_counts(catalog: Catalog, ticks: Stream) -> None:
    streams.apply_changes(catalog, Cause("apply"), write=[a_stream("other")], drop=[], summary={})
    with catalog.writing() as connection:
        assert consumers.consumed(connection, 1) is None
        consumers.note(connection, 1, "quick", 9)
        consumers.note(connection, 1, "slow", 0)
        consumers.note(connection, 2, "quick", 3)
        assert (consumers.consumed(connection, 1), consumers.consumed(connection, 2)) == (0, 3)
        consumers.note(connection, 1, "slow", 5)
        assert consumers.consumed(connection, 1) == 5
        consumers.note(connection, 1, "slow", 4)
        assert consumers.consumed(connection, 1) == 5, "what was consumed may have been folded"
        consumers.forget(connection, 1, "slow")
        assert (consumers.consumed(connection, 1), consumers.consumed(connection, 2)) == (9, 3)
        consumers.forget(connection, 1, "quick")
        consumers.forget(connection, 1, "nobody")
        assert (consumers.consumed(connection, 1), consumers.consumed(connection, 2)) == (None, 3)
