"""How everything stands: what each stream holds, what waits, and what is due. Nothing is opened but the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from errata.catalog import commits, holdings, leases, ledger, quarantine, queries, streams
from errata.catalog.buckets import overlays_ever
from errata.catalog.holders import Life
from errata.catalog.holdings import Sizes
from errata.catalog.leases import Holder
from errata.catalog.published import Published, all_published, refusals
from errata.catalog.queries import RecordedQuery
from errata.catalog.stopped import Stopped, all_stopped
from errata.catalog.streams import Standing
from errata.errors import ErrataError, unknown
from errata.flows.answering.due import all_read, behind, left_out, reached, taken_up
from errata.flows.correcting.deferrals import Deferrals
from errata.flows.declaring.drift import drifted
from errata.flows.site import Site
from errata.flows.taking.landed import not_taken
from errata.flows.taking.landing import look
from errata.model.bucket import INLINE_STREAM_BYTES, Bucket, Role
from errata.model.compaction import worth_folding
from errata.model.evaluation import Refusal, together
from errata.model.instants import MINUTE
from errata.model.query import CheckedQuery
from errata.model.stream import Stream

COMPARED = 1_000
"""Of more queries than this the files are not read to tell which have changed: a look should be quick."""

LONG = 10 * MINUTE
"""Microseconds after which somebody who is at work on a query that has something to take up is worth a look."""


class Declared(StrEnum):
    """How the declaration in errata.yaml and the one in the catalog agree."""

    AGREED = "as declared"
    CHANGED = "changed, not applied"
    NEW = "not applied"
    GONE = "no longer declared"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """How one stream stands."""

    stream: Stream
    declared: Declared
    rows: int = 0
    """The rows that count now: those of buckets, as corrected."""
    base: Sizes = field(default_factory=Sizes)
    overlays: Sizes = field(default_factory=Sizes)
    """Corrections that lie over the buckets."""
    superseded: tuple[int, int] = (0, 0)
    """Buckets no longer live that readers of old commits may need, and their bytes."""
    inline_bytes: int = 0
    stable: int | None = None
    pending: int = 0
    """Revisions that wait to be applied."""
    quarantined: int = 0
    waiting: int | None = None
    """Files in the landing folder that have not been taken in; None when there is no such folder."""
    set_aside: int = 0
    """Files in the landing folder of which nothing can be taken in."""
    landing_fault: str | None = None
    """Why nobody can look into the landing folder."""

    @property
    def compaction_due(self) -> bool:
        over = self.overlays
        return self.inline_bytes >= INLINE_STREAM_BYTES or worth_folding(
            over.buckets, over.rows, self.base.rows, self.stream.bucket_rows
        )


class State(StrEnum):
    """How a query stands with regard to its streams."""

    CURRENT = "current"
    BEHIND = "behind"
    HELD = "held"
    """A query that it reads, directly or through others, has stopped."""
    STOPPED = "stopped"
    NEW = "not answered yet"
    EDITED = "edited, not evaluated"
    """What is published are the results of the form that it had before."""
    WAITING = "no rows yet"
    """Its streams have no stable point, so there is nothing to answer."""


DUE = frozenset({State.BEHIND, State.NEW, State.EDITED})
"""States in which a run would take a query further."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query: what it is, as it was applied, and how far it is answered."""

    name: str
    declared: Declared
    checked: CheckedQuery | None = None
    """None where it has not been applied."""
    state: State | None = None
    timed: bool = True
    """Whether its event time is a time; otherwise it is a plain number."""
    published: Published | None = None
    """Its results; those of its former form until an edited one has been evaluated."""
    reached: int | None = None
    """The instant up to which it could be answered."""
    commits: int = 0
    """Commits that moved its streams and that its answers do not contain."""
    stopped: Stopped | None = None
    may_go_on: bool = False
    """Whether something has come since it stopped that may have mended it: the next run tries."""
    waits_for: str | None = None
    """The query that has stopped and holds this one up."""
    pending: int = 0
    """Corrections and late rows of its streams that wait to be applied."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Of each stream, the corrections that have been applied and are not in the answers, nor will be by going on: they
    reach behind what has been answered, and a sweep brings them."""
    deferred: str | None = None
    """What pending and applied corrections wait for, in words, where `errata run` leaves them for now."""
    refused: Sequence[Refusal] = ()
    """Corrections that its results could not take up, those of one reason as one."""
    holder: Holder | None = None
    """Who is at work on it, and keeps others from it."""
    blocked: bool = False
    """Whether it has something to take up and its holder seems to be dead, or has been at work for long."""

    @property
    def instants(self) -> int | None:
        """How much further the streams reach than the answers; None where one of the two is not there."""
        if self.published is None or self.reached is None:
            return None
        return max(0, self.reached - self.published.frontier)


def query_status(site: Site) -> list[QueryStatus]:
    """The queries that are declared or recorded, by name. Unless they are many, their files are compared with what was
    applied."""
    recorded = queries.recorded(site.catalog)
    checked = {name: each.checked for name, each in recorded.items()}
    both = [name for name in recorded if name in site.project.queries]
    changed = drifted(site.project, checked, both) if len(both) <= COMPARED else {}
    look = _Look(site, recorded) if recorded else None
    found = []
    for name in sorted({*recorded, *site.project.queries}):
        if name not in recorded or look is None:
            found.append(QueryStatus(name, Declared.NEW))
            continue
        declared = Declared.CHANGED if name in changed else Declared.AGREED
        found.append(look.at(name, declared if name in site.project.queries else Declared.GONE))
    return found


class _Look:
    """What the catalog says of all streams and queries, read once for all of them."""

    def __init__(self, site: Site, recorded: Mapping[str, RecordedQuery]) -> None:
        self._catalog, self._recorded = site.catalog, recorded
        self._reads = {name: each.checked.reads for name, each in recorded.items()}
        self._standings = {each.stream.name: each for each in streams.standings(site.catalog)}
        self._sizes = holdings.sizes(site.catalog)
        self._published = all_published(site.catalog)
        self._stopped = all_stopped(site.catalog)
        self._deferrals, self._refusals = Deferrals(site), refusals(site.catalog)
        self._newest = commits.newest(site.catalog)
        self._holders = {each.name: each for each in leases.holders(site.catalog)}
        self._now = site.catalog.clock.now()
        self._came: dict[int, list[tuple[int, int, str]]] = {}
        self._overlays: dict[int, list[Bucket]] = {}

    def at(self, name: str, declared: Declared) -> QueryStatus:
        query = self._recorded[name]
        read = all_read(name, self._reads)
        bases = [self._standings[each] for each in read if each in self._standings]
        until, there = reached(bases), self._published.get(name)
        ours = there is not None and there.query_id == query.query_id
        found = QueryStatus(
            name,
            declared,
            query.checked,
            timed=all(each.stream.timed for each in bases),
            published=there,
            reached=until,
            commits=self._commits(there, bases) if there is not None else 0,
            stopped=self._stopped.get(query.query_id),
            may_go_on=self._may_go_on(query, bases),
            waits_for=next((each for each in read if self._has_stopped(each)), None),
            pending=sum(self._pending(each) for each in bases),
            left_out=self._left_out(there, bases) if there is not None and ours else {},
            deferred=self._deferrals.standing(name, self._published) if ours else None,
            refused=together(self._refusals.get(there.stream_id, ())) if there is not None and ours else (),
        )
        due = there is None or until is None or self.behind(there, bases, until)
        found = replace(found, state=_state(found, ours=ours, due=due), holder=self._holders.get(f"query {name}"))
        return replace(found, blocked=self._blocked(found))

    def _blocked(self, found: QueryStatus) -> bool:
        """Whether something that is due waits for a holder that may never do it."""
        due = found.state in DUE or bool(found.pending or found.left_out)
        if found.holder is None or not due:
            return False
        # Whoever lives renews when two thirds of the term are left.
        silent = found.holder.until - self._now < leases.TERM // 2
        return silent or found.holder.life is Life.DEAD or self._now - found.holder.since >= LONG

    def _may_go_on(self, query: RecordedQuery, bases: Sequence[Standing]) -> bool:
        halt = self._stopped.get(query.query_id)
        return halt is not None and any(each.changed_in > halt.data_commit for each in bases)

    def _has_stopped(self, name: str) -> bool:
        return name in self._recorded and self._recorded[name].query_id in self._stopped

    def _pending(self, standing: Standing) -> int:
        return self._sizes.get((standing.stream_id, Role.PENDING), Sizes()).rows

    def _commits(self, there: Published, bases: Sequence[Standing]) -> int:
        """How many commits have brought rows since."""
        ids = {each.stream_id for each in bases}
        return len({commit for stream_id, commit, _ in self._batches(there) if stream_id in ids})

    def _batches(self, there: Published) -> list[tuple[int, int, str]]:
        since = there.last.data_commit
        if since not in self._came:
            # Most queries have been answered as of the same commit.
            self._came[since] = ledger.since(self._catalog, since, self._newest)
        return self._came[since]

    def behind(self, there: Published, bases: Sequence[Standing], until: int) -> bool:
        """Whether anything has come, or been corrected further on, that is not in the answer."""
        came = {stream_id for stream_id, _, _ in self._batches(there)}
        return behind(there, bases, until, came) or any(self._goes_on(there, each) for each in bases)

    def _goes_on(self, there: Published, standing: Standing) -> bool:
        """Whether corrections are taken up by going on."""
        known = there.last.revisions.get(standing.stream.name, standing.applied)
        if known >= standing.applied:
            return False
        return taken_up(standing, self._all_overlays(standing), known, there.frontier) > known

    def _left_out(self, there: Published, bases: Sequence[Standing]) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in bases:
            known = there.last.revisions.get(each.stream.name, each.applied)
            if known < each.applied:
                rows = sum(bucket.rows for bucket in left_out(self._all_overlays(each), known, there.frontier))
                found |= {each.stream.name: rows} if rows else {}
        return found

    def _all_overlays(self, standing: Standing) -> list[Bucket]:
        if standing.stream_id not in self._overlays:
            self._overlays[standing.stream_id] = overlays_ever(self._catalog, standing.stream_id)
        return self._overlays[standing.stream_id]


def _state(found: QueryStatus, *, ours: bool, due: bool) -> State:
    if found.stopped is not None:
        return State.STOPPED
    if found.reached is None and found.published is None:
        return State.WAITING
    if found.published is not None and ours:
        held = found.waits_for is not None and bool(found.left_out)
        if found.reached is None or not (due or held):
            return State.CURRENT
        return State.BEHIND if found.waits_for is None else State.HELD
    if found.waits_for is not None:
        return State.HELD
    return State.NEW if found.published is None else State.EDITED


def status(site: Site, names: Sequence[str] = ()) -> list[StreamStatus]:
    """How the streams named stand, or all that are declared or recorded, by name."""
    recorded = {each.stream.name: each for each in streams.standings(site.catalog)}
    there = {*recorded, *site.project.streams}
    for name in names:
        if name not in there:
            raise unknown("stream", name, there)
    only = [recorded[name].stream_id for name in names if name in recorded]
    sizes, held = holdings.sizes(site.catalog, only), quarantine.counts(site.catalog)
    superseded = holdings.superseded(site.catalog, only)
    found = []
    for name in names or sorted(there):
        standing, declared = recorded.get(name), site.project.streams.get(name)
        if standing is None:
            found.append(StreamStatus(site.project.streams[name], Declared.NEW))
            continue
        pending = sizes.get((standing.stream_id, Role.PENDING), Sizes())
        found.append(
            StreamStatus(
                standing.stream,
                _agreement(standing.stream, declared),
                standing.rows,
                sizes.get((standing.stream_id, Role.BASE), Sizes()),
                sizes.get((standing.stream_id, Role.OVERLAY), Sizes()),
                superseded.get(standing.stream_id, (0, 0)),
                standing.inline_bytes,
                standing.stable,
                pending.rows,
                held.get(name, 0),
                *_waiting(site, standing),
            )
        )
    return found


def unsettled(site: Site, name: str) -> int:
    """How many files have landed and are passed over, because they changed a moment ago."""
    stream = site.project.streams[name]
    if stream.landing is None:
        return 0
    return len(look(site, streams.standing(site.catalog, name), stream).unsettled)


def _agreement(recorded: Stream, declared: Stream | None) -> Declared:
    if declared is None:
        return Declared.GONE
    return Declared.AGREED if declared == recorded else Declared.CHANGED


def _waiting(site: Site, standing: Standing) -> tuple[int | None, int, str | None]:
    """Files that wait in the landing folder, files of it that are set aside, and what is wrong with the folder."""
    if standing.stream.landing is None:
        return None, 0, None
    try:
        folder = look(site, standing, standing.stream)
    except ErrataError as error:
        return None, 0, str(error)
    return len(not_taken(site, standing, [*folder.ready, *folder.unsettled])), folder.held, None
