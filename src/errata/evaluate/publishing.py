"""From results that have been decided on to what is published of them: the rows, which are final, open or at the tip,
and the records of the change feed. Steps and corrections publish in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from errata.archive.result_rows import feed_schema, result_schema
from errata.errors import ErrataError
from errata.evaluate.sameness import Flags, Ints
from errata.model.results import Shape

INSERT, REPLACE, DELETE = 0, 1, 2
"""What has happened to a result, as numbers."""
_OPS = pa.array(["insert", "replace", "delete"])
NONE = -1
"""The place of a row that there is not."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is to be told of results: arrays side by side."""

    op: Ints
    row: Ints
    """The row that has the key, and what the result says now."""
    past: Ints
    """The row that has what it said before, if it was there."""
    vs: Ints
    ve: Ints
    """Where it ends now; a deletion leaves it no instant to count at, and so this is where it began."""
    was: Ints
    """Where it ended before, if it was there."""
    place: Ints
    """The place of its key among the others."""


def records(table: pa.Table, said: Said, run: int, shape: Shape) -> pa.Table:
    """The change records about rows of a table, in the order of vs and key."""
    order = np.lexsort((said.place, said.vs))
    row, past, op = said.row[order], said.past[order], said.op[order]
    gone, none = op == DELETE, past == NONE
    there, known = pa.array(row), pa.array(past, mask=none)
    present = pa.array(row, mask=gone) if gone.any() else there
    columns = [_OPS.take(pa.array(op))]
    columns += [table[each.name].take(there if each.key else present) for each in shape.columns]
    columns += [pa.array(said.vs[order]), pa.array(said.ve[order]), pa.array(said.was[order], mask=none)]
    if none.all():
        columns += [pa.nulls(len(row), table[name].type) for name in shape.payload]
    else:
        columns += [table[name].take(known) for name in shape.payload]
    return pa.Table.from_arrays([*columns, pa.repeat(run, len(row))], schema=feed_schema(shape))


class Frontier(Protocol):
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
class Standing:
    """Results that there are: arrays side by side."""

    row: Ints
    """The row that has the key, and what the result says."""
    vs: Ints
    ve: Ints
    run: Ints
    """The evaluation that published it."""


def in_roles(
    table: pa.Table, results: Standing, frontier: Frontier, shape: Shape
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Results, told by rows of a table, by what they are: final, open, or at the tip."""
    order = np.argsort(results.vs, kind="stable")
    row, vs, ve, run = results.row[order], results.vs[order], results.ve[order], results.run[order]
    tip = vs == frontier.until
    lasting = ~tip & (ve >= frontier.until) if frontier.covering else np.zeros(len(vs), np.bool_)
    if frontier.closes is not None:
        name, size = frontier.closes
        lasting &= table[name].cast(pa.int64()).to_numpy()[row] + size > frontier.until

    def chosen(which: Flags) -> pa.Table:
        at = pa.array(row[which])
        columns = [column.take(at) for column in table.columns]
        times = [pa.array(each[which]) for each in (vs, ve, run)]
        return pa.Table.from_arrays([*columns, *times], schema=result_schema(shape))

    return chosen(~tip & ~lasting), chosen(lasting), chosen(tip)


def refuse(table: pa.Table, names: Sequence[str], at: int, instant: int) -> None:
    """A row and another one with its key count at the same instant."""
    row = table.select(names).slice(at, 1).to_pylist()[0]
    key = ", ".join(f"{name} = {value}" for name, value in row.items()) or "there is none, hence one row at most"
    raise ErrataError(
        f"the query has two results of one key at the instant {instant}",
        where=key,
        why="a key tells a result from all others that count at the same instant",
        how="this is a mistake in Errata and not in the query: please report it with the query's text",
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, in its order and of its types."""
    chosen = table.select(schema.names)
    return chosen if chosen.schema.equals(schema) else chosen.cast(schema)


def instants(table: pa.Table, name: str) -> Ints:
    """A column of instants."""
    values: Ints = table[name].to_numpy()
    return values
