"""Changing a strategy is a commit of its own, on either database, and takes away segments that lack its conditions."""

from __future__ import annotations

from pathlib import Path
from random import Random

from errata.catalog import commits, match_segments, registered
from errata.catalog.buckets import visible_buckets
from errata.catalog.match_segments import bucket_key
from errata.catalog.streams import stream_state
from errata.model.registered import ResultStrategy
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, set_strategy
from fixtures.registered.archives import History

KEPT = "SELECT no FROM quotes WHERE size >= 0 BEGIN (NOW - '10 minutes') END (NOW)"
UNKEPT = "SELECT no FROM quotes WHERE size >= 1 BEGIN (NOW - '10 minutes') END (NOW)"
LATER = "SELECT no FROM quotes WHERE size >= 2 BEGIN (NOW - '10 minutes') END (NOW)"


def test_segments_that_lack_a_condition_are_taken_away_when_it_is_kept(tmp_path: Path, catalog_url: str) -> None:
    history = History.begin(tmp_path, catalog_url, Random(1))
    site, catalog = history.house.site, history.house.catalog
    history.arrive("quotes")
    (kept,) = register(site, [KEPT], owner="me")
    materialise(site)
    (unkept,) = register(site, [UNKEPT], owner="me", strategy=ResultStrategy.NONE)
    materialise(site)
    (later,) = register(site, [LATER], owner="me")
    materialise(site)

    def ranges() -> set[tuple[int, int]]:
        stream_id = stream_state(catalog, "quotes").stream_id
        keys = [bucket_key(each) for each in visible_buckets(catalog, stream_id, commits.newest_commit(catalog))]
        found = match_segments.find_segments(catalog, keys)
        return {(each.first, each.last) for segments in found.values() for each in segments}

    (first,), (second,), (third,) = kept.conjunctions, unkept.conjunctions, later.conjunctions
    assert ranges() == {(first, first), (second, second), (third, third)}
    assert registered.unkept_conjunctions(catalog) == {second}
    before = commits.newest_commit(catalog)
    assert set_strategy(site, unkept.handle, ResultStrategy.COMPLETE) == before + 1
    assert registered.unkept_conjunctions(catalog) == set()
    assert ranges() == {(first, first)}
    materialise(site)
    assert ranges() == {(first, first), (second, third)}
    assert set_strategy(site, later.handle, ResultStrategy.NONE) == before + 2
    assert ranges() == {(first, first), (second, third)}
    with RegisteredReader(site) as reader:
        assert [each.strategy for each in map(reader.query, (kept.handle, unkept.handle, later.handle))] == [
            ResultStrategy.PARTIAL,
            ResultStrategy.COMPLETE,
            ResultStrategy.NONE,
        ]
    assert [each.number for each in registered.live_registrations(catalog, strategy=ResultStrategy.COMPLETE)] == [
        unkept.number
    ]
    catalog.close()
