"""What becomes of statements about rows that the merge has forgotten, since its stable point has passed them: what the
archive has decides.

    the archive has the same row             a repeat
    it has none                              a late row: a gap is filled late
    it has another one of the key            a disagreement; by `disagreement: latest` a greater version replaces it
    an adjust or a withdrawal                a correction, which the archive takes or refuses as any other

What the archive has includes the revisions that are still to be applied. A statement behind the stable point that its
own feed had given may repeat what is there, and is refused if it would change anything.

Of several new rows of one key the first counts (by `latest` the one with the greatest version), and the others are
compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.ingest.duplicates import rows_equal
from errata.archive.ingest.merge_archive import rows_at
from errata.archive.ingest.merge_basis import MergeBasis
from errata.archive.ingest.merge_contradictions import OwnVerdict, check_own, refused_rows
from errata.archive.schemas import BATCH, pending_inserts
from errata.archive.tables import key_numbers, match_rows
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.intake.split_reader import OLD_GIVEN
from errata.intake.types import arrow_type
from errata.merge.elements import ELEMENT, FEED, GIVEN, OLD_END, OPEN, OWN_STABLE, SEQ, ElementKind
from errata.merge.outcome import disagreement_schema
from errata.merge.step import CHOSEN
from errata.model.batch import Op
from errata.model.feed import DisagreementPolicy
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST

ARCHIVE = -1
"""In place of a feed's number, in a disagreement: the row is the archive's."""


@dataclass(frozen=True, slots=True)
class BehindRows:
    """What becomes of statements behind the stable point."""

    pending: Sequence[pa.Table] = ()
    """Pending revisions with `_batch` (NULL: they are this batch's)."""
    repeats: dict[int, int] = field(default_factory=dict)
    """By feed: statements that say what the archive has."""
    said: dict[int, int] = field(default_factory=dict)
    """By feed: all statements behind the stable point."""
    refused: Sequence[pa.Table] = ()
    """As those of a merge step: what contradicts its own feed."""
    overruled: int = 0
    """New rows that lose against another one of their key."""
    disagreements: pa.Table | None = None
    """As those of a merge step; the archive's own row has the feed -1."""

    @property
    def repeated(self) -> int:
        return sum(self.repeats.values())


def resolve_behind(catalog: Catalog, warehouse: Warehouse, of: MergeBasis, behind: pa.Table) -> BehindRows:
    """Decide the statements that a merge step has left to the archive."""
    if not behind.num_rows:
        return BehindRows()
    stream = of.stood.stream
    behind = behind.sort_by(SEQ).combine_chunks()
    order = behind[stream.order].cast(pa.int64()).fill_null(HIGHEST).to_numpy()
    archived = rows_at(catalog, warehouse, of.stood, order[order < HIGHEST])
    is_insert = pc.equal(behind[ELEMENT], int(ElementKind.INSERT)).to_numpy()
    bound = behind[OWN_STABLE].to_numpy() > order
    decided = _compare(stream, behind.filter(pa.array(is_insert & ~bound)), archived)
    there = pa.concat_tables([archived.select(stream.names), decided.late.select(stream.names)])
    own = behind.filter(pa.array(bound))
    verdict = check_own(stream, own, there)
    refused = own.filter(pa.array(verdict == OwnVerdict.REFUSED))
    corrections = [behind.filter(pa.array(~is_insert & ~bound)), own.filter(pa.array(verdict == OwnVerdict.TAKEN))]
    repeats = pa.concat_tables([decided.repeats, own.filter(pa.array(verdict == OwnVerdict.REPEAT))])
    return BehindRows(
        [
            _pending(stream, decided.late, Op.INSERT),
            _pending(stream, decided.newer, Op.REPLACE),
            _pending_corrections(stream, pa.concat_tables(corrections)),
        ],
        count_by_feed(repeats),
        count_by_feed(behind),
        [refused_rows(refused)],
        decided.overruled,
        decided.disagreements,
    )


@dataclass(frozen=True, slots=True)
class _Compared:
    """New rows beside those of the archive."""

    late: pa.Table
    newer: pa.Table
    """Rows that replace the archive's."""
    repeats: pa.Table
    overruled: int
    disagreements: pa.Table


def _compare(stream: Stream, rows: pa.Table, archived: pa.Table) -> _Compared:
    if not rows.num_rows:
        return _Compared(rows, rows, rows, 0, disagreement_schema(stream).empty_table())
    fed = stream.as_fed
    key = list(fed.key)
    both = pa.concat_tables([rows.select(fed.names), archived.select(fed.names)])
    count = rows.num_rows
    new, old = match_rows(rows.select(key), archived.select(key), key)
    same = rows_equal(both, new, count + old)
    there, repeats = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    there[new] = True
    repeats[new[same]] = True
    stands = np.full(count, -1)
    stands[new[::-1]] = count + old[::-1]
    candidates = _candidates(stream, rows, key)
    # Rows of keys that the archive lacks are compared with the one that will be there.
    absent = np.flatnonzero(~there)
    stands[absent] = candidates[absent]
    others = absent[candidates[absent] != absent]
    repeats[others] = rows_equal(both, others, candidates[others])
    late = np.zeros(count, dtype=bool)
    late[absent[candidates[absent] == absent]] = True
    against = ~repeats & ~late
    newer = _newer(stream, both, stands, against & there & (candidates == np.arange(count)))
    told = _disagreements(stream, rows, archived, stands, against, newer)
    kept = [rows.filter(pa.array(each)) for each in (late, newer, repeats)]
    return _Compared(kept[0], kept[1], kept[2], int((against & ~newer).sum()), told)


def _candidates(stream: Stream, rows: pa.Table, key: Sequence[str]) -> np.ndarray:
    """For each row the one of its key that counts: the first, or the one with the greatest version."""
    numbers = key_numbers(rows.select(list(key)))
    ranks = np.zeros(rows.num_rows, dtype=np.int64)
    version = _version(stream)
    if version is not None:
        ranks = pc.rank(rows[version].combine_chunks(), sort_keys="descending", tiebreaker="min").to_numpy()
    order = np.lexsort((np.arange(rows.num_rows), ranks, numbers))
    first = np.full(int(numbers.max()) + 1, -1)
    first[numbers[order][::-1]] = order[::-1]
    chosen: np.ndarray = first[numbers]
    return chosen


def _version(stream: Stream) -> str | None:
    policy = stream.merged.policy
    return policy.version if policy.disagreement is DisagreementPolicy.LATEST else None


def _newer(stream: Stream, both: pa.Table, stands: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Which of the rows have a greater version than the archive's."""
    newer = np.zeros(len(asked), dtype=bool)
    version = _version(stream)
    index = np.flatnonzero(asked)
    if version is None or not len(index):
        return newer
    mine, theirs = both[version].take(pa.array(index)), both[version].take(pa.array(stands[index]))
    greater = pc.or_(pc.greater(mine, theirs).fill_null(False), pc.and_(mine.is_valid(), theirs.is_null()))
    newer[index] = greater.to_numpy()
    return newer


def _disagreements(
    stream: Stream, rows: pa.Table, archived: pa.Table, stands: np.ndarray, against: np.ndarray, newer: np.ndarray
) -> pa.Table:
    """For each row that says something else: it, and the row that stood there. Whose counts is marked."""
    schema = disagreement_schema(stream)
    if not against.any():
        return schema.empty_table()
    count = rows.num_rows
    overruled = np.isin(stands, stands[newer]) if newer.any() else np.zeros(count, dtype=bool)
    index = np.flatnonzero(against)
    own = _said(rows, index, newer[index])
    standing = np.unique(stands[index])
    lost = set(stands[index[overruled[index]]].tolist())
    of_batch, of_archive = standing[standing < count], standing[standing >= count]
    first = _said(rows, of_batch, np.ones(len(of_batch), dtype=bool))
    found = archived.take(pa.array(of_archive - count))
    wins = pa.array([each not in lost for each in of_archive.tolist()], pa.bool_())
    found = found.append_column(CHOSEN, wins).append_column(FEED, pa.repeat(pa.scalar(ARCHIVE, pa.int16()), len(wins)))
    return pa.concat_tables([each.select(schema.names).cast(schema) for each in (own, first, found)])


def _said(rows: pa.Table, index: np.ndarray, chosen: np.ndarray) -> pa.Table:
    some = rows.take(pa.array(index)).append_column(CHOSEN, pa.array(chosen))
    return some.append_column(BATCH, pa.nulls(some.num_rows, pa.int64()))


# As pending revisions.


def _pending(stream: Stream, rows: pa.Table, op: Op) -> pa.Table:
    rows = _numbered(stream, rows)
    return with_batch(pending_inserts(stream, rows, rows[POS].to_numpy(), op.value))


def _numbered(stream: Stream, rows: pa.Table) -> pa.Table:
    """Rows with the number that tells equal ones apart, if they have one: the archive has none of them yet."""
    number = stream.merged.occurrence
    if number is None:
        return rows
    first = rows[number].fill_null(0)
    return rows.set_column(rows.column_names.index(number), number, first)


def _pending_corrections(stream: Stream, rows: pa.Table) -> pa.Table:
    """Adjusts and withdrawals as pending revisions, with the columns that they give, and the end that they claim."""
    rows = _numbered(stream, rows)
    table = pending_inserts(stream, rows, rows[POS].to_numpy(), Op.REPLACE.value)
    deletes = pc.equal(rows[ELEMENT], int(ElementKind.WITHDRAW))
    ops = pc.if_else(deletes, Op.DELETE.value, Op.REPLACE.value)
    table = table.set_column(table.column_names.index("_op"), table.schema.field("_op"), ops)
    given = rows[GIVEN].fill_null(",".join(stream.names))
    table = table.set_column(table.column_names.index(GIVEN), table.schema.field(GIVEN), given)
    end = stream.merged.end
    if end is None:
        return with_batch(table)
    old = rows[OLD_END]
    claimed = pc.if_else(old.is_valid(), end, "")
    table = table.set_column(table.column_names.index(OLD_GIVEN), table.schema.field(OLD_GIVEN), claimed)
    was = pc.if_else(pc.equal(old, OPEN), pa.scalar(None, pa.int64()), old).cast(arrow_type(stream.column(end).type))
    name = old_column(end)
    return with_batch(table.set_column(table.column_names.index(name), table.schema.field(name), was))


def with_batch(pending: pa.Table) -> pa.Table:
    """Pending revisions of this batch beside those that earlier ones said."""
    return pending.append_column(pa.field(BATCH, pa.int64()), pa.nulls(pending.num_rows, pa.int64()))


def count_by_feed(rows: pa.Table) -> dict[int, int]:
    """Statements by feed."""
    feeds, counts = np.unique(rows[FEED].to_numpy(), return_counts=True)
    return dict(zip(feeds.tolist(), counts.tolist(), strict=True))
