"""Where rows came from: the batch of a number, its commit, and the files and lines behind stored positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import select

from errata.catalog.open import Catalog
from errata.catalog.tables import batch_files, batch_splits, batches
from errata.model.batch import place


@dataclass(frozen=True, slots=True)
class Origin:
    """A batch, and the way from a position in it back to a file and a line."""

    batch_id: str
    commit_id: int
    undoes: int | None = None
    splits: dict[int, tuple[str, int]] = field(default_factory=dict)
    """For each split the file it is of, and the line at which it begins."""

    def line_of(self, pos: int) -> tuple[str, int]:
        """The file and line of a position; no file and 0 for what no file said."""
        number, ordinal = place(pos)
        if number not in self.splits:
            return "", 0
        name, first = self.splits[number]
        return name, first + ordinal


def origins(catalog: Catalog, batch_nos: Iterable[int]) -> dict[int, Origin]:
    """The origins behind batch numbers."""
    wanted = sorted(set(batch_nos))
    found: dict[int, Origin] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            for row in connection.execute(select(batches).where(batches.c.batch_no.in_(some))):
                found[row.batch_no] = Origin(row.batch_id, row.commit_id, row.undoes)
            files = (batch_files.c.batch_no == batch_splits.c.batch_no) & (
                batch_files.c.number == batch_splits.c.file_number
            )
            query = select(batch_splits, batch_files.c.name).join(batch_files, files)
            query = query.where(batch_splits.c.batch_no.in_(some))
            for row in connection.execute(query):
                found[row.batch_no].splits[row.split] = row.name, row.first_line
    return found
