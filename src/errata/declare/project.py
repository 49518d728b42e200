"""The project: the whole of errata.yaml, found, read strictly, and converted to the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from errata.declare.files import (
    MAX_PROJECT_BYTES,
    catalog_url,
    expand_home,
    is_file,
    is_folder,
    read_text_file,
    resolve_location,
)
from errata.declare.queries import (
    QueryFile,
    check_result_tables,
    load_queries,
    load_readable_queries,
    read_deferral,
    read_query_file,
)
from errata.declare.section import YamlPlace, YamlProblems, YamlSection, parse_byte_count, parse_whole_number
from errata.declare.streams import read_relation, read_stream
from errata.declare.yaml_tree import YamlMapping, parse_yaml
from errata.errors import UsageError
from errata.model.columns import check_name
from errata.model.deferral import DEFAULT_DEFERRAL, Deferral
from errata.model.query import Query
from errata.model.stream import Stream

if TYPE_CHECKING:
    from errata.declare.reduction import SummaryPlace

T = TypeVar("T")

FILE_NAME = "errata.yaml"
PROJECT_VARIABLE = "ERRATA_PROJECT"
REMOTE_VARIABLE = "ERRATA_SPARK_REMOTE"
NEAR_VARIABLE = "ERRATA_NEAR"
DEFAULT_CATALOG = "sqlite:///errata.db"
DEFAULT_WAREHOUSE = "./warehouse"


class NearMode(StrEnum):
    """Which work the near engine does."""

    AUTO = "auto"
    """Small work, if it is installed."""
    OFF = "off"
    """None: Spark does everything."""


@dataclass(frozen=True, slots=True)
class NearSettings:
    """The limits of work for the near engine; None: the default."""

    use: NearMode = NearMode.AUTO
    rows: int | None = None
    """Rows of one job at most."""
    size: int | None = None
    """Bytes of its buckets at most."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs: in this process under `master`, or behind a Connect server at `remote`."""

    master: str = "local[*]"
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    near: NearSettings = NearSettings()
    """Which work is done without Spark."""


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that errata.yaml declares, with defaults filled in and paths made absolute."""

    name: str
    catalog: str
    warehouse: str
    spark: SparkSettings
    streams: Mapping[str, Stream]
    """By name; also relations, which are kept as streams."""
    root: Path
    """The folder of errata.yaml."""
    queries: Mapping[str, QueryFile] = field(default_factory=dict)
    """By name, without their texts, which `texts` reads."""
    sweep: Deferral = DEFAULT_DEFERRAL
    """When corrections are worked into results of queries that do not declare it."""
    file: str = field(default=FILE_NAME, compare=False)
    """The name of errata.yaml in messages."""

    def texts(self) -> Mapping[str, Query]:
        """The queries with their texts."""
        return load_queries(self.queries.values(), self.file)

    def readable_texts(self) -> tuple[Mapping[str, Query], YamlProblems]:
        """The queries whose texts can be read, and the mistakes in the other files."""
        return load_readable_queries(self.queries.values(), self.file)


def load_project(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Project:
    """Read the project's file: the one given, or in ERRATA_PROJECT, or the nearest in this folder and those above."""
    environ = os.environ if environ is None else environ
    file = _find_file(path, environ)
    shown = file.name if file.parent == Path.cwd() else str(file)
    tree = parse_yaml(_read_file(file, shown), shown)
    if not isinstance(tree, YamlMapping):
        raise UsageError("the file is not a mapping", where=f"{shown}:{tree.line}", how="begin with 'project: NAME'")
    problems = YamlProblems(shown)
    project = _read_project(YamlSection(tree, YamlPlace(1, ""), problems, environ), file.parent, environ)
    problems.check()
    return project


def _find_file(path: Path | None, environ: Mapping[str, str]) -> Path:
    named = path or (expand_home(environ[PROJECT_VARIABLE]) if environ.get(PROJECT_VARIABLE) else None)
    if named is not None:
        file = named / FILE_NAME if is_folder(named) else named
        if not is_file(file):
            who = "" if path else f"{PROJECT_VARIABLE} says {named}; "
            raise UsageError(
                f"there is no file {file}", how=f"{who}name the file or its folder; `errata init` makes one"
            )
        return file.resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if is_file(folder / FILE_NAME):
            return folder / FILE_NAME
    raise UsageError(
        f"there is no {FILE_NAME} in {here} or a folder above it",
        how=f"`errata init` makes one here; or go to the project's folder, or set {PROJECT_VARIABLE} to it",
    )


def _read_file(file: Path, shown: str) -> str:
    try:
        return read_text_file(file, shown, MAX_PROJECT_BYTES)
    except FileNotFoundError:
        raise UsageError("the file is gone", where=shown) from None


def _read_project(section: YamlSection, root: Path, environ: Mapping[str, str]) -> Project:
    name = section.required("project", "name the project: 'project: quotes'") or ""
    catalog = section.read("catalog", lambda text: catalog_url(text, root)) or catalog_url(DEFAULT_CATALOG, root)
    warehouse = section.read("warehouse", lambda text: resolve_location(text, root)) or resolve_location(
        DEFAULT_WAREHOUSE, root
    )
    spark = _read_spark(section.section("spark"), environ)
    sweep = read_deferral(section) or DEFAULT_DEFERRAL
    names = _UsedNames()
    summaries: list[SummaryPlace] = []
    reading = partial(read_stream, summaries=summaries)
    streams = _read_declarations(section.section("streams"), "stream", names, root, reading)
    streams |= _read_declarations(section.section("relations"), "relation", names, root, read_relation)
    queries = _read_declarations(section.section("queries"), "query", names, root, read_query_file)
    for each in summaries:
        names.take(each.section, f"summary of {each.of}", each.name)
        each.check()
    if any(feed.query for each in streams.values() for feed in each.merged.feeds):
        from errata.declare.feeds import check_feed_queries  # noqa: PLC0415 - most projects have none

        check_feed_queries(section.section("streams"), streams, queries)
    check_result_tables(queries.values(), section.problems)
    section.finish()
    return Project(name, catalog, warehouse, spark, streams, root, queries, sweep, section.problems.file)


def _read_spark(section: YamlSection | None, environ: Mapping[str, str]) -> SparkSettings:
    """The declared settings; environment variables take precedence."""
    named = environ.get(REMOTE_VARIABLE) or None
    if section is None:
        return SparkSettings(remote=named, near=_read_near(None, environ))
    master, remote = section.text("master"), section.text("remote")
    if master and remote:
        section.mistake(
            "remote",
            UsageError("master and remote are both declared", how="keep remote to use a Connect server, else master"),
        )
    conf: dict[str, str] = {}
    settings = section.section("conf")
    if settings is not None:
        conf = {name: value for name in settings.names() if (value := settings.text(name)) is not None}
    near = _read_near(section.section("near", "use"), environ)
    section.finish()
    return SparkSettings(master or "local[*]", named or remote, conf, near)


def _read_near(section: YamlSection | None, environ: Mapping[str, str]) -> NearSettings:
    """Either one word, or the limits."""
    use, rows, size = None, None, None
    if section is not None:
        use = section.choice("use", NearMode)
        rows, size = section.read("rows", parse_whole_number), section.read("bytes", parse_byte_count)
        section.finish()
    if said := environ.get(NEAR_VARIABLE):
        known = [each.value for each in NearMode]
        if said not in known:
            raise UsageError(f"{NEAR_VARIABLE}={said} is not a choice", how=f"choose one of {', '.join(known)}")
        use = NearMode(said)
    return NearSettings(use or NearMode.AUTO, rows, size)


@dataclass(slots=True)
class _UsedNames:
    """The names that are in use: streams, relations and queries share one namespace in SQL."""

    taken: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The kind and the spelling of each name, by the name in lower case."""

    def take(self, section: YamlSection, noun: str, name: str) -> bool:
        """Whether the name is free; if not, a mistake is noted."""
        try:
            check_name(noun, name)
        except UsageError as error:
            section.mistake(name, error)
            return False
        other = self.taken.setdefault(name.lower(), (noun, name))
        if other != (noun, name):
            section.mistake(name, _name_conflict(noun, name, *other))
        return True


def _name_conflict(noun: str, name: str, other_noun: str, other: str) -> UsageError:
    if noun == other_noun:
        first, *rest = noun.split(" ", 1)
        plural = " ".join([f"{first[:-1]}ies" if first.endswith("y") else f"{first}s", *rest])
        what = f"{plural} {other!r} and {name!r} differ only in upper and lower case"
        return UsageError(what, how="name one of them otherwise")
    what = f"{noun} {name!r} has the name of a {other_noun}"
    why = "queries name streams, relations and other queries alike, and upper and lower case are the same"
    return UsageError(what, why=why, how="name one of them otherwise")


def _read_declarations(
    section: YamlSection | None,
    noun: str,
    names: _UsedNames,
    root: Path,
    read: Callable[[str, YamlSection, Path], T | None],
) -> dict[str, T]:
    if section is None:
        return {}
    declared: dict[str, T] = {}
    for name in section.names():
        if names.take(section, noun, name):
            below = section.section(name, "sql" if noun == "query" else None)
            if below is not None and (found := read(name, below, root)) is not None:
                declared[name] = found
    return declared
