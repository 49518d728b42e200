"""Following: any client that folds the events has the current answer, wherever it resumes, and has each change once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.errors import ErrataError
from errata.psoup import following
from errata.psoup.following import Answer, AnswerChange, AnswerFollower, table_difference
from fixtures.registered.histories import RecordedAnswers

Rows = list[tuple[object, ...]]
ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, 1.5, float("nan"), None]))
TABLES = st.lists(ROWS, max_size=12)
SCHEMA = pa.schema([("name", pa.string()), ("price", pa.float64())])


def table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def bag(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, zip(*(column.to_pylist() for column in rows.columns), strict=True)))


@given(TABLES, TABLES)
def test_a_difference_leads_from_one_to_the_other(
    before: list[tuple[object, ...]], after: list[tuple[object, ...]]
) -> None:
    old, new = table(before), table(after)
    added, gone = table_difference(old, new)
    assert (bag(added), bag(gone)) == (bag(new) - bag(old), bag(old) - bag(new))
    assert (added.schema, gone.schema) == (SCHEMA, SCHEMA)


def test_columns_may_have_one_name() -> None:
    old = pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"])
    new = pa.table([pa.array([2, 2]), pa.array([4, 4])], names=["x", "x"])
    added, gone = table_difference(old, new)
    assert (added.column(1).to_pylist(), gone.column(0).to_pylist()) == ([4], [1])
    assert added.schema.names == ["x", "x"]


def fold(held: Counter[str], changes: Iterable[AnswerChange]) -> Counter[str]:
    """What a client has after these changes; a row that is taken from nowhere is an error."""
    for each in changes:
        if each.whole:
            held = bag(each.added)
            continue
        assert bag(each.gone) <= held
        held = held - bag(each.gone) + bag(each.added)
    return held


def grow(history: RecordedAnswers, chance: random.Random, commits: int) -> None:
    """Commits of the sources and of others, and answers that change with some of them."""
    for _ in range(commits):
        if chance.random() < 0.3:
            history.commit_elsewhere()
            continue
        rows = history.current()
        if chance.random() < 0.7:
            rows = [row for row in rows if chance.random() < 0.7]
            rows += [(chance.choice("abc"), chance.choice([1.0, 2.0, None])) for _ in range(chance.randrange(4))]
        history.commit(rows)


@pytest.mark.parametrize("turn", range(20))
def test_a_client_that_is_interrupted_anywhere_has_the_answer(chance: random.Random, turn: int) -> None:
    history = RecordedAnswers(table)
    held: Counter[str] = Counter()
    stored: int | None = None
    told: list[int] = []
    for _ in range(12):
        grow(history, chance, chance.randrange(1, 6))
        follower = AnswerFollower(history, stored)
        for change in follower.changes():
            held, stored = fold(held, [change]), change.answer.commit_id
            told.append(stored)
            assert held == bag(history.answer(stored).rows), "after every single event"
            if chance.random() < 0.3:
                break  # it is killed after it has stored this one
        else:
            assert held == bag(history.answer(history.newest_commit()).rows)
            if chance.random() < 0.5:
                stored = follower.position
    assert told == sorted(set(told)), "each change once, in order"


def test_the_events_behind_a_commit_do_not_depend_on_who_asks_when(chance: random.Random) -> None:
    history = RecordedAnswers(table)
    grow(history, chance, 4)
    patient = AnswerFollower(history, None)
    seen = list(patient.changes())
    for _ in range(6):
        grow(history, chance, chance.randrange(4))
        seen += patient.changes()
    first, *rest = seen
    late = list(AnswerFollower(history, first.answer.commit_id).changes())
    assert [each.answer.commit_id for each in late] == [each.answer.commit_id for each in rest]
    assert all(a.added.equals(b.added) and a.gone.equals(b.gone) for a, b in zip(late, rest, strict=True))


def test_who_resumes_from_what_is_gone_gets_the_whole_answer() -> None:
    history = RecordedAnswers(table)
    for price in (1.0, 2.0, 3.0):
        history.commit([("a", price)])
    history.forget_before(3)
    (change,) = AnswerFollower(history, 1).changes()
    assert (change.whole, change.answer.commit_id, bag(change.added)) == (True, 3, bag(table([("a", 3.0)])))
    assert list(AnswerFollower(history, 3).changes()) == []


def test_who_is_overtaken_by_the_horizon_gets_the_whole_answer() -> None:
    history = RecordedAnswers(table)
    history.commit([("a", 1.0)])
    follower = AnswerFollower(history, None)
    assert [each.whole for each in follower.changes()] == [True]
    for price in (2.0, 3.0):
        history.commit([("a", price)])
    history.forget_before(3)
    assert [(each.whole, each.answer.commit_id) for each in follower.changes()] == [(True, 3)]
    history.commit([("b", 3.0)])
    assert [(each.whole, each.answer.commit_id) for each in follower.changes()] == [(False, 4)]


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_FOLLOWED_ROWS", 2)
    history = RecordedAnswers(table)
    history.commit([("a", 1.0)] * 3)
    with pytest.raises(ErrataError, match="has 3 rows") as caught:
        list(AnswerFollower(history, None).changes())
    assert "page by page" in str(caught.value)


def test_an_answer_of_other_columns_replaces_the_former() -> None:
    history = RecordedAnswers(table)
    history.commit([("a", 1.0)])
    follower = AnswerFollower(history, None)
    list(follower.changes())
    history.commit([("a", 2.0)])
    other = pa.table({"name": ["a"]})
    history.answers[2] = Answer("h", 2, 0, True, other)
    (change,) = follower.changes()
    assert change.whole
    assert change.added.equals(other)
