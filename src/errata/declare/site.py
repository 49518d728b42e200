"""A project at work: its declarations, catalog, warehouse and session, and the account of who runs what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from errata.catalog import commits, pins, streams
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.processes import cause_for
from errata.catalog.streams import StreamState
from errata.catalog.transaction import Conflict
from errata.clock import SYSTEM, Clock
from errata.declare.project import NearMode, Project, load_project
from errata.declare.warehouse import Warehouse
from errata.engine.budget import NEAR_MAX_BYTES, NEAR_MAX_ROWS, NearBudget, near_is_installed
from errata.errors import ErrataError, unknown_name_error
from errata.model.bucket import NewBucket
from errata.model.commit import Cause
from errata.model.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from errata.engine.engines import Engines


ProgressCallback = Callable[[str], None]
"""Is told each step of a job, in a few words for a person."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where flows work. A session is opened when the first flow needs it, and shared from then on."""

    project: Project
    catalog: Catalog
    warehouse: Warehouse
    cause: Cause = field(default_factory=lambda: Cause(""))
    """Who runs the flows; each flow writes its own name into it."""

    def session(self) -> SparkSession:
        # PySpark takes seconds to import, and many commands need no session.
        from errata.engine.session import open_session  # noqa: PLC0415

        spark = self.project.spark
        return open_session(spark.master, spark.remote, spark.conf, f"errata {self.project.name}")

    def engines(self) -> Engines:
        """The engines that do what is asked for."""
        return self.engines_with(self.session)

    def engines_with(self, open_far: Callable[[], SparkSession]) -> Engines:
        """The same for a run, with its own way to open the far one."""
        from errata.engine.engines import Engines  # noqa: PLC0415 - it imports PySpark, too

        return Engines(open_far, self.near_budget())

    def near_budget(self) -> NearBudget | None:
        """What the near engine is given at most; None if it is off or not installed."""
        near = self.project.spark.near
        if near.use is NearMode.OFF or not near_is_installed():
            return None
        return NearBudget(near.rows or NEAR_MAX_ROWS, near.size or NEAR_MAX_BYTES)

    def caused_by(self, flow: str, session: SparkSession | None = None) -> Cause:
        """What a commit of the flow is to say of its making."""
        app = session.conf.get("spark.app.id", "") if session is not None else ""
        return replace(cause_for(flow, self.cause), spark_app=app or "")

    def named(self, names: Sequence[str]) -> list[str]:
        """The streams named, all of which must be in the catalog; without names all that are."""
        there = sorted(each.stream.name for each in streams.stream_states(self.catalog))
        for name in names:
            if name not in there:
                raise unknown_name_error("stream", name, there)
        return list(names) or there

    def discard(self, written: Iterable[NewBucket]) -> None:
        """Remove what was written and will not be committed; what a kill leaves behind is found by vacuum."""
        for bucket in written:
            if bucket.path is not None:
                self.warehouse.remove(bucket.path)
            self.discard(bucket.reduced)

    @contextmanager
    def discard_on_conflict(
        self, written: Iterable[NewBucket], tell: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """Remove these buckets' files, and tell, when the block raises a conflict: nothing has been committed then.
        After an error of the database nobody knows whether it has committed, so the files stay, for vacuum."""
        try:
            yield
        except Conflict:
            self.discard(written)
            tell()
            raise

    def declared(self, name: str) -> Stream:
        """The stream as errata.yaml declares it; it must have been applied."""
        if name not in self.project.streams:
            raise unknown_name_error("stream", name, self.project.streams)
        recorded = {each.stream.name: each.stream for each in streams.stream_states(self.catalog)}
        if recorded.get(name) != self.project.streams[name]:
            state = "has changed in errata.yaml" if name in recorded else "is not in the catalog yet"
            raise ErrataError(f"stream {name} {state}", how="run `errata apply` first")
        return recorded[name]


@contextmanager
def pinned_stream(site: Site, name: str, holder: str) -> Iterator[StreamState]:
    """Where a stream stands, for those who decide on it: none of the files that this names is removed before the block
    ends."""
    # Pinned first and looked up behind the pin: what is found then stays.
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), f"{holder} {name}"):
        yield streams.stream_state(site.catalog, name)


@contextmanager
def open_site(path: Path | None = None, cause: Cause | None = None, clock: Clock = SYSTEM) -> Iterator[Site]:
    """The project at a path (None: the nearest one), its catalog open until the block ends."""
    project = load_project(path)
    catalog = open_catalog(project.catalog, clock)
    try:
        yield Site(project, catalog, Warehouse(project.warehouse), cause or Cause(""))
    finally:
        catalog.close()
