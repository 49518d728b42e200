"""The paper's own examples: tables I and II, examples 3 to 5, and the tables of section III-D."""

from __future__ import annotations

from math import inf

import pytest

from errata.merge.elements import OPEN, ElementKind
from errata.merge.progress import FeedStanding
from errata.merge.step import OP
from errata.model.feed import EmitPolicy, MergeAlgorithm, MergePolicy
from errata.model.time import LOWEST
from fixtures.merges import FEED_NAMES, MergedStream, Standings, merged_stream, stream_of
from fixtures.oracle.merging import Said
from fixtures.oracle.temporal import (
    Adjust,
    Element,
    Freeze,
    Insert,
    Prefix,
    Stable,
    broken_promises,
    incompatible,
    last_stable,
    open_close_tdb,
    tdb,
)

EVENTS = stream_of(symbol="string", at="bigint", until="bigint")

PHY1 = [
    *(Insert("B", 8, inf), Insert("A", 6, 12)),
    *(Adjust("B", 8, 10), Stable(11), Stable(inf)),
]
PHY2 = [
    *(Insert("A", 6, 7), Insert("B", 8, 15), Adjust("A", 6, 12)),
    *(Adjust("B", 8, 10), Stable(inf)),
]
TABLE_I = {("A", 6): 12, ("B", 8): 10}

IN1 = [Insert("A", 6, 10), None, None, Adjust("A", 6, 15), None, None]
IN2 = [None, Insert("A", 6, 12), Insert("B", 7, 14), None, Adjust("A", 6, 15), Stable(16)]
"""Table II: what comes at each instant of system time."""


class Merge:
    """A merge of the paper's streams, an element at a time."""

    def __init__(self, feeds: int, emit: EmitPolicy = EmitPolicy.FIRST) -> None:
        self.stream = merged_stream(EVENTS, feeds, MergePolicy(emit=emit))
        self.merged = MergedStream(self.stream, MergeAlgorithm.R3)
        self.standings = Standings([FeedStanding(name, complete=True) for name in FEED_NAMES[:feeds]])
        self.marks = [LOWEST] * feeds

    def take(self, feed: int, element: Element) -> list[Element]:
        """What the merge says when this comes."""
        said, before = [], self.standings.stable
        if isinstance(element, Stable):
            self.marks[feed] = max(self.marks[feed], int(min(element.at, OPEN)))
        else:
            kind = ElementKind.INSERT if isinstance(element, Insert) else ElementKind.ADJUST
            until = None if element.end == inf else element.end
            values = {"symbol": element.payload, "at": element.start, "until": until}
            said = [Said(feed, kind, values, own_stable=self.marks[feed])]
        step = self.merged.merge(said, self.standings.advance(dict(enumerate(self.marks))))
        out: list[Element] = [
            Insert(row["symbol"], row["at"], inf if row["until"] is None else row["until"])
            for row in step.inserts.sort_by("at").to_pylist()
        ]
        for row in step.corrections.sort_by("at").to_pylist():
            end = row["at"] if row[OP] == "delete" else row["until"]
            out.append(Adjust(row["symbol"], row["at"], inf if end is None else end))
        if self.standings.stable > before:
            out.append(Stable(inf if self.standings.stable == OPEN else self.standings.stable))
        return out


def test_streams_of_table_1_stand_for_its_table() -> None:
    assert tdb(PHY1) == tdb(PHY2) == TABLE_I
    assert not broken_promises(PHY1)
    assert not broken_promises(PHY2)


def test_streams_of_table_1_are_merged_to_its_table_in_any_interleaving() -> None:
    for cut in range(len(PHY1) + 1):
        merge = Merge(2)
        out = []
        turns = [
            *((0, each) for each in PHY1[:cut]),
            *((1, each) for each in PHY2),
            *((0, each) for each in PHY1[cut:]),
        ]
        for feed, element in turns:
            out += merge.take(feed, element)
        assert tdb(out) == TABLE_I
        assert not broken_promises(out)
        assert last_stable(out) == inf


def test_a_stable_element_waits_for_what_it_would_freeze() -> None:
    """Introduction, "Punctuation": f(11) must not freeze A at [6, 7), nor hinder B's later end of 10."""
    merge = Merge(2)
    out = [*merge.take(1, PHY2[0]), *merge.take(1, PHY2[1])]
    assert out == PHY2[:2]
    for element in PHY1[:3]:
        out += merge.take(0, element)
    out += merge.take(0, Stable(11))
    assert out[2:] == [Adjust("A", 6, 12), Adjust("B", 8, 10), Stable(11)]


@pytest.mark.parametrize(
    ("emit", "outputs"),
    [
        (
            EmitPolicy.EVERY,
            [
                [Insert("A", 6, 10)],
                [Adjust("A", 6, 12)],
                [Insert("B", 7, 14)],
                [Adjust("A", 6, 15)],
                [],
                [Stable(16)],
            ],
        ),
        (EmitPolicy.HALF_FROZEN, [[], [], [], [], [], [Insert("A", 6, 15), Insert("B", 7, 14), Stable(16)]]),
        (
            EmitPolicy.FIRST,
            [[Insert("A", 6, 10)], [], [Insert("B", 7, 14)], [], [], [Adjust("A", 6, 15), Stable(16)]],
        ),
    ],
    ids=["Out1", "Out2", "Out3"],
)
def test_outputs_of_table_2_are_those_of_the_policies(emit: EmitPolicy, outputs: list[list[Element]]) -> None:
    merge = Merge(2, emit)
    for one, other, expected in zip(IN1, IN2, outputs, strict=True):
        found = [out for feed, each in ((0, one), (1, other)) if each is not None for out in merge.take(feed, each)]
        assert found == expected


def test_prefixes_of_example_3_are_equivalent() -> None:
    """S is ordered, U is not, and W closes B twice."""
    s = [("open", "A", 1), ("open", "B", 2), ("open", "C", 3), ("close", "A", 4), ("close", "B", 5)]
    u = [("open", "A", 1), ("close", "A", 4), ("open", "B", 2), ("close", "B", 5), ("open", "C", 3)]
    w = [
        *[("open", "B", 2), ("close", "B", 6), ("open", "A", 1), ("open", "C", 3)],
        *[("close", "A", 4), ("close", "B", 5)],
    ]
    expected = {"A": (1, 4), "B": (2, 5), "C": (3, inf)}
    assert open_close_tdb(s) == open_close_tdb(u) == open_close_tdb(w) == expected


def test_streams_of_example_3_are_merged_to_the_same_table() -> None:
    """An open is a row without end, a close adjusts its end."""
    u = [Insert("A", 1, inf), Adjust("A", 1, 4), Insert("B", 2, inf), Adjust("B", 2, 5), Insert("C", 3, inf)]
    w = [Insert("B", 2, inf), Adjust("B", 2, 6), Insert("A", 1, inf), Insert("C", 3, inf), Adjust("A", 1, 4)]
    w.append(Adjust("B", 2, 5))
    merge = Merge(2)
    out: list[Element] = []
    for at in range(6):
        for feed, stream in enumerate((u, w)):
            if at < len(stream):
                out += merge.take(feed, stream[at])
    out += merge.take(1, Stable(7))
    assert tdb(out) == tdb(u) == tdb(w) == {("A", 1): 4, ("B", 2): 5, ("C", 3): inf}


def test_outputs_of_example_4_are_subsets_of_all_inputs() -> None:
    """Each open has one close at most: what was published must be an element of some input, unchanged, until the
    stable point, or it could not be continued to be equivalent."""
    inputs = [
        [Insert("A", 1, inf), Insert("B", 2, inf), Adjust("A", 1, 4)],
        [Insert("B", 2, inf), Insert("C", 3, inf), Adjust("B", 2, 5)],
    ]
    for emit in (EmitPolicy.FIRST, EmitPolicy.EVERY):
        merge = Merge(2, emit)
        seen: set[Element] = set()
        for pair in zip(*inputs, strict=True):
            for feed, element in enumerate(pair):
                seen.add(element)
                assert set(merge.take(feed, element)) <= seen


def test_adjustments_of_example_5_come_to_one_insert() -> None:
    several = [Insert("A", 6, 20), Adjust("A", 6, 30, 20), Adjust("A", 6, 25, 30)]
    assert tdb(several) == tdb([Insert("A", 6, 25)])
    assert tdb([Insert("A", 6, 20), Adjust("A", 6, 6, 20)]) == {}
    merge = Merge(1)
    out = [out for element in [*several, Stable(26)] for out in merge.take(0, element)]
    assert out == [Insert("A", 6, 20), Adjust("A", 6, 25), Stable(26)]


def test_a_stable_element_of_example_5_forbids_what_is_behind_it() -> None:
    """No insert with Vs < Vc, no adjust with Vold < Vc or Ve < Vc."""
    rows = [Insert("A", 6, 20), Insert("B", 7, 9), Stable(10)]
    assert broken_promises([*rows, Insert("C", 9, 30)])
    assert broken_promises([*rows, Adjust("A", 6, 9)])
    assert broken_promises([*rows, Adjust("B", 7, 12)])
    allowed = [*rows, Insert("C", 10, 30), Adjust("A", 6, 10)]
    assert not broken_promises(allowed)
    for element, refused in [
        (Insert("A", 6, 9), True),
        (Adjust("A", 6, 9), True),
        (Adjust("B", 7, 12), False),  # no longer remembered: the archive decides
        (Insert("C", 10, 30), False),
        (Adjust("A", 6, 10), False),
    ]:
        merge = Merge(1)
        for each in rows:
            merge.take(0, each)
        values = {"symbol": element.payload, "at": element.start, "until": element.end}
        said = [Said(0, ElementKind.ADJUST, values, own_stable=10, pos=7)]
        step = merge.merged.merge(said, merge.standings.advance({}))
        assert step.refused["_pos"].to_pylist() == ([7] if refused else []), element


# Section III-D.

I1 = Prefix({("A", 2): 16, ("B", 3): 10, ("C", 4): 18, ("D", 15): 20}, 14)
I2 = Prefix({("A", 2): 12, ("B", 3): 10, ("C", 4): 18, ("E", 17): 21}, 11)
O1 = Prefix({("A", 2): inf, ("B", 3): 10, ("C", 4): inf}, 11)
O2 = Prefix({("A", 2): 16, ("B", 3): 10, ("C", 4): 18, ("D", 15): 20, ("E", 17): 21}, 14)
O3 = Prefix({("A", 2): 12, ("C", 4): 18, ("D", 15): 20}, 13)


def test_events_of_section_3d_are_frozen_as_printed() -> None:
    printed = {
        "I1": (I1, "HF FF HF UF"),
        "I2": (I2, "HF FF HF UF"),
        "O1": (O1, "HF FF HF"),
        "O2": (O2, "HF FF HF UF UF"),
        "O3": (O3, "FF HF UF"),
    }
    for name, (prefix, states) in printed.items():
        assert [prefix.freeze(event) for event in prefix.table] == [Freeze(each) for each in states.split()], name


def test_outputs_of_section_3d_are_compatible_as_printed() -> None:
    assert incompatible(O1, [I1, I2]) == []
    assert incompatible(O2, [I1, I2]) == []
    broken = ["C2 fully frozen ('A', 2)", "C3 half frozen ('A', 2)", "C3 fully frozen ('B', 3)"]
    assert incompatible(O3, [I1, I2]) == broken


def test_an_output_that_is_stable_beyond_its_inputs_is_incompatible() -> None:
    assert "C1" in incompatible(Prefix(O2.table, 15), [I1, I2])


@pytest.mark.parametrize(("emit", "expected"), [(EmitPolicy.FIRST, O2), (EmitPolicy.HALF_FROZEN, None)])
def test_the_merge_of_section_3d_is_compatible_at_every_step(emit: EmitPolicy, expected: Prefix | None) -> None:
    merge = Merge(2, emit)
    streams: list[list[Element]] = [
        [*(Insert(p, vs, ve) for (p, vs), ve in each.table.items()), Stable(each.stable)] for each in (I1, I2)
    ]
    out: list[Element] = []
    for at in range(5):
        for feed, stream in enumerate(streams):
            out += merge.take(feed, stream[at])
            inputs = [
                Prefix(tdb(s[: at + (f <= feed)]), last_stable(s[: at + (f <= feed)])) for f, s in enumerate(streams)
            ]
            assert incompatible(Prefix(tdb(out), last_stable(out)), inputs) == []
    if expected is not None:
        assert Prefix(tdb(out), last_stable(out)) == expected
    else:
        assert set(tdb(out)) == {("A", 2), ("B", 3), ("C", 4)}
