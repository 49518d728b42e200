"""Scans: the index names the buckets, an engine is given exactly those with a declared schema, and filters inside them.

What has been corrected lies in overlays. A row of a base bucket counts unless an overlay masks it (by key and place),
and the rows of overlays count that no later one masks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.masks import read_overlays, sources
from errata.archive.overlay import LIVE, MASKS, OLD_REVISION, REVISION, overlay_schema
from errata.archive.tasks import LOCAL_ROWS, opened
from errata.archive.warehouse import Warehouse
from errata.archive.wire import old_column
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing, aged_to_at
from errata.engine.frames import broadcast, joined, selected, united
from errata.engine.plans.rows import instant, quoted
from errata.engine.types import arrow_ddl, ddl
from errata.engine.values import as_frame
from errata.errors import ErrataError
from errata.intake.arrow_types import arrow_schema
from errata.language.expr import STRING, Lit, literal
from errata.model.bucket import Bucket, Role
from errata.model.interval import EVERYTHING, HIGHEST, LOWEST, Interval
from errata.model.stream import Stream

Group = tuple[str | None, ...]

BROADCAST_ROWS = 1_000_000
"""Masks up to this many go to every task whole; how more of them are joined is Spark's choice."""

_HASH, _MASK_HASH, _MASK_NUMBER = "_hash", "_mask_hash", "_mask_number"


@dataclass(frozen=True, slots=True)
class Scan:
    """What is asked of an archive: the stream as of a commit, an interval of its order field, some of its groups."""

    standing: Standing
    """The stream, and where it stood at the commit."""
    commit_id: int
    interval: Interval = EVERYTHING
    groups: frozenset[Group] | None = None
    """Values of the group columns as text; None for all."""
    revisions_up_to: int | None = None
    """Only revisions up to this number have a say; None: all that had been applied at the commit."""

    @property
    def last_revision(self) -> int:
        return HIGHEST if self.revisions_up_to is None else self.revisions_up_to

    @property
    def leaves_out(self) -> bool:
        """Whether revisions that have been applied are left out."""
        return self.last_revision < self.standing.applied


@dataclass(frozen=True, slots=True)
class Found:
    """The buckets that can hold what is asked for: all that a scan opens."""

    base: Sequence[Bucket]
    overlays: Sequence[Bucket] = ()
    aged_before: Mapping[int, int | None] = field(default_factory=dict)
    """How far the stream had been aged when a commit added a bucket, where it matters."""

    @property
    def all(self) -> list[Bucket]:
        return [*self.base, *self.overlays]


def candidates(catalog: Catalog, scan: Scan, *, indexed: bool = False) -> Found:
    """What the index has of the interval and the groups at the commit. Pieces of one table are all opened, as if there
    were no index, unless `indexed` tells otherwise."""
    _check_not_folded(scan)
    standing = scan.standing
    at, asked = (catalog, standing.stream_id, scan.commit_id), (scan.interval, scan.groups)
    base = buckets.visible(*at, *(asked if indexed or not standing.stream.one_table else ()))
    # A stream that no revision has ever been applied to has no overlays to look for.
    if not standing.applied:
        return Found(base)
    if scan.leaves_out and not standing.stream.key_has_order:
        # A revision that is left out may have freed a key in one place, and its row have come in another.
        return Found(base, buckets.visible(*at, role=Role.OVERLAY), _aged_before(catalog, scan, base))
    # A revision that is left out may have freed a key for a row of another group.
    groups = None if scan.leaves_out else scan.groups
    overlays = buckets.visible(*at, scan.interval, groups, role=Role.OVERLAY)
    return Found(base, [overlay for overlay in overlays if _meets(overlay, scan.interval)])


def _aged_before(catalog: Catalog, scan: Scan, base: Iterable[Bucket]) -> dict[int, int | None]:
    """How far the stream had been aged when each of these commits added a bucket."""
    wanted = {bucket.added_in for bucket in base if bucket.floor > scan.last_revision}
    with catalog.reading() as connection:
        return {commit_id: aged_to_at(connection, scan.standing.stream_id, commit_id) for commit_id in wanted}


def _meets(overlay: Bucket, interval: Interval) -> bool:
    """Whether an overlay masks or brings rows there; the index knows the hull of both only."""
    return any(ends is not None and interval.meets(*ends) for ends in (overlay.masks, overlay.content))


def _check_not_folded(scan: Scan) -> None:
    # Of the stream, not of the buckets that are opened: where the last row was deleted there is none.
    folded = scan.standing.folded
    if scan.last_revision < folded:
        raise ErrataError(
            f"revision {scan.revisions_up_to} can no longer be told apart as of commit {scan.commit_id}",
            where=f"stream {scan.standing.stream.name}",
            why=f"compaction has worked revisions up to {folded} into the buckets",
            how=f"read up to revision {folded} or a later one, or as of a commit before the compaction",
        )


def scan_rows(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, scan: Scan, found: Found | None = None
) -> DataFrame:
    """The rows asked for, in no particular order; `found` are the scan's candidates, if they are at hand."""
    found = candidates(catalog, scan) if found is None else found
    stream = scan.standing.stream
    if not found.overlays:
        return _asked(open_buckets(session, catalog, warehouse, stream, found.base, scan.interval), scan, found.base)
    overlaid = open_overlays(session, catalog, warehouse, stream, found.overlays)
    size, chained = sum(each.rows for each in found.overlays), any(each.masked for each in found.overlays)
    masking = _Masking(stream, overlaid, scan.last_revision, size, chained)
    parts = []
    for how, some in by_masks(scan, found):
        rows = _asked(open_buckets(session, catalog, warehouse, stream, some, scan.interval), scan, some)
        rows = rows if how.floor is None else masking.unmasked(rows, how.floor)
        parts.append(rows if how.later is None else masking.not_displaced(rows, how.later, how.aged_to))
    parts.append(_asked(masking.surviving(), scan))
    return united(parts)


@dataclass(frozen=True, slots=True)
class Masked:
    """What overlays can do to a base bucket's rows."""

    floor: int | None
    """Revisions after this number can mask them; None: none can."""
    later: int | None = None
    """Rows may only have come because revisions up to this number, which are left out, had made room for them."""
    aged_to: int | None = None
    """How far the stream had been aged when they came."""


def by_masks(scan: Scan, found: Found) -> list[tuple[Masked, list[Bucket]]]:
    """Base buckets by what overlays can do to them, so that most are read without a join, and the rest in one."""
    classes: defaultdict[Masked, list[Bucket]] = defaultdict(list)
    known = [each for each in found.overlays if each.masks is not None]
    for bucket in found.base:
        reach = Interval(bucket.vs_min, bucket.vs_max + 1)
        touching = [each for each in known if each.masks is not None and reach.meets(*each.masks)]
        # 0 stands for all that came before every overlay that touches them: these are joined together.
        floor = None if not touching else bucket.floor if min(map(_last, touching)) <= bucket.floor else 0
        freeing = touching if scan.standing.stream.key_has_order else known
        if any(_last(each) > scan.last_revision and _first(each) <= bucket.floor for each in freeing):
            how = Masked(floor, bucket.floor, found.aged_before.get(bucket.added_in))
        else:
            how = Masked(floor)
        classes[how].append(bucket)
    return list(classes.items())


def _first(overlay: Bucket) -> int:
    return overlay.revision_first or 0


def _last(overlay: Bucket) -> int:
    return overlay.revision_last or 0


@dataclass(frozen=True, slots=True)
class _Masking:
    """What overlays do to rows, for those who read with the revisions up to a number."""

    stream: Stream
    overlaid: DataFrame
    up_to: int
    size: int
    chained: bool
    """Whether revisions have superseded what other revisions brought."""

    def unmasked(self, rows: DataFrame, floor: int) -> DataFrame:
        """Rows of base buckets that no revision after the floor masks."""
        return self._without(rows, self._masks(self._known, floor or None), self._places)

    def not_displaced(self, rows: DataFrame, floor: int, aged_to: int | None) -> DataFrame:
        """Rows of base buckets without those that could only come because a revision that is left out, up to the
        floor, had freed their key: the row that has it without that revision is then still there."""
        freed = self.overlaid.where(
            f"{REVISION} > {self.up_to}L AND {REVISION} <= {floor}L"
            f" AND ({OLD_REVISION} IS NULL OR {OLD_REVISION} <= {self.up_to}L)"
        )
        if aged_to is not None:
            freed = freed.where(f"{quoted(old_column(self.stream.order))} >= {place(self.stream, aged_to)}")
        return self._without(rows, self._masks(freed), [*self.stream.key])

    def surviving(self) -> DataFrame:
        """Rows of the overlays that no later one masks."""
        rows = selected(self._known.where(LIVE), *map(quoted, self.stream.names), REVISION)
        if not self.chained:
            return rows.drop(REVISION)
        left = self._without(rows, self._masks(self._known), self._places, f" AND {_MASK_NUMBER} > {REVISION}")
        return left.drop(REVISION)

    def _without(self, rows: DataFrame, masks: DataFrame, columns: Sequence[str], also: str = "") -> DataFrame:
        # One number to look for in a hash table of numbers, and the columns themselves only when it is found. Spark
        # would put every equality into the table's key, and the table would be several times slower to ask: so the
        # columns are compared by what Spark does not know for an equality.
        masks = selected(masks, "*", f"{self._number([_masked(name) for name in columns])} AS {_MASK_HASH}")
        pairs = [(quoted(name), quoted(_masked(name))) for name in columns]
        same = "".join(f" AND {own} >= {masked} AND {own} <= {masked}" for own, masked in pairs)
        hashed = selected(rows, "*", f"{self._number(columns)} AS {_HASH}")
        masks = broadcast(masks) if self.size <= BROADCAST_ROWS else masks
        return joined(hashed, masks, f"{_HASH} = {_MASK_HASH}{same}{also}", "left_anti").drop(_HASH)

    def _number(self, columns: Sequence[str]) -> str:
        """A number that rows share which agree in the columns: the place if it is among them, since few rows have the
        same, and nothing has to be computed for it."""
        order = next((name for name in columns if name in (self.stream.order, _masked(self.stream.order))), None)
        if order is None:
            return f"xxhash64({', '.join(map(quoted, columns))})"
        return f"unix_micros({quoted(order)})" if self.stream.timed else quoted(order)

    def _masks(self, overlaid: DataFrame, floor: int | None = None) -> DataFrame:
        masks = overlaid.where(MASKS if floor is None else f"{MASKS} AND {REVISION} > {floor}L")
        old = (f"{quoted(old_column(name))} AS {quoted(_masked(name))}" for name in self._places)
        return selected(masks, f"{REVISION} AS {_MASK_NUMBER}", *old)

    @property
    def _known(self) -> DataFrame:
        return self.overlaid if self.up_to == HIGHEST else self.overlaid.where(f"{REVISION} <= {self.up_to}L")

    @property
    def _places(self) -> list[str]:
        """A row is masked by key and place: the key may be free again, and taken elsewhere."""
        return place_columns(self.stream)


def place_columns(stream: Stream) -> list[str]:
    """The columns that tell one version of a row from all others at one revision: its key, and where it lies."""
    return [*stream.key] if stream.key_has_order else [*stream.key, stream.order]


def _masked(name: str) -> str:
    return f"_masked_{name}"


def open_buckets(
    session: SparkSession,
    catalog: Catalog,
    warehouse: Warehouse,
    stream: Stream,
    found: Sequence[Bucket],
    interval: Interval = EVERYTHING,
) -> DataFrame:
    """The rows of base buckets, at least those of an interval; columns that were added later are NULL in older ones."""
    return opened(session, catalog, warehouse, found, arrow_schema(stream), ddl(stream), (stream.order, interval))


def open_overlays(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, stream: Stream, found: Sequence[Bucket]
) -> DataFrame:
    """All rows of overlays, with what a scan needs of `overlay.overlay_schema`."""
    # Of the old rows only their places matter to a scan.
    old = [*map(old_column, place_columns(stream))]
    told = {REVISION, OLD_REVISION, MASKS, LIVE, *stream.names, *old}
    schema = pa.schema([column for column in overlay_schema(stream) if column.name in told])
    if sum(bucket.rows for bucket in found) > LOCAL_ROWS:
        return opened(session, catalog, warehouse, found, schema, arrow_ddl(schema))
    rows = read_overlays(stream, warehouse, sources(catalog, found), schema.names)
    return as_frame(session, rows.select(schema.names), arrow_ddl(schema))


def place(stream: Stream, value: int) -> str:
    """A place as SQL compares the order field with it."""
    return f"timestamp_micros({value}L)" if stream.timed else instant(value)


def _asked(rows: DataFrame, scan: Scan, base: Iterable[Bucket] | None = None) -> DataFrame:
    """Those of the rows that the scan asks for and that have not been aged out; `base` are the buckets that they are
    of, if they are of buckets."""
    stream, interval, aged_to = scan.standing.stream, scan.interval, scan.standing.aged_to
    reaches_back = aged_to is not None and (base is None or any(bucket.vs_min < aged_to for bucket in base))
    start = max(interval.start, aged_to) if reaches_back and aged_to is not None else interval.start
    if start > LOWEST:
        rows = rows.where(f"{quoted(stream.order)} >= {place(stream, start)}")
    if interval.end < HIGHEST:
        rows = rows.where(f"{quoted(stream.order)} < {place(stream, interval.end)}")
    return rows if scan.groups is None else rows.where(_of_groups(stream, scan.groups))


def _of_groups(stream: Stream, groups: frozenset[Group]) -> str:
    """That the group columns equal one of the groups, compared as values, not as text, so that Parquet can prune."""
    return (
        " OR ".join(
            " AND ".join(_equal(stream, *each) for each in zip(stream.group, group, strict=True))
            for group in sorted(groups, key=repr)
        )
        or "false"
    )


def _equal(stream: Stream, name: str, text: str | None) -> str:
    if text is None:
        return f"{quoted(name)} IS NULL"
    return f"{quoted(name)} = CAST({literal(Lit(text, STRING))} AS {stream.column(name).type})"
