"""The history of a key: every version of its rows, whatever was compacted, vacuumed, aged out or undone since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from errata.archive.revisions.apply import apply_revisions
from errata.archive.revisions.undo import undo_batch
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.vacuum import run_vacuum
from errata.errors import ErrataError, RefusedError, UsageError
from errata.model.batch import Op
from errata.model.stream import Retention
from errata.model.time import DAY
from errata.read.history import RowHistory, VersionOrigin, row_history
from fixtures.flows import Builder, House, a_feed, canonical_row
from fixtures.oracle import history as oracle
from fixtures.oracle.revision import Row
from fixtures.sources import Line, Source, record

FEED = a_feed(moment="bigint", bucket_rows=5, slack=5, max_ahead=None)


def line(at: int, who: str, price: float = 1.0, op: Op | None = None, /, **old: object) -> Line:
    return Line({"at": at, "who": who, "price": price}, op, None, old)


def took(house: House, batch_id: str, *lines: Line) -> None:
    house.append([Source(f"{batch_id}.jsonl", lines)], batch_id=batch_id, again=True)


def told(found: RowHistory) -> list[tuple[object, ...]]:
    return [
        (
            each.number,
            each.row,
            each.origin.value,
            each.revision,
            each.batch_id,
            *map(each.values.get, ("who", "price")),
        )
        for each in found.versions
    ]


@pytest.fixture
def house(a_house: Builder) -> House:
    """One row that is changed, gets another key, is deleted, and comes again."""
    house = a_house(FEED)
    took(house, "A", *(line(at, "a", float(at)) for at in range(20)))
    took(house, "B", line(3, "a", 99.0, Op.REPLACE), line(3, "q", 98.0, Op.REPLACE, who="a"))
    apply_revisions(house.site)
    took(house, "C", line(3, "q", 0.0, Op.DELETE))
    apply_revisions(house.site)
    took(house, "D", line(3, "q", 7.0))
    apply_revisions(house.site)
    return house


STORY = [
    (1, 1, "inserted", None, "A", "a", 3.0),
    (2, 1, "replaced", 1, "B", "a", 99.0),
    (3, 1, "replaced", 2, "B", "q", 98.0),
    (4, 1, "deleted", 3, "C", "q", 98.0),
    (5, 2, "inserted late", 4, "D", "q", 7.0),
]


def test_a_story_from_its_last_key_and_from_its_first(house: House) -> None:
    assert told(row_history(house.site, "feed", {"at": "3", "who": "q"})) == STORY
    assert told(row_history(house.site, "feed", {"at": "3", "who": "a"})) == STORY[:4]


def test_where_each_version_came_from(house: House) -> None:
    first, second, third, fourth, last = row_history(house.site, "feed", {"who": "q", "at": "3"}).versions
    assert [each.made_by.commit_id for each in (first, second, third, fourth, last)] == [2, 4, 4, 6, 8]
    assert [each.ended_by and each.ended_by.commit_id for each in (first, second, third, fourth, last)] == [
        4,
        4,
        6,
        None,
        None,
    ]
    assert [(each.file.rpartition("/")[2], each.line) for each in (first, third)] == [("A.jsonl", 4), ("B.jsonl", 2)]
    assert (second.changed, third.changed, fourth.changed) == (["price"], ["who", "price"], [])
    batch = third.batch_commit
    assert (batch.commit_id, batch.cause.flow, third.made_by.cause.flow) == (3, "append", "revise")


def test_a_row_that_nothing_has_corrected(house: House) -> None:
    (only,) = row_history(house.site, "feed", {"at": "7", "who": "a"}).versions
    assert (only.origin, only.revision, only.batch_id, only.line, only.ended_by) == (
        VersionOrigin.INSERTED,
        None,
        "A",
        8,
        None,
    )


def test_nothing_is_lost_by_compaction_and_vacuum(house: House) -> None:
    compact_streams(house.site, everything=True)
    house.clock.advance(100 * DAY)
    assert run_vacuum(house.site).commits
    test_a_story_from_its_last_key_and_from_its_first(house)
    (only,) = row_history(house.site, "feed", {"at": "7", "who": "a"}).versions
    assert (only.batch_id, only.line) == ("A", 8)


def test_an_undo_goes_on_with_the_same_row(house: House) -> None:
    undo_batch(house.site, "feed", "D")
    undo_batch(house.site, "feed", "C")
    found = row_history(house.site, "feed", {"at": "3", "who": "q"})
    assert told(found) == [
        *STORY,
        (6, 2, "deleted", 5, "undo-D", "q", 7.0),
        (7, 1, "brought back", 6, "undo-C", "q", 98.0),
    ]
    assert [each.undoes for each in found.versions] == [None] * 5 + ["D", "C"]
    assert (found.versions[-1].file, found.versions[-1].line) == ("", 0)


def test_what_is_pending_is_told(house: House) -> None:
    took(house, "E", line(3, "q", 8.0, Op.REPLACE), line(7, "q", 8.0, Op.REPLACE, at=3), line(9, "q", 1.0, Op.REPLACE))
    found = row_history(house.site, "feed", {"at": "3", "who": "q"})
    assert told(found) == STORY
    assert [(each.revision, each.op, each.batch_id, each.line) for each in found.waiting] == [
        (5, Op.REPLACE, "E", 1),
        (6, Op.REPLACE, "E", 2),
    ]
    (coming,) = row_history(house.site, "feed", {"at": "7", "who": "q"}).waiting
    assert coming.revision == 6


def test_a_row_that_has_been_aged_out(a_house: Builder) -> None:
    house = a_house(replace(FEED, retention=Retention(span=10), bucket_rows=4))
    took(house, "A", *(line(at, "a") for at in range(12)))
    took(house, "B", line(1, "a", 2.0, Op.REPLACE))
    apply_revisions(house.site)
    took(house, "C", line(30, "a"))
    commit = age_out(house.site)[0].commit_id
    found = row_history(house.site, "feed", {"at": "1", "who": "a"})
    assert found.aged
    assert [(each.batch_id, each.aged, each.ended_by and each.ended_by.commit_id) for each in found.versions] == [
        ("A", False, 4),
        ("B", True, commit),
    ]
    with pytest.raises(ErrataError, match=r"(?s)no row of the key at=2,who=a is known.*aged out"):
        row_history(house.site, "feed", {"at": "2", "who": "a"})


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ({"at": "1"}, "the key says nothing of who"),
        ({"at": "1", "whom": "a"}, r"(?s)unknown key column 'whom'.*did you mean who"),
        ({"at": "soon", "who": "a"}, "'soon' is not a bigint"),
    ],
)
def test_keys_that_are_none(house: House, key: Mapping[str, str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        row_history(house.site, "feed", key)


def test_what_came_to_nothing_is_not_in_the_way_of_an_undo(a_house: Builder) -> None:
    house = a_house(replace(FEED, key=("who",), group=(), slack=2))
    took(house, "A", line(0, "a"), line(1, "b"), line(9, "z"))
    # Of one row the batch makes another, of the other in the end what it was.
    took(house, "B", line(0, "a", 2.0, Op.DELETE), line(1, "b", 2.0, Op.REPLACE), line(1, "b", 1.0, Op.REPLACE))
    apply_revisions(house.site)
    took(house, "C", line(1, "b", 3.0, Op.REPLACE))
    apply_revisions(house.site)
    undo_batch(house.site, "feed", "B")
    assert told(row_history(house.site, "feed", {"who": "b"}))[-1][3:] == (4, "C", "b", 3.0)
    assert told(row_history(house.site, "feed", {"who": "a"}))[-1][2:] == ("brought back", 5, "undo-B", "a", 1.0)
    # Nor is it in the way of the batch before: what that has made of the row is what stands.
    undo_batch(house.site, "feed", "C")
    undo_batch(house.site, "feed", "A")
    assert house.scan() == []


AT, WHO = st.integers(0, 3), st.sampled_from("abc")


@st.composite
def lines(draw: st.DrawFn, stream: Any) -> Line:
    op = draw(st.sampled_from([None, Op.REPLACE, Op.REPLACE, Op.DELETE]))
    values = {"at": draw(AT), "who": draw(WHO), "price": draw(st.sampled_from([1.0, 2.0]))}
    old = {"who": draw(WHO)} if op is Op.REPLACE and draw(st.booleans()) else {}
    if op is not None:
        values = {name: value for name, value in values.items() if name in stream.key or draw(st.booleans())}
    return Line(values, op, None, old)


@pytest.mark.parametrize("key", [("at", "who"), ("who",)], ids="-".join)
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_history_of_every_key_is_the_oracles(a_house: Builder, key: tuple[str, ...], data: st.DataObject) -> None:
    stream = replace(FEED, key=key, group=(), slack=2)
    house, model = a_house(stream), oracle.History(stream)
    seed = [line(at, who) for at, who in ((0, "a"), (1, "b"), (9, "z"))]
    took(house, "b0", *seed)
    model.append([record(Source("b0.jsonl"), each, stream, at) for at, each in enumerate(seed)], 0, "b0")
    for number in range(1, 5):
        batch = data.draw(st.lists(lines(stream), min_size=1, max_size=5))
        took(house, f"b{number}", *batch)
        records = [record(Source("b.jsonl"), each, stream, at) for at, each in enumerate(batch)]
        model.append(records, 0, f"b{number}")
        apply_revisions(house.site)
        model.revise()
        if data.draw(st.booleans(), "undo"):
            undone = f"b{data.draw(st.integers(0, number))}"
            refused = False
            try:
                model.undo(undone)
            except RefusedError:
                refused = True
            if refused:
                with pytest.raises(RefusedError):
                    undo_batch(house.site, "feed", undone)
            else:
                undo_batch(house.site, "feed", undone)
        if data.draw(st.integers(0, 3), "compact") == 0:
            compact_streams(house.site, everything=True)
    keys = [{"at": str(at), "who": who} for at in range(4) for who in "abc"]
    for each in keys if len(key) == 2 else [{"who": who} for who in "abc"]:
        _agree(house, model, each)


def _agree(house: House, model: oracle.History, key: Mapping[str, str]) -> None:
    wanted = tuple(int(key[name]) if name == "at" else key[name] for name in model.stream.key)
    versions = model.versions(wanted)
    speaking = [each for each in model.pending() if each.key == wanted]
    if not versions and not speaking:
        with pytest.raises(ErrataError, match="no row of the key"):
            row_history(house.site, "feed", key)
        return
    found = row_history(house.site, "feed", key)
    # Revisions of one undo have no order among themselves that means anything: so the rows are compared one by one.
    expected, told_of = defaultdict(list), defaultdict(list)
    for version in versions:
        values = version.values and canonical_row(version.values)
        expected[version.row].append((version.revision is None, version.op, version.batch_id, values))
    for each in found.versions:
        told_of[each.row].append(
            (each.revision is None, _op(each.origin), each.batch_id, _values(each.origin, each.values))
        )
    assert sorted(map(repr, told_of.values())) == sorted(map(repr, expected.values()))
    known = [each.made_by.commit_id for each in found.versions]
    assert known == sorted(known)
    assert {each.batch_id for each in speaking} <= {each.batch_id for each in found.waiting}


def _op(what: VersionOrigin) -> Op:
    return {VersionOrigin.REPLACED: Op.REPLACE, VersionOrigin.DELETED: Op.DELETE}.get(what, Op.INSERT)


def _values(what: VersionOrigin, values: Mapping[str, object]) -> Row | None:
    return None if what is VersionOrigin.DELETED else canonical_row(dict(values))
