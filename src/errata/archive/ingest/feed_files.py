"""Files of feeds to elements: what each feed says in a batch, in the order in which it says it.

A split is read alone, in this process or in a task: its statements about rows, its stable elements, and the lines that
are neither. How far a feed was stable before a statement depends on the splits before it, so a split also tells how far
its own stable elements go; these are few numbers, from which the rest follows (`split_beginnings`).

Every line is counted once: as a statement, or as a bad row. Stable elements are no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.schemas import BAD_ROW_SCHEMA, AppendContext
from errata.intake.feed_rows import STABLE, type_feed_rows
from errata.intake.layout import OLD_PREFIX, OP, FileLayout
from errata.intake.split_reader import GIVEN, OLD_GIVEN, SplitRows, read_split
from errata.intake.types import arrow_schema
from errata.merge.elements import ELEMENT, FEED, OLD_END, OPEN, OWN_STABLE, POS, SEQ, ElementKind, element_schema
from errata.model.batch import FileSplit, Op, row_position
from errata.model.feed import Feed, StableRule
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST, format_duration, format_instant


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """What one split of a feed's file says, as far as other splits and the counts of the batch depend on it."""

    feed: int
    number: int
    marked: int | None
    """The greatest place of its stable elements."""
    top: int | None
    """The greatest order field of the rows that it says there are."""
    lines: int
    said: int
    """How many statements it has."""
    records: int
    """How many rows it has, sound or not."""


@dataclass(frozen=True, slots=True)
class FeedSplit:
    """What one split of a feed's file says."""

    summary: SplitSummary
    elements: pa.Table
    """Its statements in the order of the lines, without their numbers in the batch. `_own_stable` is what the split
    itself has said before; LOWEST if nothing."""
    bad: pa.Table
    """Lines for quarantine (`BAD_ROW_SCHEMA`)."""


def read_feed_split(context: AppendContext, split: FileSplit, layout: FileLayout, feed: int) -> FeedSplit:
    """Read a split of a file of the feed with this number."""
    fed = context.stream.as_fed
    found = read_split(split, layout, fed, type_feed_rows)
    told, ordinals = _statements(found, fed)
    is_mark = told[ELEMENT].is_null().to_numpy()
    order = told[fed.order].cast(pa.int64()).fill_null(context.max_order).to_numpy()
    reasons = _faults(context, fed, told, order, is_mark)
    wrong = np.zeros(len(ordinals), dtype=bool)
    wrong[list(reasons)] = True
    marks = is_mark & ~wrong
    before = _marked_before(np.where(marks, order, LOWEST))
    sound = ~is_mark & ~wrong
    own = told.filter(pa.array(sound))
    there = sound & (told[ELEMENT].fill_null(-1).to_numpy() != ElementKind.WITHDRAW)
    stated = there & told[fed.order].is_valid().to_numpy()
    bad = _bad_rows(split, found, {int(ordinals[row]): reason for row, reason in reasons.items()})
    summary = SplitSummary(
        feed,
        split.number,
        int(order[marks].max()) if marks.any() else None,
        int(order[stated].max()) if stated.any() else None,
        found.lines,
        said=own.num_rows,
        records=own.num_rows + bad.num_rows,
    )
    positions = ordinals[sound] + row_position(split.number, 0)
    return FeedSplit(summary, _as_elements(context.stream, own, feed, positions, before[sound]), bad)


def _statements(found: SplitRows, fed: Stream) -> tuple[pa.Table, np.ndarray]:
    """Rows, statements about rows and stable elements in the order of the lines, and their lines in the split.
    `_element` of a stable element is NULL."""
    rows, count = found.rows, found.rows.num_rows
    given = pa.nulls(count, pa.string())
    old = [pa.nulls(count, field.type) for field in _old_fields(fed)]
    inserts = [rows[name] for name in fed.names]
    first = [pa.array(np.full(count, int(ElementKind.INSERT)), pa.int8()), given, given, *inserts, *old]
    corrections = found.corrections
    kinds = pc.case_when(
        pc.make_struct(pc.equal(corrections[OP], Op.DELETE.value), pc.equal(corrections[OP], STABLE)),
        pa.scalar(int(ElementKind.WITHDRAW), pa.int8()),
        pa.scalar(None, pa.int8()),
        pa.scalar(int(ElementKind.ADJUST), pa.int8()),
    )
    names = [*fed.names, *(field.name for field in _old_fields(fed))]
    second = [kinds, corrections[GIVEN], corrections[OLD_GIVEN], *(corrections[name] for name in names)]
    schema = pa.schema(
        [
            pa.field(ELEMENT, pa.int8()),
            pa.field(GIVEN, pa.string()),
            pa.field(OLD_GIVEN, pa.string()),
            *arrow_schema(fed),
            *_old_fields(fed),
        ]
    )
    both = pa.concat_tables([pa.table(first, schema=schema), pa.table(second, schema=schema)])
    ordinals = np.concatenate((found.ordinals, found.correction_ordinals))
    # A mark on a row comes after the row: it is later in the table, and the sort is stable.
    index = np.argsort(ordinals, kind="stable")
    return both.take(pa.array(index)), ordinals[index]


def _old_fields(fed: Stream) -> list[pa.Field]:
    return [pa.field(OLD_PREFIX + field.name, field.type) for field in arrow_schema(fed)]


def _marked_before(places: np.ndarray) -> np.ndarray:
    """For each line the greatest place that lines before it have marked."""
    reached = np.maximum.accumulate(places) if len(places) else places
    return np.concatenate((np.full(min(1, len(places)), LOWEST), reached[:-1]))


def _faults(
    context: AppendContext, fed: Stream, told: pa.Table, order: np.ndarray, is_mark: np.ndarray
) -> dict[int, str]:
    """Statements that cannot be taken, by row, and why."""
    reasons: dict[int, str] = {}
    ahead = (order > context.max_order) | ((order == LOWEST) & told[fed.order].is_valid().to_numpy())
    for row in np.flatnonzero(ahead).tolist():
        reasons[row] = _too_far_reason(fed, int(order[row]), stable=bool(is_mark[row]))
    for name in fed.key:
        moved = pc.and_(told[OLD_PREFIX + name].is_valid(), pc.not_equal(told[OLD_PREFIX + name], told[name]))
        for row in np.flatnonzero(moved.fill_null(False).to_numpy()).tolist():
            reasons[row] = f"{name}: a feed does not change the key of a row; it withdraws the row and inserts another"
    end = fed.merged.end
    if end is not None:
        ends = told[end].cast(pa.int64()).fill_null(HIGHEST).to_numpy()
        is_insert = told[ELEMENT].fill_null(-1).to_numpy() == ElementKind.INSERT
        never = ~is_mark & told[fed.order].is_valid().to_numpy() & (ends < order + is_insert)
        for row in np.flatnonzero(never).tolist():
            reasons[row] = f"{end}: the row would end before it begins"
    return reasons


def _too_far_reason(stream: Stream, moment: int, *, stable: bool) -> str:
    what = "stable up to " if stable else ""
    if not stream.timed or stream.max_ahead is None:
        return f"{stream.order}: {what}{moment} is beyond what can be kept"
    ahead = format_duration(stream.max_ahead)
    return f"{stream.order}: {what}{format_instant(moment)} is more than {ahead} (max_ahead) after now"


def _as_elements(stream: Stream, told: pa.Table, feed: int, pos: np.ndarray, own_stable: np.ndarray) -> pa.Table:
    """Statements in the columns of elements. The number in the batch is filled in when the splits come together."""
    fed, count = stream.as_fed, told.num_rows
    schema = element_schema(stream)
    kinds = told[ELEMENT].to_numpy()
    end = fed.merged.end
    old_end = pa.nulls(count, pa.int64())
    if end is not None:
        listed = pc.binary_join_element_wise("", told[OLD_GIVEN].fill_null(""), "", ",")
        claimed = pc.and_(pc.match_substring(listed, f",{end},"), pc.not_equal(told[ELEMENT], int(ElementKind.INSERT)))
        was = told[OLD_PREFIX + end].cast(pa.int64()).fill_null(OPEN)
        old_end = pc.if_else(claimed, was, pa.scalar(None, pa.int64()))
        # The end of a lifetime at its beginning withdraws the row (logical merge, III-A).
        emptied = pc.equal(told[end], told[fed.order]).fill_null(False).to_numpy() & (kinds == ElementKind.ADJUST)
        kinds = np.where(emptied, int(ElementKind.WITHDRAW), kinds)
    every = ",".join(fed.names)
    given = pc.if_else(pc.equal(told[GIVEN], every), pa.scalar(None, pa.string()), told[GIVEN])
    columns = {name: told[name] for name in fed.names}
    for name in fed.key:
        columns[name] = pc.coalesce(told[name], told[OLD_PREFIX + name])
    columns |= {
        FEED: pa.array(np.full(count, feed), pa.int16()),
        SEQ: pa.nulls(count, pa.int64()),
        ELEMENT: pa.array(kinds, pa.int8()),
        POS: pa.array(pos),
        OWN_STABLE: pa.array(own_stable),
        OLD_END: old_end,
        GIVEN: given,
    }
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def _bad_rows(split: FileSplit, found: SplitRows, reasons: Mapping[int, str]) -> pa.Table:
    texts = found.texts(reasons) if reasons else {}
    bad = [*found.bad, *((ordinal, texts[ordinal], reason) for ordinal, reason in sorted(reasons.items()))]
    positions = np.asarray([ordinal for ordinal, _, _ in bad], dtype=np.int64) + row_position(split.number, 0)
    said = [[each[at] for each in bad] for at in (1, 2)]
    return pa.table([positions, pa.nulls(len(bad), pa.int64()), *said], schema=BAD_ROW_SCHEMA)


# The splits of a batch together.


@dataclass(frozen=True, slots=True)
class FeedReach:
    """How far a batch takes one feed."""

    top: int | None = None
    marked: int | None = None

    def with_split(self, split: SplitSummary) -> FeedReach:
        return FeedReach(_later(self.top, split.top), _later(self.marked, split.marked))


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def contradicts_itself(feed: Feed) -> bool:
    """Whether the feed may say nothing more behind its own stable elements. A feed by rows knows nothing of its own
    stable point, and a query corrects what lies behind its frontier."""
    return feed.stable is StableRule.MARKS and feed.query is None


def feed_reaches(splits: Iterable[SplitSummary]) -> dict[int, FeedReach]:
    """How far each feed of a batch comes, by number."""
    reaches: dict[int, FeedReach] = {}
    for split in splits:
        reaches[split.feed] = reaches.get(split.feed, FeedReach()).with_split(split)
    return reaches


def split_beginnings(
    stream: Stream, splits: Iterable[SplitSummary], before: Mapping[int, int], *, retried: bool
) -> dict[int, int]:
    """For each split how far its feed was stable when it began. LOWEST for feeds that their own stable point does not
    bind, and for rows that were said before and are only tried again."""
    reached = dict(before)
    found: dict[int, int] = {}
    for split in sorted(splits, key=lambda each: each.number):
        binds = contradicts_itself(stream.merged.feeds[split.feed]) and not retried
        found[split.number] = reached.get(split.feed, LOWEST) if binds else LOWEST
        if split.marked is not None:
            reached[split.feed] = max(reached.get(split.feed, LOWEST), split.marked)
    return found


def with_own_stable(stream: Stream, split: FeedSplit, beginning: int, *, retried: bool) -> pa.Table:
    """The statements of a split, with how far the feed was stable before each."""
    elements = split.elements
    if contradicts_itself(stream.merged.feeds[split.summary.feed]) and not retried:
        own = np.maximum(elements[OWN_STABLE].to_numpy(), beginning)
    else:
        own = np.full(elements.num_rows, LOWEST)
    return elements.set_column(elements.column_names.index(OWN_STABLE), OWN_STABLE, pa.array(own, pa.int64()))


def batch_elements(
    stream: Stream, splits: Sequence[FeedSplit], before: Mapping[int, int], *, retried: bool
) -> pa.Table:
    """The elements of a batch, feed by feed as declared and file by file."""
    beginnings = split_beginnings(stream, (each.summary for each in splits), before, retried=retried)
    ordered = sorted(splits, key=lambda each: (each.summary.feed, each.summary.number))
    tables = [with_own_stable(stream, each, beginnings[each.summary.number], retried=retried) for each in ordered]
    return numbered_elements(pa.concat_tables([element_schema(stream).empty_table(), *tables]))


def numbered_elements(elements: pa.Table) -> pa.Table:
    """Elements, which are in their order, with their numbers."""
    whole = elements.combine_chunks()
    return whole.set_column(whole.column_names.index(SEQ), SEQ, pa.array(np.arange(whole.num_rows), pa.int64()))
