"""From results that have been decided on to what is published of them: the rows, which are final, open or at the tip,
and the records of the change feed. Steps and corrections publish in the same way."""

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
"""What has happened to a result, as numbers."""
_OP_NAMES = pa.array(["insert", "replace", "delete"])
NO_ROW = -1
"""The place of a row that there is not."""


@dataclass(frozen=True, slots=True)
class ChangeArrays:
    """What is to be told of results: arrays side by side."""

    op: IntArray
    row: IntArray
    """The row that has the key, and what the result says now."""
    past: IntArray
    """The row that has what it said before, if it was there."""
    vs: IntArray
    ve: IntArray
    """Where it ends now; a deletion leaves it no instant to count at, and so this is where it began."""
    was: IntArray
    """Where it ended before, if it was there."""
    place: IntArray
    """The place of its key among the others."""


def change_records(table: pa.Table, said: ChangeArrays, run: int, shape: ResultShape) -> pa.Table:
    """The change records about rows of a table, in the order of vs and key."""
    order = np.lexsort((said.place, said.vs))
    row, past, op = said.row[order], said.past[order], said.op[order]
    gone, none = op == DELETE, past == NO_ROW
    there, known = pa.array(row), pa.array(past, mask=none)
    present = pa.array(row, mask=gone) if gone.any() else there
    columns = [_OP_NAMES.take(pa.array(op))]
    columns += [table[each.name].take(there if each.key else present) for each in shape.columns]
    columns += [pa.array(said.vs[order]), pa.array(said.ve[order]), pa.array(said.was[order], mask=none)]
    if none.all():
        columns += [pa.nulls(len(row), table[name].type) for name in shape.payload]
    else:
        columns += [table[name].take(known) for name in shape.payload]
    return pa.Table.from_arrays([*columns, pa.repeat(run, len(row))], schema=feed_schema(shape))


class AnswerFrontier(Protocol):
    """How far results are answered, and which of them are final."""

    @property
    def until(self) -> int:
        """The last instant that is answered; what is said of it is provisional."""

    @property
    def covering(self) -> bool:
        """Whether results may yet change their end."""

    @property
    def closes(self) -> tuple[str, int] | None:
        """A column that tells when something begins, and how long it lasts: after that it is final."""


@dataclass(frozen=True, slots=True)
class ResultArrays:
    """Results that there are: arrays side by side."""

    row: IntArray
    """The row that has the key, and what the result says."""
    vs: IntArray
    ve: IntArray
    run: IntArray
    """The evaluation that published it."""


def split_by_role(
    table: pa.Table, results: ResultArrays, frontier: AnswerFrontier, shape: ResultShape
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Results, told by rows of a table, by what they are: final, open, or at the tip."""
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
    """A row and another one with its key count at the same instant."""
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


# Laying what a strategy has worked out against what is published: which rows are now final, which stay open, and what
# a reader of the changes has to be told.


@dataclass(frozen=True, slots=True)
class StepContext:
    """Which evaluation it is, and what its strategy's rows are."""

    since: int
    until: int
    """The last instant that is answered; what is said of it is provisional."""
    run: int
    covering: bool
    """Whether the rows are the whole answer from `since` on, but for what closes; otherwise they only add to it."""
    closes: tuple[str, int] | None = None
    """A column that tells when something begins, and how long it lasts: what is said of it is final after that, whether
    it has an end or not."""


@dataclass(frozen=True, slots=True)
class RowsByRole:
    """What is to be kept of the results, and the change records that they do not tell themselves."""

    base: pa.Table
    """Rows that ended before the last instant, or whose end is certain; to be added to those of before."""
    open: pa.Table
    """Rows that began before the last instant and may yet change their end; instead of those of before."""
    tip: pa.Table
    """Rows that begin at the last instant; instead of those of before."""
    feed: pa.Table


def settle_results(new: pa.Table, before: pa.Table, told: StepContext, shape: ResultShape) -> RowsByRole:
    """What becomes of the published rows that were open or at the tip, and of the new ones.

    The records of the feed are for a reader who holds results by key and vs, and for whom a result lasts until its
    `_ve` or until the next result of its key begins, whichever comes first. Of rows that are only added the reader
    knows by the rows themselves; the feed then holds what has become of the tip of before.
    """
    rows = _combine_rows(new, before, told, shape)
    answer = _whole_results(rows, told) if told.covering else _appended_results(rows)
    alone = answer.old == NO_ROW
    other = np.flatnonzero(~alone & (answer.old != answer.first))
    changed = np.zeros(len(alone), np.bool_)
    changed[other] = ~same_values(rows.table, shape.payload, answer.first[other], answer.old[other])
    stays = ~alone & ~changed
    run = np.full(len(alone), told.run)
    run[stays] = rows.run[answer.old[stays]]
    feed = _feed_records(rows, answer, changed, told, shape)
    results = ResultArrays(answer.first, rows.vs[answer.first], answer.ve, run)
    return RowsByRole(*split_by_role(rows.table, results, told, shape), feed)


@dataclass(frozen=True, slots=True)
class _StepRows:
    """The published rows and, behind them, the new ones as far as they count."""

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
    """Whether a row is of the tip of before."""


@dataclass(frozen=True, slots=True)
class _StepResults:
    """The results that there are now, in the order of key and vs."""

    first: IntArray
    """The row that a result is, or begins with."""
    ve: IntArray
    old: IntArray
    """The row that was published of it before: the same, or one of the tip."""
    followed: BoolArray
    """Whether the next result of the key begins where it ends."""
    was_followed: BoolArray
    """Whether it was so before. Then a reader may hold any later end."""
    gone: IntArray
    """Rows of the tip that are no results any more."""
    place: IntArray
    """Of each row its place in the order of key and vs, as far as there is something to say of it."""


def _combine_rows(new: pa.Table, before: pa.Table, told: StepContext, shape: ResultShape) -> _StepRows:
    schema = result_schema(shape)
    before = conform(before, schema, missing_as_null=False)
    new = conform(new, schema.remove(schema.get_field_index(EVALUATION)), missing_as_null=False)
    vs, ve = instant_array(new, VS), instant_array(new, VE)
    if told.covering:
        vs = np.maximum(vs, told.since)
    counts = (vs >= told.since) & (vs <= told.until) & (ve > vs)
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
        np.concatenate([was >= told.since, np.zeros(len(vs), np.bool_)]),
    )


def _appended_results(rows: _StepRows) -> _StepResults:
    """Results that only ever come: the rows themselves, some of which may have been published at the tip."""
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


def _whole_results(rows: _StepRows, told: StepContext) -> _StepResults:
    """Results that are the whole answer from `since` on: what is open ends there, unless it goes on as it was."""
    order, fresh = _order_by_key(rows, np.arange(len(rows.vs)))
    ends = rows.ve.copy()
    ends[: rows.published] = np.minimum(ends[: rows.published], told.since)
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
    """Some rows in the order of key and vs, those of the tip of before first, and which of them begin a key."""
    told = sort_arrays(rows.table if len(which) == len(rows.vs) else rows.table.take(pa.array(which)), rows.names)
    # The sort keeps published rows before new ones of the same key and vs.
    order = np.lexsort((rows.vs[which], *reversed(told)))
    return which[order], group_starts([lane[order] for lane in told], len(which))


def _republished_places(rows: _StepRows, order: IntArray, fresh: BoolArray) -> IntArray:
    """The places in the order where a row stands behind one of the tip of before, with its key and its vs."""
    vs, tip = rows.vs[order], rows.tip[order]
    behind: IntArray = 1 + np.flatnonzero(tip[:-1] & ~tip[1:] & ~fresh[1:] & (vs[1:] == vs[:-1]))
    return behind


def _adjacent_rows(rows: _StepRows, live: IntArray, keys: SortArray, ends: IntArray) -> tuple[BoolArray, BoolArray]:
    """Which rows go on with what the row before them said, and which begin where that row of their key ends."""
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
    rows: _StepRows, answer: _StepResults, changed: BoolArray, told: StepContext, shape: ResultShape
) -> pa.Table:
    ended = rows.ve[answer.old]
    moved = (answer.ve != ended) & ~(answer.followed & (ended >= answer.ve))
    # Where the next result is gone that a reader has taken the end from, the end must be said.
    loose = (answer.ve == ended) & answer.was_followed & ~answer.followed
    published = answer.old != NO_ROW
    replaced = published & (changed | moved | loose)
    said = np.flatnonzero(replaced | (~published & told.covering))
    gone = answer.gone
    row, past = np.concatenate([answer.first[said], gone]), np.concatenate([answer.old[said], gone])
    op = np.concatenate([np.where(published[said], REPLACE, INSERT), np.full(len(gone), DELETE)])
    ve = np.concatenate([answer.ve[said], rows.vs[gone]])
    said_of = ChangeArrays(op, row, past, rows.vs[row], ve, rows.ve[past], answer.place[row])
    return change_records(rows.table, said_of, told.run, shape)
