"""Laying results that have been worked out anew against the published ones: which of these no longer count, what counts
instead, and what a reader of the changes has to be told.

Published results are never rewritten. One that is wrong is masked, and the right one is added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.archive.result_rows import mask_schema
from errata.evaluate.publishing import DELETE, INSERT, NONE, REPLACE, Said, Standing, in_roles, records
from errata.evaluate.sameness import Flags, Ints
from errata.language.lineage import Axis, Region
from errata.model.columns import Kind
from errata.model.results import Shape
from errata.revise.laid import Answer, Rows, gather, of_instants, of_starts


@dataclass(frozen=True, slots=True)
class Amending:
    """Which evaluation corrects, and what the results are that it corrects."""

    run: int
    until: int
    """The last instant that is answered; what is said of it is provisional."""
    covering: bool
    """Whether results are replaced by others as time goes on; otherwise they are only added, and ends are certain."""
    axis: Axis
    """How all regions lie in time."""
    closes: tuple[str, int] | None = None
    """A column that tells when something begins, and how long it lasts: what is said of it is final after that."""
    rough: frozenset[str] | None = None
    """The columns of doubles that may differ in their last bits, since they are sums; None if all may be."""


@dataclass(frozen=True, slots=True)
class Amended:
    """What is to be added to what is published."""

    masks: pa.Table
    """Published results that no longer count."""
    base: pa.Table
    open: pa.Table
    tip: pa.Table
    """Results that count instead: final ones, ones that may yet change their end, and ones that begin at the last
    instant."""
    feed: pa.Table
    changed: int
    """So many results have come, gone or changed."""
    compared: int
    """So many have been looked at: those, and the ones that came out the same."""


def amend(new: pa.Table, before: pa.Table, regions: Iterable[Region], told: Amending, shape: Shape) -> Amended:
    """What becomes of the published results in some regions.

    Of `new` only what lies in the regions counts, and it is all that there is in them. Regions may overlap. `before`
    has at least the published results that have the constants of a region's key columns, whatever else they say, and
    that begin in its interval; or, of instants, that count in it, at the one before it or at the one after it.
    """
    rows = gather(new, before, regions, told.axis, told.until, _rough(told, shape), shape)
    answer = of_instants(rows) if told.axis is Axis.INSTANT else of_starts(rows, covering=told.covering)
    answer = _until(answer, told.until)
    published = answer.old != NONE
    ended = rows.ve[answer.old]
    same_end = answer.ve == ended
    if told.covering:
        # Of what is foreseen the next evaluation decides.
        same_end |= (answer.ve > told.until) & (ended > told.until)
    replaced = published & ((answer.first != answer.old) | ~same_end)
    masked = np.concatenate([answer.old[replaced], answer.gone])
    now = np.flatnonzero(replaced | ~published)
    results = Standing(answer.first[now], answer.vs[now], answer.ve[now], np.full(len(now), told.run))
    came = int(np.count_nonzero(~published))
    looked_at = np.union1d(rows.inside.row[rows.inside.row < rows.published], masked)
    return Amended(
        _masks(rows, masked, told, shape),
        *in_roles(rows.table, results, told, shape),
        _feed(rows, answer, replaced, told, shape),
        len(masked) + came,
        len(looked_at) + came,
    )


def _rough(told: Amending, shape: Shape) -> frozenset[str]:
    doubles = frozenset(each.name for each in shape.columns if each.type.kind is Kind.DOUBLE)
    return doubles if told.rough is None else doubles & told.rough


def _until(answer: Answer, until: int) -> Answer:
    """The results that begin up to the last instant."""
    if (counts := answer.vs <= until).all():
        return answer
    first, old, followed = answer.first[counts], answer.old[counts], answer.followed[counts]
    return Answer(first, answer.vs[counts], answer.ve[counts], old, followed, answer.gone)


def _masks(rows: Rows, masked: Ints, told: Amending, shape: Shape) -> pa.Table:
    at = masked[np.lexsort((rows.key[masked], rows.vs[masked]))]
    columns = [rows.table[name].take(pa.array(at)) for name in shape.key]
    times = [pa.array(rows.vs[at]), pa.array(rows.ve[at]), pa.repeat(told.run, len(at))]
    return pa.Table.from_arrays([*columns, *times], schema=mask_schema(shape))


def _feed(rows: Rows, answer: Answer, replaced: Flags, told: Amending, shape: Shape) -> pa.Table:
    published = answer.old != NONE
    said_again = replaced.copy()
    if told.covering:
        # Where the next result is gone that a reader has taken the end from, the end must be said.
        said_again |= published & _was_followed(rows)[answer.old] & ~answer.followed
    said, gone = np.flatnonzero(said_again | ~published), answer.gone
    row, past = np.concatenate([answer.first[said], gone]), np.concatenate([answer.old[said], gone])
    op = np.concatenate([np.where(published[said], REPLACE, INSERT), np.full(len(gone), DELETE)])
    vs = np.concatenate([answer.vs[said], rows.vs[gone]])
    ve = np.concatenate([answer.ve[said], rows.vs[gone]])
    return records(rows.table, Said(op, row, past, vs, ve, rows.ve[past], rows.key[row]), told.run, shape)


def _was_followed(rows: Rows) -> Flags:
    """Of the rows, which published ones end where the next published one of their key begins."""
    order = np.lexsort((rows.vs[: rows.published], rows.key[: rows.published]))
    key, vs, ve = rows.key[order], rows.vs[order], rows.ve[order]
    followed = np.zeros(len(rows.vs), np.bool_)
    followed[order[:-1]] = (key[1:] == key[:-1]) & (vs[1:] == ve[:-1])
    return followed
