"""`errata apply`: check the places of a project, plan the changes, and record them in one commit.

The catalog's file, the warehouse and the landing folders need not exist yet. Places that can never be made, written or
watched are refused, and so is a landing folder that contains files of Errata itself or of another stream. The plan is
made again on the current catalog before it is recorded, and again after each conflict.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from upath import UPath

from errata.catalog import declarations, queries, streams
from errata.catalog.database import Catalog, database_file, newest_schema_version, open_if_current
from errata.catalog.database import url_without_password as shown_url
from errata.catalog.migration import prepare_catalog
from errata.catalog.processes import cause_for
from errata.catalog.queries import RecordedQuery
from errata.catalog.streams import StreamState
from errata.catalog.transaction import optimistic
from errata.clock import SYSTEM, Clock
from errata.declare.changes import QueryChanges, StreamChanges, plan_query_changes, plan_stream_changes
from errata.declare.project import Project
from errata.errors import ErrataError, UsageError
from errata.intake.files import display_path, path_errors, url_scheme
from errata.model.query import CheckedQuery, Query
from errata.model.stream import Stream

if TYPE_CHECKING:
    from errata.language.plan import Plan

SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
"""Folders with special files, which never end or have effects when they are read."""

UNWATCHED_SCHEMES = ("http", "https", "data", "memory")
"""Schemes of places that another process cannot watch for new files, even with a driver installed."""


def check_project_places(project: Project) -> None:
    """Refuse the project if one of its places is impossible; the error lists all of them."""
    mistakes = [*_warehouse_mistakes(project), *_landing_mistakes(project)]
    if len(mistakes) == 1:
        raise mistakes[0]
    if mistakes:
        raise UsageError("\n".join([f"{project.file} has {len(mistakes)} mistakes", *map(str, mistakes)]))


def _warehouse_mistakes(project: Project) -> Iterator[UsageError]:
    """Mistakes in the places of the catalog and the warehouse."""
    file = database_file(project.catalog)
    if file is not None and (why := _folder_obstacle(file.parent)):
        yield _place_mistake(project, "catalog", f"the catalog cannot be at {display_path(file)}", why)
    url = url_scheme(project.warehouse)
    if url in UNWATCHED_SCHEMES:
        yield _place_mistake(project, "warehouse", f"a warehouse cannot be at {url}://", "nothing can be written there")
    elif url is not None:
        yield from _reach_mistakes(project, "warehouse", project.warehouse)
    elif why := _folder_obstacle(Path(project.warehouse)):
        yield _place_mistake(project, "warehouse", f"the warehouse cannot be at {display_path(project.warehouse)}", why)


def _landing_mistakes(project: Project) -> Iterator[UsageError]:
    """Mistakes in the landing folders."""
    warehouse = os.path.realpath(project.warehouse) if url_scheme(project.warehouse) is None else None
    folders: dict[str, str] = {}
    for name, key, path in _landing_places(project):
        url = url_scheme(path)
        if url in UNWATCHED_SCHEMES:
            why = "it tells no files, or not to every process, and none could be put away"
            yield _place_mistake(project, key, f"what lands at {url}:// cannot be watched", why)
        elif url is not None:
            yield from _reach_mistakes(project, key, path)
        else:
            real = os.path.realpath(path)
            no = _landing_obstacle(real, warehouse) or _folder_obstacle(Path(real)) or _shared_landing(real, folders)
            if no is not None:
                yield _place_mistake(project, key, f"files cannot land in {display_path(path)}", no)
            folders[real] = name


def _landing_places(project: Project) -> Iterator[tuple[str, str, str]]:
    """Whose files land where: the stream or feed in words, the key of the place, and its path."""
    for name, stream in project.streams.items():
        if stream.landing is not None:
            yield name, f"streams.{name}.landing.path", stream.landing.path
        for feed in stream.merged.feeds:
            if feed.landing is not None:
                yield f"feed {feed.name} of {name}", f"streams.{name}.feeds.{feed.name}.landing", feed.landing.path


def _landing_obstacle(folder: str, warehouse: str | None) -> str | None:
    """Why files in this folder are not deliveries of a source."""
    if folder == "/":
        return "it is the whole disk"
    if warehouse is not None and _is_within(folder, warehouse):
        return "it is in the warehouse, whose files are the archives themselves"
    if warehouse is not None and _is_within(warehouse, folder):
        return "the warehouse is in it, and deeper folders belong to it: archives would be taken for deliveries"
    return None


def _shared_landing(folder: str, others: dict[str, str]) -> str | None:
    """Why another stream would take the same files."""
    for other, stream in others.items():
        if _is_within(folder, other) or _is_within(other, folder):
            return (
                f"files land for {stream} in {display_path(other)}, and deeper folders belong to it: "
                "both would take them"
            )
    return None


def _reach_mistakes(project: Project, key: str, url: str) -> Iterator[UsageError]:
    try:
        with path_errors(url):
            _ = UPath(url).fs
    except UsageError as error:
        yield UsageError(error.what, where=f"{project.file} ({key})", why=error.why, how=error.how)


def _folder_obstacle(folder: Path) -> str | None:
    """Why a folder can never be made and written, if it cannot."""
    for of_the_system in SYSTEM_FOLDERS:
        if _is_within(os.path.realpath(folder), of_the_system):
            return f"{of_the_system} is the system's own"
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{display_path(there)} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{display_path(there)} cannot be written"


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _place_mistake(project: Project, key: str, what: str, why: str) -> UsageError:
    return UsageError(what, where=f"{project.file} ({key})", why=why, how="name another place")


MAX_NAMES_IN_COMMIT = 20
"""Queries that the summary of a commit names; of more it has the number."""


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """The changes that `errata apply` would make."""

    project: Project
    tables: str | None
    """The catalog whose tables would be made or migrated; None when they are up to date."""
    changes: StreamChanges
    planned_on: Mapping[str, int] = field(default_factory=dict)
    """The streams in the catalog, each with the last commit that changed it."""
    query_changes: QueryChanges = field(default_factory=QueryChanges)
    texts: Mapping[str, Query] = field(default_factory=dict)
    """The declared queries as they were read."""
    checked: Mapping[str, CheckedQuery] = field(default_factory=dict)
    """The same, checked."""
    queries_on: Mapping[str, int] = field(default_factory=dict)
    """The queries in the catalog, each with the commit that recorded it."""

    @property
    def nothing(self) -> bool:
        return self.tables is None and self.agreed

    @property
    def agreed(self) -> bool:
        """Whether the catalog agrees with the declarations."""
        return self.changes.nothing and self.query_changes.nothing


@dataclass(frozen=True, slots=True)
class _CatalogContents:
    """The streams and queries in a catalog."""

    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, RecordedQuery] = field(default_factory=dict)


def plan_apply(project: Project, drop: Collection[str] = (), shown: ApplyPlan | None = None) -> ApplyPlan:
    """Compare the declarations with the catalog; nothing is changed. `shown` is a plan that was made just before, whose
    texts of queries are used again."""
    check_project_places(project)
    catalog = open_if_current(project.catalog)
    if catalog is None:
        tables, there = (
            f"{shown_url(project.catalog)} (tables of version {newest_schema_version()})",
            _CatalogContents(),
        )
    else:
        tables = None
        try:
            there = _CatalogContents(
                {each.stream.name: each for each in streams.stream_states(catalog)}, queries.recorded_queries(catalog)
            )
            for name in drop:
                _check_droppable(project, catalog, there, name)
        finally:
            catalog.close()
    rows = {name: each.rows + each.revisions for name, each in there.streams.items()}
    recorded = {name: each.stream for name, each in there.streams.items()}
    changes = plan_stream_changes(project.streams, recorded, rows, drop)
    applied = {name: each.checked for name, each in there.queries.items()}
    texts = _load_texts(project, refused=bool(changes.refusals)) if shown is None else shown.texts
    # Queries need not be checked when streams are refused anyway.
    checked = (
        {}
        if changes.refusals
        else _check_queries(project, texts, applied if shown is None else {**applied, **shown.checked})
    )
    if checked and _fed_queries(project):
        changes = plan_stream_changes(_with_derived(project, texts, checked), recorded, rows, drop)
    return ApplyPlan(
        project,
        tables,
        changes,
        {name: each.changed_in for name, each in there.streams.items()},
        QueryChanges()
        if changes.refusals
        else plan_query_changes(checked, _with_comparable_fingerprints(applied, checked, recorded)),
        texts,
        checked,
        {name: each.added_in for name, each in there.queries.items()},
    )


def _check_droppable(project: Project, catalog: Catalog, there: _CatalogContents, name: str) -> None:
    if name in there.queries or name in project.queries:
        raise UsageError(
            f"{name} is a query, and queries need no --drop",
            why="what a query says can be worked out again",
            how="take it out of errata.yaml and run `errata apply`",
        )
    if name not in project.streams:
        streams.check_stream_known(catalog, name)


def _load_texts(project: Project, *, refused: bool) -> Mapping[str, Query]:
    """The declared queries. If files cannot be read, the error also lists the mistakes in the others, unless streams
    are refused anyway."""
    texts, problems = project.readable_texts()
    try:
        problems.check()
    except UsageError as unread:
        if refused:
            raise
        from errata.declare.query_plans import add_other_mistakes  # noqa: PLC0415

        raise add_other_mistakes(project, texts, unread) from None
    return texts


def _check_queries(
    project: Project, texts: Mapping[str, Query], known: Mapping[str, CheckedQuery]
) -> Mapping[str, CheckedQuery]:
    if not texts:
        return {}
    # A project without queries does not import the parser.
    from errata.declare.query_plans import check_queries  # noqa: PLC0415

    checked = check_queries(project, texts, known)
    if _fed_queries(project):
        _check_query_feeds(project, texts, checked)
    return checked


def _fed_queries(project: Project) -> list[str]:
    """The queries that are feeds."""
    return [feed.query for each in project.streams.values() for feed in each.merged.feeds if feed.query]


def _fed_plans(
    project: Project, texts: Mapping[str, Query], checked: Mapping[str, CheckedQuery]
) -> tuple[dict[str, Plan], dict[str, tuple[str, ...]]]:
    """The plans of the queries that are feeds, and what each query reads."""
    from errata.declare.query_plans import read_plans, with_inputs  # noqa: PLC0415 - few projects have such feeds

    reads = {name: each.reads for name, each in checked.items()}
    return read_plans(project.streams, texts, with_inputs(_fed_queries(project), reads)), reads


def _with_derived(
    project: Project, texts: Mapping[str, Query], checked: Mapping[str, CheckedQuery]
) -> Mapping[str, Stream]:
    """The declared streams, with what their feeds' queries guarantee."""
    from errata.declare.feed_guarantees import with_derived  # noqa: PLC0415 - few projects have such feeds

    return with_derived(project.streams, _fed_plans(project, texts, checked)[0])


def _check_query_feeds(project: Project, texts: Mapping[str, Query], checked: Mapping[str, CheckedQuery]) -> None:
    """Raise the mistakes in feeds that queries make."""
    from errata.declare.query_feeds import check_query_feeds  # noqa: PLC0415 - few projects have such feeds

    plans, reads = _fed_plans(project, texts, checked)
    mistakes = [
        UsageError(each.what, where=f"{project.file}: {each.where}", why=each.why, how=each.how)
        for each in check_query_feeds(project.streams, texts, plans, reads)
    ]
    if len(mistakes) > 1:
        raise UsageError("\n".join([f"{project.file} has {len(mistakes)} mistakes", *map(str, mistakes)]))
    if mistakes:
        raise mistakes[0]


def _with_comparable_fingerprints(
    applied: Mapping[str, CheckedQuery], checked: Mapping[str, CheckedQuery], recorded: Mapping[str, Stream]
) -> Mapping[str, CheckedQuery]:
    """The applied queries, with fingerprints added to records of older versions that are to be compared."""
    wanted = [name for name, each in applied.items() if not each.fingerprint and name in checked]
    wanted = [name for name in wanted if checked[name].fingerprint]
    if not wanted:
        return applied
    from errata.declare.query_plans import with_fingerprints  # noqa: PLC0415

    return {**applied, **with_fingerprints(applied, wanted, recorded)}


def apply_plan(planned: ApplyPlan, drop: Collection[str] = (), clock: Clock = SYSTEM) -> int | None:
    """Carry a plan out; the commit, or None when the catalog already agreed. Refusals are raised before any change."""
    planned.changes.check()
    project = planned.project
    catalog = prepare_catalog(project.catalog, clock)

    def attempt(_: int) -> int | None:
        # Planned again on the current catalog: tables may have been made, and streams changed, since it was shown.
        current = plan_apply(project, drop, planned)
        current.changes.check()
        return None if current.agreed else _record_plan(catalog, current)

    def fail() -> NoReturn:
        raise ErrataError("the streams are changing faster than they can be declared", how="run it again")

    try:
        return optimistic(attempt, fail, on=declarations.ApplyConflict)
    finally:
        catalog.close()


def _record_plan(catalog: Catalog, planned: ApplyPlan) -> int:
    changes, of_queries = planned.changes, planned.query_changes
    summary = {
        "created": [each.stream.name for each in changes.creates],
        "changed": [each.after.name for each in changes.changes],
        "dropped": [each.name for each in changes.drops],
        "queries_created": _names_or_count([each.name for each in of_queries.creates]),
        "queries_changed": _names_or_count([each.after.name for each in of_queries.changes]),
        "queries_dropped": _names_or_count(of_queries.drops),
    }
    return declarations.apply_changes(
        catalog,
        cause_for("apply"),
        write=[
            *(each.stream for each in changes.creates),
            *(each.after for each in changes.changes),
        ],
        drop=[each.name for each in changes.drops],
        summary={name: names for name, names in summary.items() if names},
        planned_on=planned.planned_on,
        query_writes=queries.QueryChangeSet(
            [*of_queries.creates, *(each.after for each in of_queries.changes)],
            of_queries.drops,
            planned.queries_on,
            same_form=[each.after.name for each in of_queries.changes if each.keeps_results],
        ),
    )


def _names_or_count(names: Sequence[str]) -> list[str] | int:
    """Names for the summary of a commit, or their number if they are many."""
    return list(names) if len(names) <= MAX_NAMES_IN_COMMIT else len(names)
