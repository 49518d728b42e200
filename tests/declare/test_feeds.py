"""Feeds written in any of the ways that errata.yaml allows are read as they were meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.declare.feeds import parse_disagreement, parse_emit
from errata.declare.project import load_project
from errata.model.feed import (
    DisagreementPolicy,
    EmitPolicy,
    Feed,
    FeedOrder,
    FeedProperties,
    LandedFileAction,
    LandingFolder,
    MergedFeeds,
    MergePolicy,
    StableRule,
)
from errata.model.time import LOWEST, SECOND, format_instant

BEGINNING = """
project: p
streams:
  quotes:
    columns: {symbol: string, at: TYPE, n: bigint, price: double, version: int, until: TYPE}
    key: [symbol, at, n]
    order: at
"""
FOLDERS = ("/in/a", "/in/b")
INSTANT = st.integers(-(10**15), 10**16)


@st.composite
def feeds(draw: st.DrawFn, name: str) -> Feed:
    query = draw(st.none() | st.sampled_from(["one", "two"]))
    folder = st.builds(LandingFolder, st.sampled_from(FOLDERS), st.just(7 * SECOND), st.sampled_from(LandedFileAction))
    landing = draw(st.none() | folder) if query is None else None
    feedback = query is not None and draw(st.booleans())
    order = draw(st.sampled_from(FeedOrder))
    ties_fixed = order is not FeedOrder.NONE and draw(st.booleans())
    properties = FeedProperties(order, ties_fixed, draw(st.booleans()), not feedback and draw(st.booleans()))
    joins_at = draw(st.just(LOWEST) | INSTANT)
    return Feed(name, landing, query, properties, draw(st.sampled_from(StableRule)), joins_at, feedback)


@st.composite
def merges(draw: st.DrawFn) -> MergedFeeds:
    found = tuple(draw(feeds(name)) for name in draw(st.sampled_from(["a", "ab", "abc"])))
    disagreement = draw(st.sampled_from(DisagreementPolicy))
    emit = draw(st.sampled_from(EmitPolicy))
    policy = MergePolicy(
        emit,
        draw(st.sampled_from([0.5, 0.25, 1.0])) if emit is EmitPolicy.FRACTION else 0.5,
        disagreement,
        draw(st.sampled_from(["price", "version"])) if disagreement is DisagreementPolicy.LATEST else None,
        draw(st.integers(1, len(found))),
    )
    return MergedFeeds(found, policy, draw(st.sampled_from([None, "until"])), draw(st.sampled_from([None, "n"])))


def yes(draw: st.DrawFn, said: bool) -> str:
    return draw(st.sampled_from(["yes", "true", "Yes"] if said else ["no", "false", "NO"]))


@st.composite
def written(draw: st.DrawFn, merged: MergedFeeds, timed: bool) -> str:
    """The text of a declaration. What is as it is by default may be left out."""

    def said(key: str, value: str, *, default: bool) -> list[str]:
        return [] if default and draw(st.booleans()) else [f"{key}: {value}"]

    lines = ["    feeds:"]
    for feed in merged.feeds:
        properties, parts = feed.properties, []
        if feed.landing is not None:
            parts.append(f"landing: {{path: {feed.landing.path}, settle: 7 seconds, then: {feed.landing.then}}}")
        parts += [] if feed.query is None else [f"query: {feed.query}"]
        parts += said("order", properties.order.value, default=properties.order is FeedOrder.NONE)
        parts += said("ties", "fixed" if properties.ties_fixed else "any", default=not properties.ties_fixed)
        parts += said("adjusts", yes(draw, properties.adjusts), default=properties.adjusts)
        parts += said("complete", yes(draw, properties.complete), default=not properties.complete)
        parts += said("stable", feed.stable.value, default=feed.stable is StableRule.ROWS)
        parts += said("feedback", yes(draw, feed.feedback), default=not feed.feedback)
        if feed.joins_at != LOWEST:
            parts.append(f"from: {format_instant(feed.joins_at) if timed else feed.joins_at}")
        lines.append(f"      {feed.name}: {{{', '.join(draw(st.permutations(parts)))}}}")
    policy = merged.policy
    share = draw(st.sampled_from([f"{policy.fraction:g}", f"{100 * policy.fraction:g}%"]))
    emit = f"fraction {share}" if policy.emit is EmitPolicy.FRACTION else policy.emit.value
    version = "" if policy.version is None else f" {policy.version}"
    parts = said("emit", emit, default=policy.emit is EmitPolicy.FIRST)
    parts += said(
        "disagreement", policy.disagreement + version, default=policy.disagreement is DisagreementPolicy.LEADER
    )
    parts += said("quorum", str(policy.quorum), default=policy.quorum == 1)
    lines += [f"    merge: {{{', '.join(parts)}}}"] if parts else []
    lines += [f"    {role}: {name}" for role, name in (("end", merged.end), ("occurrence", merged.occurrence)) if name]
    queries = "queries: {one: one.sql, two: two.sql}"
    return "\n".join([BEGINNING.replace("TYPE", "timestamp" if timed else "bigint").rstrip(), *lines, queries, ""])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("declared")


@given(merged=merges(), timed=st.booleans(), data=st.data())
def test_a_declaration_is_read_as_it_was_meant(
    folder: Path, merged: MergedFeeds, timed: bool, data: st.DataObject
) -> None:
    (folder / "errata.yaml").write_text(data.draw(written(merged, timed)))
    assert load_project(folder, {}).streams["quotes"].merged == merged


@given(st.sampled_from(EmitPolicy), st.sampled_from(DisagreementPolicy))
def test_policies_are_read_as_they_are_written(emit: EmitPolicy, disagreement: DisagreementPolicy) -> None:
    assert parse_emit(emit.value) == (emit, MergePolicy().fraction)
    named = " price" if disagreement is DisagreementPolicy.LATEST else ""
    assert parse_disagreement(f"{disagreement}{named}") == (disagreement, named.strip() or None)
