"""A project opened in Python, for scripts and notebooks that have no Spark session.

Each call runs on the engine that suits its size, so small work needs no Java. Rows are Arrow tables; `.to_pandas()`
converts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from errata.declare import apply as applying
from errata.declare.project import load_project
from errata.declare.site import Site, open_site
from errata.errors import unknown_name_error
from errata.model.registered import ResultStrategy
from errata.read import ask as asking
from errata.read import changes as changing
from errata.read import history as histories
from errata.read import results as published
from errata.read import stream_scan as scanning
from errata.read import why as stories
from errata.read.output import FrameOrTable, fetch_all, sort_rows
from errata.read.provenance_output import provenance_json
from errata.read.sampled_scans import mark_reduced_table

if TYPE_CHECKING:
    import pyarrow as pa

    from errata.answer.runs import RunReport
    from errata.archive.ingest.batch import IngestReport
    from errata.psoup.reader import RegisteredReader


REMARKS = "errata.remarks"
"""The metadata of an answer's schema that says what was read, where not all rows were."""


class OpenProject:
    """A project whose catalog stays open until `close`, or until the end of a `with` block."""

    def __init__(self, path: Path | None) -> None:
        declared = load_project(path)
        self._file = declared.root / declared.file
        self._stack = ExitStack()
        self._opened: Site | None = None
        self._reader: RegisteredReader | None = None

    @property
    def _site(self) -> Site:
        """Opened on first use: before `apply` there may be no catalog."""
        if self._opened is None:
            self._opened = self._stack.enter_context(open_site(self._file))
        return self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the catalog; the next call opens it again."""
        self._stack.close()
        self._opened = self._reader = None

    def results(self, query: str, *, at: str | int | None = None, as_of: str | int | None = None) -> pa.Table:
        """The published answer of a query, sorted by its columns."""
        with published.open_results(self._site, published.ResultsRequest(query, at, as_of)) as found:
            (answer,) = found.answers
            return _sorted_table(answer.rows, answer.snapshot.columns)

    def changes(self, query: str, *, since: str | int | None = None) -> pa.Table:
        """The changelog of a query's results, in the order of commits."""
        return changing.query_changes_table(self._site, query, since)

    def why(self, query: str, key: Mapping[str, object], *, at: str | int | None = None) -> dict[str, object]:
        """The provenance of a result: the `values` that it has had, each with its causes, and the rows `behind` it."""
        return provenance_json(stories.explain_result(self._site, query, key, at))

    def history(self, stream: str, key: Mapping[str, str]) -> histories.RowHistory:
        """Every version of the rows that have had a key, whose values are given as text."""
        return histories.row_history(self._site, stream, key)

    def ask(
        self,
        query: str,
        *,
        at: str | int | None = None,
        as_of: str | int | None = None,
        with_error: bool = False,
    ) -> pa.Table:
        """A one-time answer, sorted by its columns: of an applied query by its name, or of a text.

        With `with_error`, estimates over streams with TABLESAMPLE have their 95% intervals beside them, `<name>_low`
        and `<name>_high`. A reduced answer has a column `_reduced`; what was read for it is in the metadata of the
        table's schema, as `errata.remarks`.
        """
        question = replace(asking.one_time_query(query, at, as_of), with_error=with_error)
        with asking.open_answer(self._site, question) as answer:
            plan = answer.plan
            found = _sorted_table(answer.rows, plan.columns)
            if not plan.remarks:
                return found
            told = found.replace_schema_metadata({REMARKS: "\n".join(plan.remarks)})
            return told if plan.reduced is None else mark_reduced_table(told, plan.reduced)

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
        with scanning.open_scan(self._site, scanning.StreamScanRequest(stream, start, end, as_of, groups)) as found:
            asked = found.scan.state.stream
            return _sorted_table(found.rows, list(dict.fromkeys([asked.order, *asked.key])))

    def apply(self) -> int | None:
        """Make the catalog agree with errata.yaml; the commit, or None if nothing was to be done. Changes that would
        lose data are refused."""
        self.close()
        planned = applying.plan_apply(load_project(self._file))
        planned.changes.check()
        return None if planned.nothing else applying.apply_plan(planned)

    def ingest(self, stream: str, *files: str | Path, feed: str | None = None) -> IngestReport:
        """Ingest files into a stream's archive; of a stream with feeds, as files of this feed."""
        from errata.archive.ingest.batch import IngestRequest, ingest_batch  # noqa: PLC0415 - who only reads needs none of it

        return ingest_batch(self._site, IngestRequest(stream, [str(file) for file in files], feed=feed))

    def attach(self, stream: str, feed: str, *, starts_at: str | None = None) -> int | None:
        """Attach a feed, which has everything from a time on; without one, from where the stream is. The commit, or
        None if it is attached."""
        from errata.catalog.feed_commits import attach_feed  # noqa: PLC0415 - most streams have no feeds
        from errata.catalog.streams import stream_state  # noqa: PLC0415 - as above
        from errata.declare.feeds import parse_joining  # noqa: PLC0415 - as above

        site = self._site
        timed = stream_state(site.catalog, stream).stream.timed
        joins_at = None if starts_at is None else parse_joining(starts_at, timed)
        return attach_feed(site.catalog, stream, feed, site.caused_by("feeds"), joins_at)

    def detach(self, stream: str, feed: str) -> int | None:
        """Detach a feed: it is not listened to until it is attached again. The commit, or None if it is detached."""
        from errata.catalog.feed_commits import detach_feed  # noqa: PLC0415 - most streams have no feeds

        return detach_feed(self._site.catalog, stream, feed, self._site.caused_by("feeds"))

    def register(self, *texts: str, strategy: str = "partial") -> list[str]:
        """Register queries, all of them or none: their handles, in the order of the texts."""
        if strategy not in list(ResultStrategy):
            raise unknown_name_error("strategy", strategy, [each.value for each in ResultStrategy])
        from errata.psoup.register import register  # noqa: PLC0415 - as above

        made = register(
            self._site, texts, owner=self._site.caused_by("register").user, strategy=ResultStrategy(strategy)
        )
        return [each.handle for each in made]

    def unregister(self, handle: str) -> int:
        """Take a registered query back; the commit."""
        from errata.psoup.register import unregister  # noqa: PLC0415 - as above

        return unregister(self._site, handle)

    def invoke(self, handle: str, *, at: str | int | None = None, as_of: str | int | None = None) -> pa.Table:
        """The answer of a registered query, in the order of event time and key. What one invocation has read the next
        ones find in memory."""
        from errata.psoup.reader import RegisteredReader  # noqa: PLC0415 - as above

        if self._reader is None:
            self._reader = self._stack.enter_context(RegisteredReader(self._site))
        return self._reader.invoke(handle, at=at, as_of=as_of).rows

    def materialise(self, *streams: str) -> None:
        """Match new rows with all registered queries, and new queries with all rows, so that invocations need not."""
        from errata.psoup.materialise import materialise  # noqa: PLC0415 - as above

        materialise(self._site, streams)

    def run(self, *queries: str) -> RunReport:
        """Do all that is due; with names, only for these queries and their inputs."""
        from errata.answer.runs import run  # noqa: PLC0415 - as above

        return run(self._site, queries)


def _sorted_table(rows: FrameOrTable, columns: Sequence[str]) -> pa.Table:
    return fetch_all(sort_rows(rows, columns, None))
