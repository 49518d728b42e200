"""What is published of computed results: rows by role, and change records. Steps and corrections share it.

A result row is in one of three roles, by the last instant that is answered, `until`:

    base   it ended before `until`, or its end is certain: final, and added to the rows from before
    open   it began before `until` and its end may change: the open rows of the next step replace it
    tip    it begins at `until`: the next step replaces it

Change records tell a reader what the rows alone do not: results that were replaced, shortened or deleted. Pure, on
Arrow tables; it runs in this process and in Spark's tasks. It takes a sort of the rows of a step by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from errata.answer.row_comparison import BoolArray, IntArray, SortArray, group_starts, same_values, sort_arrays
from errata.archive.schemas import conform, feed_schema, result_schema
from errata.errors import ErrataError
from errata.model.results import EVALUATION, VE, VS, ResultShape

INSERT, REPLACE, DELETE = 0, 1, 2
"""The operations of change records, as numbers."""
_OP_NAMES = pa.array(["insert", "replace", "delete"])
NO_ROW = -1
"""The index of a row that does not exist."""


@dataclass(frozen=True, slots=True)
class ChangeArrays:
    """Changes of results, one element each."""

    op: IntArray
    row: IntArray
    """The row with the key and the current values."""
    past: IntArray
    """The row with the values from before, or NO_ROW."""
    vs: IntArray
    ve: IntArray
    """The current end. Of a deletion the beginning, since the result is valid at no instant."""
    was: IntArray
    """The end from before, if there was one."""
    place: IntArray
    """The rank of the key."""


def change_records(table: pa.Table, changes: ChangeArrays, run: int, shape: ResultShape) -> pa.Table:
    """The change records about rows of a table, in the order of vs and key."""
    order = np.lexsort((changes.place, changes.vs))
    row, past, op = changes.row[order], changes.past[order], changes.op[order]
    gone, none = op == DELETE, past == NO_ROW
    there, known = pa.array(row), pa.array(past, mask=none)
    present = pa.array(row, mask=gone) if gone.any() else there
    columns = [_OP_NAMES.take(pa.array(op))]
    columns += [table[each.name].take(there if each.key else present) for each in shape.columns]
    columns += [pa.array(changes.vs[order]), pa.array(changes.ve[order]), pa.array(changes.was[order], mask=none)]
    if none.all():
        columns += [pa.nulls(len(row), table[name].type) for name in shape.payload]
    else:
        columns += [table[name].take(known) for name in shape.payload]
    return pa.Table.from_arrays([*columns, pa.repeat(run, len(row))], schema=feed_schema(shape))


class AnswerFrontier(Protocol):
    """How far a query is answered, and which of its results are final."""

    @property
    def until(self) -> int:
        """The last instant that is answered; results that begin at it are provisional."""

    @property
    def covering(self) -> bool:
        """Whether the ends of results may change."""

    @property
    def closes(self) -> tuple[str, int] | None:
        """A column that holds a beginning, and the span after which a result that has it is final."""


@dataclass(frozen=True, slots=True)
class ResultArrays:
    """Results, one element each."""

    row: IntArray
    """The row with the key and the values."""
    vs: IntArray
    ve: IntArray
    run: IntArray
    """The evaluation that published it."""


def split_by_role(
    table: pa.Table, results: ResultArrays, frontier: AnswerFrontier, shape: ResultShape
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The final, the open and the tip rows of results."""
    order = np.argsort(results.vs, kind="stable")
    row, vs, ve, run = results.row[order], results.vs[order], results.ve[order], results.run[order]
    tip = vs == frontier.until
    lasting = ~tip & (ve >= frontier.until) if frontier.covering else np.zeros(len(vs), np.bool_)
    if frontier.closes is not None:
        name, size = frontier.closes
        lasting &= table[name].cast(pa.int64()).to_numpy()[row] + size > frontier.until

    def chosen(which: BoolArray) -> pa.Table:
        at = pa.array(row[which])
        columns = [column.take(at) for column in table.columns]
        times = [pa.array(each[which]) for each in (vs, ve, run)]
        return pa.Table.from_arrays([*columns, *times], schema=result_schema(shape))

    return chosen(~tip & ~lasting), chosen(lasting), chosen(tip)


def raise_duplicate_key(table: pa.Table, names: Sequence[str], at: int, instant: int) -> None:
    """Refuse a row that is valid at the same instant as another one of its key."""
    row = table.select(names).slice(at, 1).to_pylist()[0]
    key = ", ".join(f"{name} = {value}" for name, value in row.items()) or "there is none, hence one row at most"
    raise ErrataError(
        f"the query has two results of one key at the instant {instant}",
        where=key,
        why="a key tells a result from all others that count at the same instant",
        how="this is a mistake in Errata and not in the query: please report it with the query's text",
    )


def instant_array(table: pa.Table, name: str) -> IntArray:
    """A column of instants."""
    values: IntArray = table[name].to_numpy()
    return values


# A step's results, merged with the open and tip rows that the evaluation before has left.


@dataclass(frozen=True, slots=True)
class StepContext:
    """Which evaluation it is, and what the rows are that its route computes."""

    since: int
    until: int
    """The last instant that is answered; results that begin at it are provisional."""
    run: int
    covering: bool
    """Whether the rows are the whole answer from `since` on, except what has closed; otherwise they only add to it."""
    closes: tuple[str, int] | None = None
    """A column that holds a beginning, and the span after which a result that has it is final, even without an end."""


@dataclass(frozen=True, slots=True)
class RowsByRole:
    """The result rows that are written, and the change records that the rows do not tell themselves."""

    base: pa.Table
    """Final rows, added to those from before."""
    open: pa.Table
    """Rows whose end may change, in place of those from before."""
    tip: pa.Table
    """Rows that begin at the last instant, in place of those from before."""
    feed: pa.Table


def settle_results(new: pa.Table, before: pa.Table, context: StepContext, shape: ResultShape) -> RowsByRole:
    """Merge new results with the published rows that were open or at the tip.

    Change records are for a reader who holds results by key and vs, and for whom a result lasts until its `_ve` or
    until the next result of its key begins, whichever comes first. A reader sees rows that are only added by the rows
    themselves; the change records then tell what has become of the tip from before.
    """
    rows = _combine_rows(new, before, context, shape)
    answer = _whole_results(rows, context) if context.covering else _appended_results(rows)
    alone = answer.old == NO_ROW
    other = np.flatnonzero(~alone & (answer.old != answer.first))
    changed = np.zeros(len(alone), np.bool_)
    changed[other] = ~same_values(rows.table, shape.payload, answer.first[other], answer.old[other])
    stays = ~alone & ~changed
    run = np.full(len(alone), context.run)
    run[stays] = rows.run[answer.old[stays]]
    feed = _feed_records(rows, answer, changed, context, shape)
    results = ResultArrays(answer.first, rows.vs[answer.first], answer.ve, run)
    return RowsByRole(*split_by_role(rows.table, results, context, shape), feed)


@dataclass(frozen=True, slots=True)
class _StepRows:
    """The published rows, and after them the new ones that are in the step."""

    table: pa.Table
    names: list[str]
    """The columns of the key."""
    payload: list[str]
    published: int
    """How many rows are published ones."""
    vs: IntArray
    ve: IntArray
    run: IntArray
    tip: BoolArray
    """Whether a row was at the tip before."""


@dataclass(frozen=True, slots=True)
class _StepResults:
    """The results after the step, in the order of key and vs."""

    first: IntArray
    """The row that a result is, or the first of those that it is made of."""
    ve: IntArray
    old: IntArray
    """The row that was published for it before: the same, or one of the tip."""
    followed: BoolArray
    """Whether the next result of the key begins where it ends."""
    was_followed: BoolArray
    """Whether that was so before. A reader may then hold any later end."""
    gone: IntArray
    """Rows of the tip that are results no longer."""
    place: IntArray
    """The rank of each row in the order of key and vs, where there is a change record for it."""


def _combine_rows(new: pa.Table, before: pa.Table, context: StepContext, shape: ResultShape) -> _StepRows:
    schema = result_schema(shape)
    before = conform(before, schema, missing_as_null=False)
    new = conform(new, schema.remove(schema.get_field_index(EVALUATION)), missing_as_null=False)
    vs, ve = instant_array(new, VS), instant_array(new, VE)
    if context.covering:
        vs = np.maximum(vs, context.since)
    counts = (vs >= context.since) & (vs <= context.until) & (ve > vs)
    if not counts.all():
        new, vs, ve = new.filter(pa.array(counts)), vs[counts], ve[counts]
    was = instant_array(before, VS)
    table = pa.concat_tables([before.select(shape.names), new.select(shape.names)]).combine_chunks()
    return _StepRows(
        table,
        shape.key,
        shape.payload,
        len(was),
        np.concatenate([was, vs]),
        np.concatenate([instant_array(before, VE), ve]),
        instant_array(before, EVALUATION),
        np.concatenate([was >= context.since, np.zeros(len(vs), np.bool_)]),
    )


def _appended_results(rows: _StepRows) -> _StepResults:
    """Results that are only added: the rows themselves, of which some may have been published at the tip."""
    mine = np.flatnonzero(~rows.tip)
    old = np.full(len(rows.vs), NO_ROW)
    old[: rows.published] = np.arange(rows.published)
    place = np.zeros(len(rows.vs), np.int64)
    gone = np.flatnonzero(rows.tip)
    if len(gone):
        since = rows.vs[gone[0]]
        again = np.flatnonzero(rows.vs == since)
        order, fresh = _order_by_key(rows, again)
        place[order] = np.arange(len(order))
        met = _republished_places(rows, order, fresh)
        old[order[met]] = order[met - 1]
        gone = np.setdiff1d(gone, order[met - 1])
    never = np.zeros(len(mine), np.bool_)
    return _StepResults(mine, rows.ve[mine], old[mine], never, never, gone, place)


def _whole_results(rows: _StepRows, context: StepContext) -> _StepResults:
    """Results that are the whole answer from `since` on: open rows end there, unless a new row continues them."""
    order, fresh = _order_by_key(rows, np.arange(len(rows.vs)))
    ends = rows.ve.copy()
    ends[: rows.published] = np.minimum(ends[: rows.published], context.since)
    old = np.full(len(rows.vs), NO_ROW)
    old[: rows.published] = np.arange(rows.published)
    met = _republished_places(rows, order, fresh)
    old[order[met]] = order[met - 1]
    was_followed = np.zeros(len(rows.vs), np.bool_)
    behind = np.flatnonzero(rows.tip[order[1:]] & ~fresh[1:])
    was_followed[order[behind]] = True

    stays = ~rows.tip[order]
    live, keys = order[stays], np.cumsum(fresh)[stays]
    joined, touching = _adjacent_rows(rows, live, keys, ends)
    heads = np.flatnonzero(~joined)
    lasts = np.append(heads[1:], len(live))[: len(heads)] - 1
    first = live[heads]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return _StepResults(
        first,
        ends[live[lasts]],
        old[first],
        np.append(touching, False)[lasts + 1],
        was_followed[first],
        np.setdiff1d(np.flatnonzero(rows.tip), old[first]),
        place,
    )


def _order_by_key(rows: _StepRows, which: IntArray) -> tuple[IntArray, BoolArray]:
    """Some rows in the order of key and vs, published ones first, and which of them are the first of their key."""
    lanes = sort_arrays(rows.table if len(which) == len(rows.vs) else rows.table.take(pa.array(which)), rows.names)
    # The sort keeps published rows before new ones of the same key and vs.
    order = np.lexsort((rows.vs[which], *reversed(lanes)))
    return which[order], group_starts([lane[order] for lane in lanes], len(which))


def _republished_places(rows: _StepRows, order: IntArray, fresh: BoolArray) -> IntArray:
    """The places in the order where a row follows one of the former tip that has its key and its vs."""
    vs, tip = rows.vs[order], rows.tip[order]
    behind: IntArray = 1 + np.flatnonzero(tip[:-1] & ~tip[1:] & ~fresh[1:] & (vs[1:] == vs[:-1]))
    return behind


def _adjacent_rows(rows: _StepRows, live: IntArray, keys: SortArray, ends: IntArray) -> tuple[BoolArray, BoolArray]:
    """Which rows continue the row before them with equal values, and which begin where that row of their key ends."""
    together = np.zeros(len(live), np.bool_)
    together[1:] = keys[1:] == keys[:-1]
    until, begins = ends[live[:-1]], rows.vs[live[1:]]
    if (clash := np.flatnonzero(together[1:] & (until > begins))).size:
        second = int(live[clash[0] + 1])
        raise_duplicate_key(rows.table, rows.names, second, int(rows.vs[second]))
    touching = together.copy()
    touching[1:] &= until == begins
    joined, at = touching.copy(), np.flatnonzero(touching)
    joined[at] = same_values(rows.table, rows.payload, live[at - 1], live[at])
    return joined, touching


def _feed_records(
    rows: _StepRows, answer: _StepResults, changed: BoolArray, context: StepContext, shape: ResultShape
) -> pa.Table:
    ended = rows.ve[answer.old]
    moved = (answer.ve != ended) & ~(answer.followed & (ended >= answer.ve))
    # A reader takes a result's end from the next result of its key. Where that is gone, a record must tell it.
    loose = (answer.ve == ended) & answer.was_followed & ~answer.followed
    published = answer.old != NO_ROW
    replaced = published & (changed | moved | loose)
    changed_now = np.flatnonzero(replaced | (~published & context.covering))
    gone = answer.gone
    row, past = np.concatenate([answer.first[changed_now], gone]), np.concatenate([answer.old[changed_now], gone])
    op = np.concatenate([np.where(published[changed_now], REPLACE, INSERT), np.full(len(gone), DELETE)])
    ve = np.concatenate([answer.ve[changed_now], rows.vs[gone]])
    records = ChangeArrays(op, row, past, rows.vs[row], ve, rows.ve[past], answer.place[row])
    return change_records(rows.table, records, context.run, shape)
