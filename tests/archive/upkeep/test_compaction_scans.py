"""Whatever is brought, corrected, aged out and compacted, in whatever order: scans of all commits stay as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from errata.archive.upkeep.ageing import age_out
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.stream import Retention
from fixtures.layers import Layers, Make, a_revision, bring_fresh, compacted
from fixtures.oracle.revision import Row

INSERT, REPLACE, DELETE = Op.INSERT, Op.REPLACE, Op.DELETE

PLACES = st.integers(0, 12)
CORRECTIONS = st.lists(
    st.tuples(st.sampled_from([INSERT, REPLACE, REPLACE, DELETE]), st.integers(0, 9), st.none() | PLACES),
    min_size=1,
    max_size=5,
)
STEPS = st.one_of(
    st.tuples(st.just("bring"), st.lists(st.tuples(PLACES, st.sampled_from("abcdef")), min_size=1, max_size=6)),
    st.tuples(st.just("correct"), CORRECTIONS),
    st.tuples(st.just("correct"), CORRECTIONS),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("consumer"), st.integers(0, 6)),
    st.tuples(st.just("age"), st.none()),
)


@given(
    by_who=st.booleans(),
    bucket_rows=st.sampled_from([2, 3, 40]),
    slack=st.sampled_from([4, 100]),
    steps=st.lists(STEPS, min_size=2, max_size=6),
)
def test_scans_are_as_they_were(
    make: Make, by_who: bool, bucket_rows: int, slack: int, steps: list[tuple[str, object]]
) -> None:
    key = ("who",) if by_who else ("at", "who")
    done = make(key=key, bucket_rows=bucket_rows, slack=slack, retention=Retention(span=6))
    before: dict[int, dict[int, list[Row]]] = {}
    price = 0.0
    seed = [(2 * at, who) for at, who in enumerate("abcdef")]
    for step, what in [("bring", seed), ("correct", [(REPLACE, 1, 1), (DELETE, 2, None)]), *steps, ("compact", True)]:
        price += 1
        if step == "bring":
            bring_fresh(done, what, price)
        elif step == "correct":
            done.correct(*(a_revision(done, each, price + at / 10) for at, each in enumerate(what)))
        elif step == "age":
            age_out(done.house.site, [done.name])
        elif step == "consumer":
            done.consumer(max(done.standing.applied - what, 0))
        else:
            _compact(done, what)
        now = done.standing
        before[now.changed_in] = {each: done.seen(up_to=each) for each in range(now.folded, now.applied + 1)}
        done.check_index()
    for commit, by_number in before.items():
        for number, rows in by_number.items():
            assert done.seen(commit, number) == rows, f"commit {commit}, revision {number}"


def _compact(done: Layers, everything: bool) -> None:
    was = done.standing
    rows = {each: done.seen(up_to=each) for each in range(was.folded, was.applied + 1)}
    report = compacted(done, everything=everything)
    now = done.standing
    assert (report.commit_id is None) == (now == was)
    assert {each: done.seen(up_to=each) for each in range(now.folded, now.applied + 1)} == {
        each: rows[each] for each in range(now.folded, now.applied + 1)
    }
    assert all(each.revision_first > now.folded for each in done.stored(Role.OVERLAY))
    # What was taken from buckets can leave them small; then there is nothing left to do.
    assert any(compacted(done, everything=everything).commit_id is None for _ in range(3))
