"""The benchmark of merged feeds: its channel and its elements are as said, and at a tiny scale every figure comes
out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.measure import Outcome
from bench.merge import AMOUNTS
from bench.merge_arrivals import (
    CHANNEL,
    CONGESTIONS,
    ArrivalAmounts,
    arrival_figures,
    slowdowns,
    through_channel,
    variation,
)
from bench.merge_behaviour import BehaviourAmounts, behaviour_figures
from bench.merge_contenders import CLEANSE, NAIVE, held_bytes, merge_files
from bench.merge_inputs import (
    ALL,
    ENFORCED,
    IN_ORDER,
    R0,
    R3,
    R4,
    EnforcedAmounts,
    InputAmounts,
    enforced_figures,
    input_figures,
)
from bench.merge_workload import ElementReader, made_feeds, merged_stream, write_chunks

from errata.generate.feed_files import cut_feeds, feed_rows
from errata.generate.feeds import EventSpec, FeedElement, FeedFaults, event_table, physical_feed
from errata.merge.elements import ELEMENT, FEED, OWN_STABLE, SEQ
from errata.model.feed import MergeAlgorithm
from errata.model.time import LOWEST, SECOND
from fixtures.chance import seeds

MERGED = FeedFaults(disorder=0.3, adjusted=0.2, withdrawn=0.05, repeated=0.1, stable=0.05)


def test_chunks_have_every_element_once() -> None:
    feeds = made_feeds(event_table(EventSpec(500)), [MERGED, FeedFaults(lag=SECOND // 20)])
    pieces = list(cut_feeds(feeds, 7))
    assert len(pieces) == 7
    for number, feed in enumerate(feeds):
        for place, column in enumerate(feed.columns):
            assert np.array_equal(np.concatenate([each[number].columns[place] for each in pieces]), column)


def test_elements_know_how_far_their_feed_had_said_that_it_is_stable() -> None:
    (seed,) = seeds("elements", 1)
    feeds = made_feeds(event_table(EventSpec(300, seed=seed)), [MERGED, MERGED], seed)
    reader = ElementReader(merged_stream(2, MergeAlgorithm.R3))
    stable, expected = [LOWEST, LOWEST], []
    found = []
    for parts in cut_feeds(feeds, 5):
        chunk = reader.elements([feed_rows(part) for part in parts])
        found += [row[name] for row in chunk.elements.to_pylist() for name in (FEED, ELEMENT, OWN_STABLE, "value")]
        assert sorted(chunk.elements[SEQ].to_pylist()) == chunk.elements[SEQ].to_pylist()
        for number, part in enumerate(parts):
            for kind, at, value in zip(part.kind.tolist(), part.at.tolist(), part.value.tolist(), strict=True):
                if kind == FeedElement.STABLE:
                    stable[number] = at
                else:
                    expected += [number, kind, stable[number], value]
        assert all(chunk.stables.get(number, LOWEST) == each for number, each in enumerate(stable))
    assert found == expected


def test_an_element_waits_in_the_channel_for_those_before_it() -> None:
    (seed,) = seeds("channel", 1)
    feed = physical_feed(event_table(EventSpec(400, seed=seed)), FeedFaults(disorder=0.2), seed)
    delays = np.random.default_rng(seed).integers(0, 2_000, len(feed))
    free, expected = 0, []
    for arrival, delay in zip(feed.arrival.tolist(), delays.tolist(), strict=True):
        free = max(free, arrival) + CHANNEL + delay
        expected.append(free)
    assert through_channel(feed, delays).arrival.tolist() == expected


def test_congestion_delays_what_is_sent_meanwhile() -> None:
    feed = physical_feed(event_table(EventSpec(10_000)), FeedFaults(stable=0), 1)
    delays = slowdowns(feed, [(0.25, 0.5)], 1)
    assert not delays[: len(feed) // 4 - 200].any()
    assert not delays[len(feed) // 2 + 200 :].any()
    assert (delays > 0).mean() == pytest.approx(0.25, abs=0.02)
    at_once = [each for each in np.arange(0, 1, 0.01) if sum(begin <= each < end for _, begin, end in CONGESTIONS) == 2]
    assert len(at_once) == 5
    assert variation(np.array([1.0, 3.0])) == 0.5


@pytest.mark.parametrize("name", [*ALL, CLEANSE])
def test_every_contender_brings_the_events_of_the_table(name: str, tmp_path: Path) -> None:
    """Rows and corrections that come out are the table of events."""
    (seed,) = seeds(name, 1)
    table = event_table(EventSpec(2_000, seed=seed, twice=0.2 if name == R4 else 0.0))
    faults = ENFORCED if name in (R3, R4, NAIVE, CLEANSE) else IN_ORDER
    chunks = write_chunks(tmp_path / "in", made_feeds(table, [faults] * 3, seed), 6)
    merged = merge_files(name, chunks, tmp_path / "out")
    rows = pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / "out").glob("rows-*")))
    changes = pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / "out").glob("corrections-*")))
    assert (merged.inserts, merged.corrections) == (rows.num_rows, changes.num_rows)
    events = {_key(row): row["until"] for row in rows.to_pylist()}
    for row in changes.to_pylist():
        if row["_op"] == "delete":
            del events[_key(row)]
        else:
            assert _key(row) in events
            events[_key(row)] = row["until"]
    found = sorted((at, value, end) for (at, value, _), end in events.items())
    assert found == sorted(zip(*(_as_times(table.at), table.value.tolist(), _as_times(table.end)), strict=True))


def _key(row: dict[str, object]) -> tuple[object, object, object]:
    return row["at"], row["value"], row.get("occurrence")


def _as_times(places: np.ndarray) -> list[object]:
    times: list[object] = pa.array(places).cast(pa.timestamp("us", "UTC")).to_pylist()
    return times


def test_what_is_remembered_is_measured(tmp_path: Path) -> None:
    """R0 remembers a number, R3 the rows that are not frozen: here 1,000 of them with 1,000 bytes each."""
    table = event_table(EventSpec(2_000, lifetime=1_000 * 200))
    chunks = write_chunks(tmp_path / "in", made_feeds(table, [FeedFaults(stable=0.1)] * 2), 8, text_bytes=1_000)
    assert held_bytes(R0, chunks, tmp_path / "out").most < 100_000
    assert 600_000 < held_bytes(R3, chunks, tmp_path / "out").most < 4_000_000


TINY = InputAmounts(held_events=1_000, active=200, timed_events=2_000, inputs=(2, 3), rounds=1)


def test_figures_by_inputs(tmp_path: Path) -> None:
    ordered = input_figures(TINY, tmp_path / "a")
    tiny = EnforcedAmounts(events=1_000, active=200, timed_events=2_000, inputs=(2, 3), batches=(500, 1_000), rounds=1)
    enforced = enforced_figures(tiny, tmp_path / "b")
    assert {grid.name for grid in ordered.grids} == {"figure2", "figure3", "figure3-processor"}
    assert {grid.name for grid in enforced.grids} == {"figure7-memory", "figure7", "figure7-batches"}
    _check_finite(ordered)
    _check_finite(enforced)
    assert [metric.goal for metric in ordered.metrics if metric.goal] == ["<= 1.5", *[">= 2"] * 3, ">= 1", ">= 0.5"]
    assert [metric.goal for metric in enforced.metrics if metric.goal] == ["<= 1.5", ">= 2", ">= 3", ">= 1"]


def test_figures_of_behaviour(tmp_path: Path) -> None:
    amounts = BehaviourAmounts(
        1_000,
        3_000,
        3_000,
        1_000,
        output_chunks=6,
        rounds=1,
        disorders=(0.0, 0.5),
        lags=(0.0, 1.0),
        frequencies=(0.001, 0.1),
    )
    found = behaviour_figures(amounts, tmp_path)
    assert _names(found) == {"figure4", "figure5", "figure6", "figure6-memory"}
    _check_finite(found)
    (sizes,) = (grid for grid in found.grids if grid.name == "figure4")
    assert sizes.rows["merged, emit first"][0] == sizes.rows["one feed, without a merge"][0] == 0
    assert sizes.rows["merged, emit every"][1] >= sizes.rows["merged, emit first"][1] > 0
    assert all(metric.holds for metric in found.metrics if "theorem 1" in metric.metric)


def test_figures_of_arrivals(tmp_path: Path) -> None:
    found = arrival_figures(ArrivalAmounts(seconds=4), tmp_path)
    assert [picture.name for picture in found.pictures] == ["figure8", "figure9"]
    values = {metric.metric: metric.value for metric in found.metrics}
    assert values["lowest rate of a congested input, beside nominal"] < 0.5
    assert values["lowest rate of the output, one or two of three inputs congested, beside nominal"] > 0.7
    assert values["variation of the rate of four bursty inputs, mean"] > 0.2
    assert values["variation of the output beside the inputs' mean"] < 0.5


def test_small_and_paper_scale_measure_the_same_things() -> None:
    small, paper = AMOUNTS.values()
    assert paper.inputs.inputs == (2, 4, 6, 8, 10)
    assert set(small.inputs.inputs) < set(paper.inputs.inputs)
    assert set(small.behaviour.lags) < set(paper.behaviour.lags)
    assert small.behaviour.frequencies == paper.behaviour.frequencies


def _names(outcome: Outcome) -> set[str]:
    assert {picture.name for picture in outcome.pictures} == {grid.name for grid in outcome.grids}
    return {grid.name for grid in outcome.grids}


def _check_finite(outcome: Outcome) -> None:
    for grid in outcome.grids:
        assert all(math.isfinite(value) and value >= 0 for values in grid.rows.values() for value in values)
    assert all(math.isfinite(metric.value) for metric in outcome.metrics)
