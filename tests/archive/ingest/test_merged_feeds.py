"""Files of several feeds become one stream: merged, appended, corrected, held back, released and stable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from errata.archive.ingest import batch_writer
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog import feeds, streams
from errata.catalog.feed_commits import attach_feed, detach_feed
from errata.errors import UsageError
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.feed import EmitPolicy, Feed, FeedOrder, FeedProperties, MergeAlgorithm, MergePolicy
from errata.model.time import LOWEST
from fixtures.flows import Builder
from fixtures.quotes import quotes, record, row, rows, say, stable, stable_point, standing, write

CAUSE = Cause("feeds")


def test_what_two_feeds_say_is_there_once(a_house: Builder) -> None:
    house = a_house(quotes())
    first = say(house, "a", row(1), row(2))
    assert (first.counts.read, first.counts.appended, first.counts.held) == (2, 2, 0)
    second = say(house, "b", row(2), row(3), stable(3))
    assert (second.counts.read, second.counts.appended, second.counts.dropped) == (2, 1, 1)
    assert rows(house) == [("x", 1, 1.0, None), ("x", 2, 1.0, None), ("x", 3, 1.0, None)]
    assert stable_point(house) == 3
    assert record(house).leader == "b"
    assert (standing(house)["a"].rows, standing(house)["b"].repeats, standing(house)["b"].stable) == (2, 1, 3)


def test_an_adjust_is_a_revision_of_the_end(a_house: Builder) -> None:
    house = a_house(quotes())
    say(house, "a", row(1, until=5), row(2))
    report = say(house, "a", {"_op": "adjust", "who": "x", "at": 1, "until": 9}, stable(6))
    assert report.counts.pending == 1
    assert rows(house) == [("x", 1, 1.0, 9), ("x", 2, 1.0, None)]
    say(house, "a", {"_op": "delete", "who": "x", "at": 1})
    assert standing(house)["a"].refused == 1
    say(house, "b", row(2), {"_op": "delete", "who": "x", "at": 2})
    assert rows(house) == [("x", 1, 1.0, 9), ("x", 2, 1.0, None)]


def test_rows_that_are_held_keep_the_batch_that_said_them(a_house: Builder) -> None:
    house = a_house(quotes(policy=MergePolicy(emit=EmitPolicy.HALF_FROZEN)))
    first = say(house, "a", row(1), row(2))
    assert (first.counts.appended, first.counts.held) == (0, 2)
    assert house.stored("quotes") == []
    assert len(house.stored("quotes", role=Role.MERGE)) == 1
    second = say(house, "b", stable(2), row(3))
    assert (second.counts.read, second.counts.appended, second.counts.held) == (1, 1, 0)
    [released] = house.stored("quotes")
    assert released.batch_id == first.batch_id
    third = say(house, "b", stable(4))
    assert (third.counts.read, third.counts.appended, third.counts.held) == (0, 2, -2)
    assert [each.batch_id for each in house.stored("quotes")] == [first.batch_id, first.batch_id, second.batch_id]


def test_state_is_replaced_and_rows_that_are_frozen_leave_it(a_house: Builder) -> None:
    house = a_house(quotes(end=None))
    say(house, "a", row(1), row(2), row(3))
    [before] = house.stored("quotes", role=Role.MERGE)
    assert before.rows == 3
    say(house, "a", stable(3))
    [after] = house.stored("quotes", role=Role.MERGE)
    assert after.rows == 1
    say(house, "a", stable(9))
    assert [each.rows for each in house.stored("quotes", role=Role.MERGE)] == [0]


def test_gaps_are_filled_late_from_the_archive_on(a_house: Builder) -> None:
    house = a_house(quotes(end=None))
    say(house, "a", row(1), row(3), stable(9))
    report = say(house, "b", row(1), row(2), row(3, price=7.0))
    assert (report.counts.dropped, report.counts.pending, report.counts.replaced) == (1, 1, 1)
    assert [each[1:3] for each in rows(house)] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    stream_id = streams.stream_state(house.catalog, "quotes").stream_id
    [found] = feeds.disagreements_of(house.catalog, stream_id)
    said = {value["feed"]: (value["row"]["price"], value["chosen"]) for value in found.values}
    assert (found.key, found.chosen, found.policy) == ({"who": "x", "at": "3"}, "a", "archived")
    assert said == {"a": ("1", True), "b": ("7", False)}


def test_what_waits_to_be_applied_counts_for_late_feeds(a_house: Builder) -> None:
    house = a_house(quotes())
    say(house, "a", row(1), row(2))
    say(house, "a", {"_op": "adjust", "who": "x", "at": 1, "until": 5}, stable(7))
    report = say(house, "b", row(1, until=5), row(1, until=5, who="y"))
    assert (report.counts.dropped, report.counts.pending) == (1, 1), "the end that waits is what is there"
    stream_id = streams.stream_state(house.catalog, "quotes").stream_id
    assert feeds.disagreements_of(house.catalog, stream_id) == []
    assert rows(house) == [("x", 1, 1.0, 5), ("y", 1, 1.0, 5), ("x", 2, 1.0, None)]


def test_feeds_that_disagree_are_recorded_and_agree_again(a_house: Builder) -> None:
    house = a_house(quotes(end=None))
    say(house, "a", row(1, price=1.0))
    say(house, "b", row(1, price=2.0))
    stream_id = streams.stream_state(house.catalog, "quotes").stream_id
    [found] = feeds.disagreements_of(house.catalog, stream_id)
    where = [(value["feed"], Path(value["file"]).name, value["line"], value["chosen"]) for value in found.values]
    assert sorted(where) == [("a", "0.jsonl", 1, True), ("b", "1.jsonl", 1, False)]
    say(house, "b", {"_op": "adjust", "who": "x", "at": 1, "price": 1.0})
    assert feeds.disagreements_of(house.catalog, stream_id) == []
    assert [each[1:3] for each in rows(house)] == [(1, 1.0)]


def test_a_person_has_the_last_word_about_a_row(a_house: Builder, tmp_path: Path) -> None:
    house = a_house(quotes())
    say(house, "a", row(1, price=1.0), row(2))
    say(house, "b", row(1, price=2.0))
    stream_id = streams.stream_state(house.catalog, "quotes").stream_id
    assert len(feeds.disagreements_of(house.catalog, stream_id)) == 1
    lines = [{"who": "x", "at": 1, "price": 3.0}, row(7, _op="insert"), row(9)]
    path = write(tmp_path / "fix.jsonl", lines)
    report = ingest_batch(house.site, IngestRequest("quotes", [str(path)], default_op=Op.REPLACE))
    assert (report.counts.pending, report.counts.quarantined) == (2, 1)
    assert "come from a feed" in report.bad[0].reason
    assert feeds.disagreements_of(house.catalog, stream_id) == []
    assert rows(house) == [("x", 1, 3.0, None), ("x", 2, 1.0, None)]
    say(house, "a", {"_op": "adjust", "who": "x", "at": 1, "until": 5}, stable(6))
    assert rows(house) == [("x", 1, 3.0, 5), ("x", 2, 1.0, None)], "the feed has adjusted the end alone"


def test_a_row_that_comes_back_before_its_deletion_is_applied(a_house: Builder) -> None:
    house = a_house(quotes())
    say(house, "a", row(1))
    say(house, "a", {"_op": "delete", "who": "x", "at": 1})
    say(house, "a", row(1, price=5.0))
    assert rows(house) == [("x", 1, 5.0, None)]


def test_ordered_feeds_need_no_state_until_one_breaks_its_word(a_house: Builder) -> None:
    strict = FeedProperties(order=FeedOrder.STRICT, ties_fixed=True, adjusts=False, complete=True)
    house = a_house(quotes(Feed("a", properties=strict), Feed("b", properties=strict), end=None))
    say(house, "a", row(1), row(2))
    say(house, "b", row(1), row(2), row(3))
    assert record(house).algorithm is MergeAlgorithm.R0
    assert [each.rows for each in house.stored("quotes", role=Role.MERGE)] == [0]
    report = say(house, "a", row(3), row(5), row(4))
    assert report.counts.appended == 2
    assert record(house).algorithm is not MergeAlgorithm.R0
    assert "broke" in record(house).reason
    [broken] = standing(house)["a"].broken
    assert (Path(str(broken["file"])).name, broken["line"]) == ("2.jsonl", 3)
    say(house, "b", row(4), row(5), row(6))
    assert [each[1] for each in rows(house)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("small", [batch_writer.SMALL_BYTES, -1], ids=["here", "by Spark"])
def test_a_feed_that_is_attached_again_says_everything_anew(
    small: int, a_house: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = a_house(quotes())
    say(house, "a", row(1), row(2))
    say(house, "b", row(1), row(2), row(3))
    monkeypatch.setattr(batch_writer, "SMALL_BYTES", small)
    detach_feed(house.catalog, "quotes", "b", CAUSE)
    attach_feed(house.catalog, "quotes", "b", CAUSE)
    assert standing(house)["b"].stable == LOWEST
    report = say(house, "b", row(1), stable(5))
    assert (report.counts.read, report.counts.dropped) == (1, 1), "it repeats what feed a has said"
    gone = say(house, "a", {"_op": "delete", "who": "x", "at": 2}, stable(6))
    assert gone.counts.pending == 1, "feed b has not said it since it came back"
    assert [each[1] for each in rows(house)] == [1, 3]
    say(house, "a", {"_op": "delete", "who": "x", "at": 1}, stable(7))
    assert standing(house)["a"].refused == 1


def test_a_batch_without_its_feed_is_refused(a_house: Builder, tmp_path: Path) -> None:
    house = a_house(quotes())
    path = str(write(tmp_path / "x.jsonl", [row(1)]))
    with pytest.raises(UsageError, match="of none"):
        ingest_batch(house.site, IngestRequest("quotes", [path]))
    with pytest.raises(UsageError, match="unknown feed"):
        ingest_batch(house.site, IngestRequest("quotes", [path], feed="c"))


def test_the_same_file_may_come_from_two_feeds(a_house: Builder, tmp_path: Path) -> None:
    house = a_house(quotes())
    path = str(write(tmp_path / "x.jsonl", [row(1)]))
    for feed, dropped in (("a", 0), ("b", 1)):
        report = ingest_batch(house.site, IngestRequest("quotes", [path], feed=feed))
        assert (report.already_ingested, report.counts.dropped) == (False, dropped)
    assert ingest_batch(house.site, IngestRequest("quotes", [path], feed="b")).already_ingested


def test_a_key_without_the_order_field_is_merged_without_spark(a_house: Builder) -> None:
    house = a_house(replace(quotes(), key=("who",)))
    say(house, "a", row(1, until=9), row(2, until=9, who="y"))
    report = say(house, "b", row(1, until=9), {"_op": "adjust", "who": "y", "at": 2, "until": 5})
    assert (report.counts.dropped, report.counts.quarantined) == (1, 1)
    assert rows(house) == [("x", 1, 1.0, 9), ("y", 2, 1.0, 9)]
