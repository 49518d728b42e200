"""What a task of a scheduler has moved: the streams and queries that its commits changed, and in which event times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from errata.catalog import made, queries, streams
from errata.catalog.published import all_published
from errata.flows.site import Site
from errata.model.instants import format_instant
from errata.model.interval import Interval

_ROWS = ("appended", "inserted", "changed", "results")
"""Of a commit's summary, what counts the rows that it brought or changed: the first that is there."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One commit, as those want to know of it who read the stream or the query."""

    kind: str
    """`streams` or `queries`."""
    name: str
    commit_id: int
    rows: int
    span: Interval | None
    """The event times that it concerns; None where it brought no rows."""
    timed: bool = True
    reads: tuple[str, ...] = ()
    """What a query reads, each as its kind and name: `streams/trades`."""

    @property
    def told(self) -> Mapping[str, object]:
        """For programs outside."""
        found: dict[str, object] = {"commit": self.commit_id, "rows": self.rows}
        if self.span is not None:
            found |= {"from": self._shown(self.span.start), "to": self._shown(self.span.end)}
        return found

    def _shown(self, moment: int) -> object:
        return format_instant(moment) if self.timed else moment


def moved(site: Site, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[Moved]:
    """What the commits of one try of a task have moved, in their order."""
    commits = made.made_by(site.catalog, dag_id, run_id, task_id, try_number)
    if not commits:
        return []
    spans = made.spans(site.catalog, [each.commit_id for each in commits])
    timed = {each.stream.name: each.stream.timed for each in streams.standings(site.catalog)}
    timed |= {name: each.shape.timed for name, each in all_published(site.catalog).items()}
    reads = {name: each.checked.reads for name, each in queries.recorded(site.catalog).items()}
    found = []
    for each in commits:
        query = each.summary.get("query")
        name = each.stream if query is None else str(query)
        if name is None:  # a mend, or declarations applied: nothing that readers wait for
            continue
        rows = next((int(str(each.summary[key])) for key in _ROWS if key in each.summary), 0)
        kind = "streams" if query is None else "queries"
        read = (
            () if query is None else (f"{'queries' if of in reads else 'streams'}/{of}" for of in reads.get(name, ()))
        )
        span = spans.get(each.commit_id)
        found.append(Moved(kind, name, each.commit_id, rows, span, timed.get(name, True), tuple(read)))
    return found
