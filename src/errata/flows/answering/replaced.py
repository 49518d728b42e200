"""Because of what a query is worked out anew, in place of the results that it has: it was edited, a stream or a query
that it reads is another one now, or somebody asked for it."""

from __future__ import annotations

from collections.abc import Mapping

from errata.catalog import queries, streams
from errata.catalog.published import Published
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.task import Task, below
from errata.flows.declaring.check import with_fingerprints
from errata.model.query import CheckedQuery
from errata.model.stream import Stream


def replacement_cause(task: Task, was: Published, inputs: Inputs) -> dict[str, object]:
    """Type and id of what caused it, as the cause of an evaluation has them."""
    replaced = [each.name for each in below(inputs, task.plan) if each.added_in > was.last.commit_id]
    if task.anew:
        return {"type": "query", "id": replaced[0]} if replaced else {"type": "query", "id": task.name, "anew": True}
    change = _Change(task, was, inputs)
    if change.edited:
        return {"type": "query", "id": task.name}
    if redeclared := change.redeclared:
        return {"type": "stream", "id": ", ".join(redeclared)}
    return {"type": "query", "id": replaced[0] if replaced else task.name}


class _Change:
    """What is different between the form that a query had and the one it has."""

    def __init__(self, task: Task, was: Published, inputs: Inputs) -> None:
        catalog = inputs.site.catalog
        self._now = task.query.checked
        self._then = queries.with_id(catalog, was.query_id)
        self._known = {name: each.checked for name, each in queries.recorded(catalog).items()}
        self._declared = {name: each.stream for name, each in inputs.standings.items()}
        then = {each.stream.name: each.stream for each in streams.standings(catalog, was.last.commit_id)}
        self._before = {name: then[name] for name in self._now.reads if name in then}

    @property
    def edited(self) -> bool:
        """Whether what is declared of the query itself makes the difference."""
        own, former = self._now.query, self._then.query
        options = (own.since, own.lineage, own.on_revision) == (former.since, former.lineage, former.on_revision)
        return not options or self._fingerprint(self._declared) != self._now.fingerprint

    @property
    def redeclared(self) -> list[str]:
        """The streams whose declarations make the difference."""
        return [
            name
            for name, stream in self._before.items()
            if name not in self._declared
            or stream.on_revision != self._declared[name].on_revision
            or self._fingerprint({**self._declared, name: stream}) != self._now.fingerprint
        ]

    def _fingerprint(self, declared: Mapping[str, Stream]) -> str | None:
        """What the former text means over these streams; None if nothing."""
        applied: dict[str, CheckedQuery] = {**self._known, self._then.name: self._then}
        found = with_fingerprints(applied, [self._then.name], declared)
        return found[self._then.name].fingerprint if found else None
