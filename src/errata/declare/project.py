"""The project: errata.yaml found, read strictly, and turned into the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from errata.declare.locations import at_home, catalog_url, place
from errata.declare.marked import Table, compose
from errata.declare.queries import (
    QueryFile,
    check_tables,
    read_query_file,
    read_sweep,
    readable_texts,
    with_texts,
)
from errata.declare.reader import Place, Problems, Section, byte_count, whole_number
from errata.declare.streams import read_relation, read_stream
from errata.declare.text_files import PROJECT_BYTES, is_file, is_folder, read_within
from errata.errors import UsageError
from errata.model.columns import check_name
from errata.model.deferral import ALWAYS, Deferral
from errata.model.query import Query
from errata.model.stream import Stream

T = TypeVar("T")

FILE_NAME = "errata.yaml"
VARIABLE = "ERRATA_PROJECT"
REMOTE = "ERRATA_SPARK_REMOTE"
NEAR = "ERRATA_NEAR"
DEFAULT_CATALOG = "sqlite:///errata.db"
DEFAULT_WAREHOUSE = "./warehouse"


class NearUse(StrEnum):
    """Whether the near engine is used."""

    AUTO = "auto"
    """For work that is small, where it is installed."""
    OFF = "off"
    """Spark does everything."""


@dataclass(frozen=True, slots=True)
class NearSettings:
    """Which work the near engine is given; None: as much as it is given unless somebody says otherwise."""

    use: NearUse = NearUse.AUTO
    rows: int | None = None
    """Rows at most."""
    size: int | None = None
    """Bytes in buckets at most."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs: in this process under `master`, or behind a Connect server at `remote`."""

    master: str = "local[*]"
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    near: NearSettings = NearSettings()
    """What is done without Spark."""


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that errata.yaml declares, with defaults filled in and paths made absolute."""

    name: str
    catalog: str
    warehouse: str
    spark: SparkSettings
    streams: Mapping[str, Stream]
    """Relations, too: they are kept as streams."""
    root: Path
    """The folder of errata.yaml."""
    queries: Mapping[str, QueryFile] = field(default_factory=dict)
    """Without their texts, which `texts` reads."""
    sweep: Deferral = ALWAYS
    """When corrections are worked into the results of queries that do not say themselves."""
    file: str = field(default=FILE_NAME, compare=False)
    """The name of errata.yaml in mistakes."""

    def texts(self) -> Mapping[str, Query]:
        """The queries with their texts."""
        return with_texts(self.queries.values(), self.file)

    def readable_texts(self) -> tuple[Mapping[str, Query], Problems]:
        """The queries whose texts can be read, and what is wrong with the other files."""
        return readable_texts(self.queries.values(), self.file)


def load_project(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Project:
    """Read the project's file: the one given, or named by ERRATA_PROJECT, or the nearest from here upwards."""
    environ = os.environ if environ is None else environ
    file = _found(path, environ)
    shown = file.name if file.parent == Path.cwd() else str(file)
    tree = compose(_text(file, shown), shown)
    if not isinstance(tree, Table):
        raise UsageError("the file is not a mapping", where=f"{shown}:{tree.line}", how="begin with 'project: NAME'")
    problems = Problems(shown)
    project = _project(Section(tree, Place(1, ""), problems, environ), file.parent, environ)
    problems.check()
    return project


def _found(path: Path | None, environ: Mapping[str, str]) -> Path:
    named = path or (at_home(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if named is not None:
        file = named / FILE_NAME if is_folder(named) else named
        if not is_file(file):
            who = "" if path else f"{VARIABLE} says {named}; "
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
        how=f"`errata init` makes one here; or go to the project's folder, or set {VARIABLE} to it",
    )


def _text(file: Path, shown: str) -> str:
    try:
        return read_within(file, shown, PROJECT_BYTES)
    except FileNotFoundError:
        raise UsageError("the file is gone", where=shown) from None


def _project(section: Section, root: Path, environ: Mapping[str, str]) -> Project:
    name = section.required("project", "name the project: 'project: quotes'") or ""
    catalog = section.read("catalog", lambda text: catalog_url(text, root)) or catalog_url(DEFAULT_CATALOG, root)
    warehouse = section.read("warehouse", lambda text: place(text, root)) or place(DEFAULT_WAREHOUSE, root)
    spark = _spark(section.section("spark"), environ)
    sweep = read_sweep(section) or ALWAYS
    names = _Names()
    streams = _declared(section.section("streams"), "stream", names, root, read_stream)
    streams |= _declared(section.section("relations"), "relation", names, root, read_relation)
    queries = _declared(section.section("queries"), "query", names, root, read_query_file)
    check_tables(queries.values(), section.problems)
    section.finish()
    return Project(name, catalog, warehouse, spark, streams, root, queries, sweep, section.problems.file)


def _spark(section: Section | None, environ: Mapping[str, str]) -> SparkSettings:
    """What is declared; what the environment says comes before it."""
    named = environ.get(REMOTE) or None
    if section is None:
        return SparkSettings(remote=named, near=_near(None, environ))
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
    near = _near(section.section("near", "use"), environ)
    section.finish()
    return SparkSettings(master or "local[*]", named or remote, conf, near)


def _near(section: Section | None, environ: Mapping[str, str]) -> NearSettings:
    """Either one word, or the limits."""
    use, rows, size = None, None, None
    if section is not None:
        use = section.choice("use", NearUse)
        rows, size = section.read("rows", whole_number), section.read("bytes", byte_count)
        section.finish()
    if said := environ.get(NEAR):
        known = [each.value for each in NearUse]
        if said not in known:
            raise UsageError(f"{NEAR}={said} is not a choice", how=f"choose one of {', '.join(known)}")
        use = NearUse(said)
    return NearSettings(use or NearUse.AUTO, rows, size)


@dataclass(slots=True)
class _Names:
    """The names that are taken: in SQL, streams, relations and queries are named alike."""

    taken: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What bears each name, and how it is written, by the name in lower case."""

    def take(self, section: Section, noun: str, name: str) -> bool:
        """Whether the name can be borne; a mistake is noted."""
        try:
            check_name(noun, name)
        except UsageError as error:
            section.mistake(name, error)
            return False
        other = self.taken.setdefault(name.lower(), (noun, name))
        if other != (noun, name):
            section.mistake(name, _twins(noun, name, *other))
        return True


def _twins(noun: str, name: str, other_noun: str, other: str) -> UsageError:
    if noun == other_noun:
        plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
        what = f"{plural} {other!r} and {name!r} differ only in upper and lower case"
        return UsageError(what, how="name one of them otherwise")
    what = f"{noun} {name!r} has the name of a {other_noun}"
    why = "queries name streams, relations and other queries alike, and upper and lower case are the same"
    return UsageError(what, why=why, how="name one of them otherwise")


def _declared(
    section: Section | None, noun: str, names: _Names, root: Path, read: Callable[[str, Section, Path], T | None]
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
