"""Merged feeds in the catalog: where each feed stands, how they are merged, and what they disagree about.

What a commit changes of them is a `FeedChange`, which `transaction.Transaction` carries out together with the rest of
the commit, under the lock on the stream's row. A reader sees them as they are now: they have no history by commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from errata.catalog.database import Catalog
from errata.catalog.feed_tables import disagreements, feeds, merges
from errata.catalog.streams import current_state
from errata.catalog.transaction import Transaction, lock_basis
from errata.model.commit import Cause
from errata.model.feed import MergeAlgorithm
from errata.model.stream import Stream
from errata.model.time import LOWEST

THIS_COMMIT = -1
"""In place of a commit's number, in a change: that of the commit which makes it."""

KEYS_PER_STATEMENT = 500
"""Keys in one statement: SQLite's limit on parameters is 999 in old builds."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """A feed and where it stands. Places that are not known are LOWEST."""

    name: str
    number: int
    """Its place in the declaration."""
    attached: bool = True
    joins_at: int = LOWEST
    """It counts for the stable point once the merge has come to this place."""
    stable: int = LOWEST
    top_order: int = LOWEST
    """The order field of its last instant; `top_rows` of its rows have it (R0 to R2)."""
    top_rows: int = 0
    rows: int = 0
    """Statements that it has made, stable elements left out."""
    repeats: int = 0
    filled: int = 0
    """Rows that it lacked and another feed had."""
    behind: int = 0
    """Statements about what the merged stream had frozen."""
    refused: int = 0
    suspect_reason: str | None = None
    suspect_in: int | None = None
    """The commit in which it has contradicted what it had frozen; None: it is not suspect."""
    last_commit: int | None = None
    """The last commit that took in something of it."""
    attached_in: int | None = None
    """The commit in which it was attached again: what it had said before is forgotten, since it may say it anew."""
    broken: Sequence[Mapping[str, Any]] = ()
    """Guarantees that it has broken: `guarantee`, `what`, `file` and `line`."""


@dataclass(frozen=True, slots=True)
class MergeRecord:
    """How the feeds of a stream are merged."""

    algorithm: MergeAlgorithm
    reason: str
    stable: int = LOWEST
    leader: str | None = None
    since_commit: int | None = None
    """Since which commit by this algorithm; None, in a change: by that of the change, if the algorithm is another."""
    leader_since: int | None = None
    switches: int = 0
    """How often another feed has taken the lead."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A key about which feeds say different things."""

    key: Mapping[str, Any]
    """The key's columns as text."""
    place: int
    chosen: str
    """The feed whose value counts."""
    policy: str
    values: Sequence[Mapping[str, Any]]
    """For each feed: `feed`, `row` (its columns as text, NULL as None), `file`, `line`, `chosen`."""
    opened_in: int | None = None
    changed_in: int | None = None
    resolved_in: int | None = None
    """The commit since which they agree."""
    disagreement_id: int | None = None

    @property
    def digest(self) -> str:
        return key_digest(self.key)


@dataclass(frozen=True, slots=True)
class FeedChange:
    """What a commit changes of a stream's feeds."""

    feeds: Sequence[FeedState] = ()
    """New values; feeds that are not among them stay as they are."""
    merge: MergeRecord | None = None
    disagreements: Sequence[Disagreement] = ()
    """Found in the commit, or found again with other values."""
    agreed: Sequence[Mapping[str, Any]] = ()
    """Keys about which the feeds agree again."""
    gone: Sequence[str] = ()
    """Feeds that are forgotten altogether."""

    def record(self, connection: Connection, stream_id: int, commit_id: int) -> None:
        """Write the change. The caller has locked the stream's row."""
        _write_feeds(connection, stream_id, commit_id, self)
        if self.merge is not None:
            _write_merge(connection, stream_id, commit_id, self.merge)
        _write_disagreements(connection, stream_id, commit_id, self)


def key_digest(key: Mapping[str, Any]) -> str:
    """The hash by which a disagreement is found by its key."""
    return hashlib.sha256(_key_text(key).encode()).hexdigest()


def _key_text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, separators=(",", ":"), ensure_ascii=False)


# Reading.


def feeds_of(catalog: Catalog, stream_id: int) -> list[FeedState]:
    """The feeds of a stream that the catalog knows, in the order of the declaration. A declared feed of which nothing
    has come is not among them until it is attached or detached: see `standing_feeds`."""
    with catalog.reading() as connection:
        return feeds_within(connection, stream_id)


def feeds_within(connection: Connection, stream_id: int) -> list[FeedState]:
    """The same, within a transaction."""
    query = select(feeds).where(feeds.c.stream_id == stream_id).order_by(feeds.c.number, feeds.c.name)
    names = list(FeedState.__dataclass_fields__)
    return [FeedState(**{name: getattr(row, name) for name in names}) for row in connection.execute(query)]


def standing_feeds(stream: Stream, known: Iterable[FeedState]) -> list[FeedState]:
    """The declared feeds of a stream as they stand, in the order of the declaration."""
    by_name = {each.name: each for each in known}
    return [
        _numbered(by_name.get(feed.name) or FeedState(feed.name, number, joins_at=feed.joins_at), number)
        for number, feed in enumerate(stream.merged.feeds)
    ]


def _numbered(state: FeedState, number: int) -> FeedState:
    return state if state.number == number else replace(state, number=number)


def merge_of(catalog: Catalog, stream_id: int) -> MergeRecord | None:
    """How the feeds of a stream are merged; None before the first batch."""
    with catalog.reading() as connection:
        return merge_within(connection, stream_id)


def merge_within(connection: Connection, stream_id: int) -> MergeRecord | None:
    row = connection.execute(select(merges).where(merges.c.stream_id == stream_id)).first()
    if row is None:
        return None
    return MergeRecord(
        MergeAlgorithm(row.algorithm),
        row.reason,
        row.stable,
        row.leader,
        row.since_commit,
        row.leader_since,
        row.switches,
    )


@dataclass(frozen=True, slots=True)
class DisagreementFilter:
    """Which disagreements of a stream are meant: those that stand, the newest last."""

    resolved: bool = False
    """Also those about which the feeds agree again."""
    key: Mapping[str, Any] | None = None
    last: int | None = None
    feed: str | None = None
    """Those in which this feed's value does not count."""


def disagreements_of(
    catalog: Catalog, stream_id: int, wanted: DisagreementFilter = DisagreementFilter()
) -> list[Disagreement]:
    """The disagreements of a stream, in the order in which they began."""
    query = select(disagreements).where(disagreements.c.stream_id == stream_id)
    if not wanted.resolved:
        query = query.where(disagreements.c.resolved_in.is_(None))
    if wanted.key is not None:
        query = query.where(disagreements.c.digest == key_digest(wanted.key))
    query = query.order_by(disagreements.c.disagreement_id.desc())
    if wanted.last is not None and wanted.feed is None:
        query = query.limit(wanted.last)
    with catalog.reading() as connection:
        found = [_disagreement(row) for row in connection.execute(query)]
    if wanted.feed is not None:
        found = [each for each in found if _is_overruled(each, wanted.feed)][: wanted.last]
    return found[::-1]


def standing_disagreements(catalog: Catalog, stream_id: int) -> int:
    """How many keys the feeds disagree about."""
    query = select(func.count()).where(disagreements.c.stream_id == stream_id, disagreements.c.resolved_in.is_(None))
    with catalog.reading() as connection:
        return int(connection.execute(query).scalar_one())


def _is_overruled(disagreement: Disagreement, feed: str) -> bool:
    return any(each["feed"] == feed and not each["chosen"] for each in disagreement.values)


def _disagreement(row: Row[Any]) -> Disagreement:
    return Disagreement(
        json.loads(row.key),
        row.place,
        row.chosen,
        row.policy,
        row.said,
        row.opened_in,
        row.changed_in,
        row.resolved_in,
        row.disagreement_id,
    )


# Writing.

_COMMITS = ("suspect_in", "last_commit", "attached_in")


def commit_feeds(
    catalog: Catalog,
    stream_id: int,
    change: Callable[[Stream, list[FeedState]], FeedChange],
    cause: Cause,
    summary: Mapping[str, object],
) -> int:
    """Change feeds by a commit of its own (attach, detach, trust); its number. `change` gets the declared feeds as they
    stand under the lock, and may refuse."""
    with catalog.writing() as connection:
        now = lock_basis(connection, stream_id)
        stream = current_state(connection, now).stream
        wanted = change(stream, standing_feeds(stream, feeds_within(connection, stream_id)))
        return Transaction(cause=cause, summary=summary, archive=now, feeds=wanted, state={}).commit(
            connection, catalog.clock.now()
        )


def _write_feeds(connection: Connection, stream_id: int, commit_id: int, change: FeedChange) -> None:
    written = [each.name for each in change.feeds]
    for names in (written, list(change.gone)):
        if names:
            connection.execute(delete(feeds).where(feeds.c.stream_id == stream_id, feeds.c.name.in_(names)))
    if change.feeds:
        connection.execute(insert(feeds), [_feed_row(stream_id, commit_id, each) for each in change.feeds])


def _feed_row(stream_id: int, commit_id: int, state: FeedState) -> dict[str, Any]:
    known = {"stream_id": stream_id, **asdict(state), "broken": [dict(each) for each in state.broken]}
    return {name: commit_id if value == THIS_COMMIT and name in _COMMITS else value for name, value in known.items()}


def _write_merge(connection: Connection, stream_id: int, commit_id: int, merge: MergeRecord) -> None:
    known = merge_within(connection, stream_id)
    same = known is not None and known.algorithm is merge.algorithm
    led = known is not None and known.leader == merge.leader
    switched = known is not None and not led and known.leader is not None and merge.leader is not None
    values = {
        "algorithm": merge.algorithm.value,
        "reason": merge.reason,
        "stable": merge.stable,
        "leader": merge.leader,
        "since_commit": known.since_commit if known is not None and same else commit_id,
        "leader_since": known.leader_since if known is not None and led else commit_id,
        "switches": (0 if known is None else known.switches) + switched,
    }
    if known is None:
        connection.execute(insert(merges).values(stream_id=stream_id, **values))
    else:
        connection.execute(update(merges).where(merges.c.stream_id == stream_id).values(values))


def _write_disagreements(connection: Connection, stream_id: int, commit_id: int, change: FeedChange) -> None:
    found = {each.digest: each for each in change.disagreements}
    agreed = {key_digest(each) for each in change.agreed} - found.keys()
    standing = _standing_ids(connection, stream_id, [*found, *agreed])
    c = disagreements.c
    for digest in agreed & standing.keys():
        one = update(disagreements).where(c.disagreement_id == standing[digest])
        connection.execute(one.values(resolved_in=commit_id))
    new = []
    for digest, each in found.items():
        values: dict[str, Any] = {
            "place": each.place,
            "changed_in": commit_id,
            "chosen": each.chosen,
            "policy": each.policy,
            "said": [dict(value) for value in each.values],
        }
        if digest in standing:
            connection.execute(update(disagreements).where(c.disagreement_id == standing[digest]).values(values))
        else:
            new.append(
                values | {"stream_id": stream_id, "digest": digest, "key": _key_text(each.key), "opened_in": commit_id}
            )
    if new:
        connection.execute(insert(disagreements), new)


def _standing_ids(connection: Connection, stream_id: int, digests: Sequence[str]) -> dict[str, int]:
    """The disagreements that stand, of these keys."""
    c = disagreements.c
    found: dict[str, int] = {}
    for start in range(0, len(digests), KEYS_PER_STATEMENT):
        some = digests[start : start + KEYS_PER_STATEMENT]
        query = select(c.digest, c.disagreement_id)
        query = query.where(c.stream_id == stream_id, c.digest.in_(some), c.resolved_in.is_(None))
        found.update((row.digest, row.disagreement_id) for row in connection.execute(query))
    return found
