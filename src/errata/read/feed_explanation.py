"""How the feeds of a stream are merged, and why so: what `errata explain STREAM` tells.

What is declared decides, with what follows from the plans of queries that are feeds; the catalog, if there is one, says
what the data has broken. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from errata.catalog import feeds, streams
from errata.catalog.database import open_if_current
from errata.catalog.feeds import FeedState, MergeRecord
from errata.declare.feed_changes import feed_text, guarantee_words, policy_text
from errata.declare.project import Project
from errata.declare.queries import load_queries
from errata.merge.choice import choose_algorithm, declared_properties
from errata.model.feed import DisagreementPolicy, EmitPolicy, Feed, FeedProperties, MergeAlgorithm, MergePolicy
from errata.model.stream import Stream
from errata.read.feeds import broken_lines

ALGORITHM_WORDS: Mapping[MergeAlgorithm, str] = {
    MergeAlgorithm.R0: "remembers the greatest order field",
    MergeAlgorithm.R1: "remembers how many rows of the last instant each feed has had",
    MergeAlgorithm.R2: "remembers the rows of the last instant",
    MergeAlgorithm.R3: "remembers the rows that are not frozen, each once, with a number for each feed",
    MergeAlgorithm.R4: "remembers the rows that are not frozen, each once, with the counts of each feed",
}

_EMIT_WORDS: Mapping[EmitPolicy, str] = {
    EmitPolicy.FIRST: "a row is published when the first feed has it",
    EmitPolicy.EVERY: "a row is published when the first feed has it, and every adjustment at once",
    EmitPolicy.LEADER: "a row is published when the leading feed has it",
    EmitPolicy.HALF_FROZEN: "a row is published when the stable point has passed it",
    EmitPolicy.FRACTION: "a row is published when enough feeds have it, or the stable point has passed it",
}

_DISAGREEMENT_WORDS: Mapping[DisagreementPolicy, str] = {
    DisagreementPolicy.LEADER: "of different values that of the leading feed counts",
    DisagreementPolicy.MAJORITY: "of different values that of most feeds counts",
    DisagreementPolicy.FIRST: "of different values the one published first counts",
    DisagreementPolicy.LATEST: "of different values the one with the latest version counts",
}


def explain_feeds(project: Project, stream: Stream) -> str:
    """How the feeds of a declared stream are merged, as text."""
    planned = _planned_feeds(project, stream)
    merge, known = _known_feeds(project, stream.name)
    return "".join(f"{line}\n" for line in _explanation_lines(stream, planned, merge, known))


@dataclass(frozen=True, slots=True)
class PlannedFeeds:
    """What follows from the plans of the queries that are feeds, by feed."""

    derived: Mapping[str, FeedProperties] = field(default_factory=dict)
    """What each guarantees."""
    obstacles: Mapping[str, str] = field(default_factory=dict)
    """Why queries cannot skip what nobody needs although they are told so."""


def _planned_feeds(project: Project, stream: Stream) -> PlannedFeeds:
    queries = [feed.query for feed in stream.merged.feeds if feed.query is not None]
    if not queries:
        return PlannedFeeds()
    from errata.answer.feedback import why_not_skipping  # noqa: PLC0415 - most feeds are files
    from errata.declare.explanation import declared_plans  # noqa: PLC0415
    from errata.declare.feed_guarantees import with_derived  # noqa: PLC0415
    from errata.language.rewrite import rewritten_plan  # noqa: PLC0415
    from errata.language.route import choose_route  # noqa: PLC0415

    plans = declared_plans(project, queries)
    found = with_derived(project.streams, plans)[stream.name]
    derived = {feed.name: feed.derived for feed in found.merged.feeds if feed.derived is not None}
    obstacles: dict[str, str] = {}
    for feed in stream.merged.feeds:
        if feed.query is not None and feed.feedback:
            (query,) = load_queries([project.queries[feed.query]], project.file).values()
            why = why_not_skipping(query, choose_route(rewritten_plan(plans[feed.query])))
            obstacles |= {} if why is None else {feed.name: why}
    return PlannedFeeds(derived, obstacles)


def _known_feeds(project: Project, name: str) -> tuple[MergeRecord | None, list[FeedState]]:
    """How the feeds are merged by now and how they stand; nothing if there is no catalog or stream yet."""
    catalog = open_if_current(project.catalog)
    if catalog is None:
        return None, []
    try:
        state = next((each for each in streams.stream_states(catalog) if each.stream.name == name), None)
        if state is None:
            return None, []
        return feeds.merge_of(catalog, state.stream_id), feeds.feeds_of(catalog, state.stream_id)
    finally:
        catalog.close()


def _explanation_lines(
    stream: Stream, planned: PlannedFeeds, merge: MergeRecord | None, known: list[FeedState]
) -> Iterator[str]:
    derived, obstacles = planned.derived, planned.obstacles
    properties = declared_properties(stream, derived)
    choice = choose_algorithm(stream, properties)
    yield f"stream {stream.name}: {len(stream.merged.feeds)} feeds, merged by {', '.join(stream.key)}"
    yield ""
    yield f"algorithm {choice.algorithm.value}: {ALGORITHM_WORDS[choice.algorithm]}"
    yield f"  why: {choice.reason}"
    if merge is not None and merge.algorithm is not choice.algorithm:
        yield f"  but since commit {merge.since_commit} by {merge.algorithm.value}: {merge.reason}"
    yield from (f"  {line}" for line in broken_lines(stream, known))
    yield ""
    yield f"policy: {policy_text(stream.merged.policy)}"
    yield from (f"  {line}" for line in _policy_lines(stream.merged.policy))
    if stream.merged.end is not None:
        yield f"  {stream.merged.end} is the end of a row's lifetime; a feed that adjusts it corrects the row"
    yield ""
    for feed, each in zip(stream.merged.feeds, properties, strict=True):
        yield f"feed {feed.name}: {feed_text(feed, stream)}"
        yield from (f"  {line}" for line in _derived_lines(feed, each, derived))
        if feed.name in obstacles:
            yield f"  its query skips nothing: {obstacles[feed.name]}"
        elif feed.feedback:
            yield f"  its query skips results that {stream.name} has from other feeds already"


def _policy_lines(policy: MergePolicy) -> Iterator[str]:
    yield _EMIT_WORDS[policy.emit]
    yield _DISAGREEMENT_WORDS[policy.disagreement]
    stable = "the earliest feed" if policy.quorum == 1 else f"{policy.quorum} feeds"
    yield f"it is stable up to where {stable} {'is' if policy.quorum == 1 else 'are'}"


def _derived_lines(feed: Feed, found: FeedProperties, derived: Mapping[str, FeedProperties]) -> Iterator[str]:
    if feed.query is None or feed.name not in derived:
        return
    words = ", ".join(guarantee_words(derived[feed.name]))
    yield f"from the plan of query {feed.query}: {words}"
    if found not in (derived[feed.name], feed.properties):
        yield f"with what is declared: {', '.join(guarantee_words(found))}"
