"""What a merge counts is what counting statement by statement comes to."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from errata.merge.elements import ABSENT, OPEN, POS, ElementKind, payload_names
from errata.merge.general import merge_general
from errata.merge.state import empty_state
from errata.merge.step import MergeState, MergeStep
from errata.model.feed import EmitPolicy, MergePolicy
from errata.model.stream import Stream
from fixtures.chance import seeds
from fixtures.merges import POINTS, SPANS, element_table, merged_stream, merging_at, statement
from fixtures.oracle.merging import Row, Said, plain

CASES = 60


def some_said(chance: random.Random, stream: Stream, feeds: int) -> list[Said]:
    said = []
    for feed in range(feeds):
        for _ in range(chance.randrange(7)):
            at = chance.randrange(4)
            values: dict[str, Any] = {"symbol": "A", "at": at, "price": chance.choice((1.0, 2.0)), "version": 1}
            if "until" in stream.names:
                values["until"] = chance.choice((None, at + 3, at + 5))
            kind = chance.choice((ElementKind.INSERT, ElementKind.INSERT, ElementKind.WITHDRAW))
            said.append(statement(feed, values, kind, pos=len(said)))
    return said


def expected_repeats(stream: Stream, state: MergeState, said: list[Said], behind: set[int]) -> Counter[int]:
    """The statements that say what the state or an earlier one had said."""
    names = payload_names(stream)
    payloads = [tuple(plain(row[name]) for name in names) for row in state.rows.to_pylist()]
    known = {Row(row, end) for row, ends in zip(payloads, state.ends.tolist(), strict=True) for end in ends}
    known |= {Row(row, end) for row, end in zip(payloads, state.published.tolist(), strict=True)}
    standing = {
        (feed, row[:2])
        for row, ends in zip(payloads, state.ends.tolist(), strict=True)
        for feed, end in enumerate(ends)
        if end != ABSENT
    }
    found: Counter[int] = Counter()
    for each in said:
        if each.pos in behind:
            continue
        payload = tuple(plain(each.values[name]) for name in names)
        until = each.values.get("until")
        end = OPEN if until is None else until
        chain = (each.feed, payload[:2])
        if each.kind is ElementKind.WITHDRAW:
            found[each.feed] += chain not in standing
            standing.discard(chain)
            continue
        found[each.feed] += Row(payload, end) in known
        known.add(Row(payload, end))
        standing.add(chain)
    return +found


@pytest.mark.parametrize("stream", [POINTS, SPANS], ids=["points", "spans"])
def test_repeats_and_held_rows_are_counted(stream: Stream) -> None:
    counted: Counter[int] = Counter()
    for seed in seeds(f"counts {stream.names}", CASES):
        chance = random.Random(seed)
        merged = merged_stream(stream, 3, MergePolicy(emit=chance.choice(list(EmitPolicy)), fraction=0.6))
        state, stable = empty_state(merged), -1
        for _ in range(4):
            said, before = some_said(chance, merged, 3), stable
            stable += chance.randrange(3)
            progress = merging_at(merged, before=before, stable=stable)
            step: MergeStep = merge_general(merged, state, element_table(merged, said), progress)
            expected = expected_repeats(merged, state, said, set(step.behind[POS].to_pylist()))
            assert step.counts.repeats == dict(expected), f"seed {seed}: {said}"
            held = [sum(each.published == ABSENT) for each in (state, step.state)]
            assert step.counts.held == held[1] - held[0], f"seed {seed}: {said}"
            counted += expected
            state = step.state
    assert set(counted) == {0, 1, 2}
