"""What was made by whom: the commits of one try of a scheduler's task, and the event times that they concern."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select

from errata.catalog.commits import numbered
from errata.catalog.open import Catalog
from errata.catalog.tables import buckets, commits
from errata.model.bucket import Role
from errata.model.commit import Commit
from errata.model.interval import Interval

_TOLD = tuple(each.value for each in (Role.BASE, Role.PENDING, Role.OVERLAY, Role.OPEN, Role.TIP, Role.FEED))
"""Buckets of rows, of corrections and of results; what a strategy keeps for itself is no news."""


def made_by(catalog: Catalog, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[Commit]:
    """The commits of one try of a task, oldest first."""
    query = (
        select(commits.c.commit_id)
        .where(commits.c.run_id == run_id, commits.c.dag_id == dag_id, commits.c.task_id == task_id)
        .where(commits.c.try_number == try_number)
    )
    with catalog.reading() as connection:
        found = list(connection.execute(query).scalars())
    return sorted(numbered(catalog, found).values(), key=lambda each: each.commit_id)


def spans(catalog: Catalog, commit_ids: Iterable[int]) -> dict[int, Interval]:
    """Of commits that brought rows, the event times from the first to just after the last."""
    wanted = sorted(set(commit_ids))
    found: dict[int, Interval] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = (
                select(buckets.c.added_in, func.min(buckets.c.vs_min), func.max(buckets.c.vs_max))
                .where(buckets.c.added_in.in_(wanted[start : start + 500]), buckets.c.role.in_(_TOLD))
                .group_by(buckets.c.added_in)
            )
            found.update({number: Interval(low, high + 1) for number, low, high in connection.execute(query)})
    return found
