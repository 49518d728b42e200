"""A project at hand in Python, for a script or a notebook that has no session of Spark.

What is asked for is done by the engine that suits its size: what is small without Java. Rows come as
Arrow tables, `.to_pandas()` makes pandas of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from errata.declare.project import load_project
from errata.flows.declaring import apply as applying
from errata.flows.site import Site, at_site
from errata.flows.telling import ask as asking
from errata.flows.telling import changes as changing
from errata.flows.telling import history as histories
from errata.flows.telling import read as scanning
from errata.flows.telling import results as published
from errata.flows.telling import why as stories
from errata.serve.rows import Rows, in_order, whole
from errata.serve.story_record import as_record

if TYPE_CHECKING:
    import pyarrow as pa

    from errata.flows.running.run import RunReport
    from errata.flows.taking.append import AppendReport


class OpenProject:
    """A project whose catalog is open until `close`, or until a `with` block around it ends."""

    def __init__(self, path: Path | None) -> None:
        declared = load_project(path)
        self._file = declared.root / declared.file
        self._stack = ExitStack()
        self._opened: Site | None = None

    @property
    def _site(self) -> Site:
        """Opened when it is first needed: before `apply` there may be no catalog."""
        if self._opened is None:
            self._opened = self._stack.enter_context(at_site(self._file))
        return self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog; what is asked next opens it again."""
        self._stack.close()
        self._opened = None

    def results(self, query: str, *, at: str | int | None = None, as_of: str | int | None = None) -> pa.Table:
        """The published answer of a query, sorted by its columns."""
        with published.reading(self._site, published.Wanted(query, at, as_of)) as found:
            (answer,) = found.answers
            return _sorted(answer.rows, answer.chosen.columns)

    def changes(self, query: str, *, since: str | int | None = None) -> pa.Table:
        """How the published answer has changed, in the order of commits."""
        return changing.changes_table(self._site, query, since)

    def why(self, query: str, key: Mapping[str, object], *, at: str | int | None = None) -> dict[str, object]:
        """A result's story: the `values` that it has had, each with its causes, and the rows `behind` it."""
        return as_record(stories.why(self._site, query, key, at))

    def history(self, stream: str, key: Mapping[str, str]) -> histories.History:
        """Every version of the rows that have borne a key, whose values are given as text."""
        return histories.history(self._site, stream, key)

    def ask(self, query: str, *, at: str | int | None = None, as_of: str | int | None = None) -> pa.Table:
        """A one-time answer, sorted by its columns: of a query that has been applied, by its name, or of a text."""
        with asking.answering(self._site, asking.question_of(query, at, as_of)) as answer:
            return _sorted(answer.rows, answer.asked.columns)

    def scan(
        self,
        stream: str,
        *,
        start: str | None = None,
        end: str | None = None,
        as_of: str | int | None = None,
        groups: Sequence[Mapping[str, str]] = (),
    ) -> pa.Table:
        """The rows of a stream's archive with start <= order field < end, sorted by order field and key."""
        with scanning.reading(self._site, scanning.Wanted(stream, start, end, as_of, groups)) as found:
            asked = found.scan.standing.stream
            return _sorted(found.rows, list(dict.fromkeys([asked.order, *asked.key])))

    def apply(self) -> int | None:
        """Make the catalog agree with errata.yaml; the commit, if there was something to do. What would lose data is
        refused."""
        self.close()
        planned = applying.plan(load_project(self._file))
        planned.changes.check()
        return None if planned.nothing else applying.apply(planned)

    def ingest(self, stream: str, *files: str | Path) -> AppendReport:
        """Take files into a stream's archive."""
        from errata.flows.taking.append import Batch, append  # noqa: PLC0415 - who only reads needs none of it

        return append(self._site, Batch(stream, [str(file) for file in files]))

    def run(self, *queries: str) -> RunReport:
        """Do all that is due; with names, only these queries and what they read."""
        from errata.flows.running.run import run  # noqa: PLC0415 - as above

        return run(self._site, queries)


def _sorted(rows: Rows, columns: Sequence[str]) -> pa.Table:
    return whole(in_order(rows, columns, None))
