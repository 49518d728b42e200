"""Queries whose declarations are no longer what was applied. Of each, its own file is read and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from errata.declare.project import Project
from errata.declare.queries import with_texts
from errata.errors import UsageError
from errata.model.query import CheckedQuery

_COUNT = "`errata apply` makes it count"


def drifted(project: Project, applied: Mapping[str, CheckedQuery], names: Iterable[str]) -> dict[str, str]:
    """Of some queries that have been applied those that are declared otherwise now, and how, in words."""
    found = {name: _drift(project, applied[name]) for name in names}
    return {name: told for name, told in found.items() if told is not None}


def _drift(project: Project, applied: CheckedQuery) -> str | None:
    file = project.queries.get(applied.name)
    if file is None:
        return f"query {applied.name} is no longer declared; `errata apply` drops it"
    try:
        now = with_texts([file], project.file)[applied.name]
    except UsageError:
        there = "can no longer be read" if file.path.exists() else "is gone"
        return f"{file.file} {there}: query {applied.name} is answered as it was applied"
    if now.text != applied.query.text:
        return f"{file.file} has changed since it was applied; {_COUNT}"
    if now != applied.query:
        return f"the declaration of query {applied.name} has changed since it was applied; {_COUNT}"
    return None
