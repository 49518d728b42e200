"""What applying would change of the queries, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from errata.model.query import CheckedQuery

_PROJECTS = "as in the project"


@dataclass(frozen=True, slots=True)
class QueryChange:
    """A query that differs from the recorded one, and how."""

    after: CheckedQuery
    details: tuple[str, ...]
    keeps_results: bool
    """Whether it is another wording of the same form."""


@dataclass(frozen=True, slots=True)
class QueryChanges:
    """What would be done about queries, in order of names within each kind."""

    creates: tuple[CheckedQuery, ...] = ()
    changes: tuple[QueryChange, ...] = ()
    drops: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether declared and recorded agree."""
        return not (self.creates or self.changes or self.drops)


def plan_query_changes(declared: Mapping[str, CheckedQuery], recorded: Mapping[str, CheckedQuery]) -> QueryChanges:
    """Compare the declared queries, which have been checked, with the recorded ones."""
    creates, changes = [], []
    for name in sorted(declared):
        after, before = declared[name], recorded.get(name)
        if before is None:
            creates.append(after)
        elif before != after:
            changes.append(QueryChange(after, describe(before, after), after.same_form(before)))
    drops = [name for name in sorted(recorded) if name not in declared]
    return QueryChanges(tuple(creates), tuple(changes), tuple(drops))


def describe(before: CheckedQuery, after: CheckedQuery) -> tuple[str, ...]:
    """Every difference in words."""
    details = [*_meaning(before, after), *_columns(before, after)]
    was, now = before.query, after.query
    stated = (
        ("file", was.sql_file, now.sql_file),
        ("emit", was.emit.value, now.emit.value),
        ("on_revision", before.on_revision.value, after.on_revision.value),
        ("retention", was.retention_text, now.retention_text),
        ("since", was.since or "the beginning", now.since or "the beginning"),
        ("table", was.serve or "none", now.serve or "none"),
        ("lineage", was.lineage.value, now.lineage.value),
        ("sweep", str(was.sweep or _PROJECTS), str(now.sweep or _PROJECTS)),
        ("key", f"[{', '.join(before.key)}]", f"[{', '.join(after.key)}]"),
        ("pattern", before.pattern.shown, after.pattern.shown),
    )
    details += [f"{name} {old} -> {new}" for name, old, new in stated if old != new]
    return tuple(details) or ("what it reads is declared anew; its results stay as they are",)


def _meaning(before: CheckedQuery, after: CheckedQuery) -> list[str]:
    if before.query.text != after.query.text:
        same = before.fingerprint == after.fingerprint
        return ["text changed; it means the same" if same else "text changed, and what it does"]
    if before.fingerprint == after.fingerprint or before.query.emit != after.query.emit:
        return []
    return ["what it reads has changed"]


def _columns(before: CheckedQuery, after: CheckedQuery) -> list[str]:
    old, new = ({each.name: str(each.type) for each in query.columns} for query in (before, after))
    details = [f"column {name} {kind} added" for name, kind in new.items() if name not in old]
    details += [f"column {name} dropped" for name in old if name not in new]
    details += [
        f"column {name} {old[name]} -> {kind}" for name, kind in new.items() if name in old and old[name] != kind
    ]
    if [name for name in old if name in new] != [name for name in new if name in old]:
        details.append(f"columns ordered {', '.join(new)}")
    return details
