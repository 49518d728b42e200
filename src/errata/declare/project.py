"""The project: errata.yaml found, read strictly, and turned into the model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from errata.declare.locations import catalog_url, place
from errata.declare.marked import Table, compose
from errata.declare.reader import Place, Problems, Section
from errata.declare.streams import read_stream
from errata.errors import UsageError
from errata.model.columns import check_name
from errata.model.stream import Stream

FILE_NAME = "errata.yaml"
VARIABLE = "ERRATA_PROJECT"
DEFAULT_CATALOG = "sqlite:///errata.db"
DEFAULT_WAREHOUSE = "./warehouse"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs: in this process under `master`, or behind a Connect server at `remote`."""

    master: str = "local[*]"
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that errata.yaml declares, with defaults filled in and paths made absolute."""

    name: str
    catalog: str
    warehouse: str
    spark: SparkSettings
    streams: Mapping[str, Stream]
    root: Path
    """The folder of errata.yaml."""


def load_project(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Project:
    """Read the project's file: the one given, or named by ERRATA_PROJECT, or the nearest from here upwards."""
    environ = os.environ if environ is None else environ
    file = _found(path, environ)
    shown = file.name if file.parent == Path.cwd() else str(file)
    tree = compose(_text(file, shown), shown)
    if not isinstance(tree, Table):
        raise UsageError("the file is not a mapping", where=f"{shown}:{tree.line}", how="begin with 'project: NAME'")
    problems = Problems(shown)
    project = _project(Section(tree, Place(1, ""), problems, environ), file.parent)
    problems.check()
    return project


def _found(path: Path | None, environ: Mapping[str, str]) -> Path:
    named = path or (Path(environ[VARIABLE]).expanduser() if environ.get(VARIABLE) else None)
    if named is not None:
        file = named / FILE_NAME if named.is_dir() else named
        if not file.is_file():
            who = "" if path else f"{VARIABLE} says {named}; "
            raise UsageError(
                f"there is no file {file}", how=f"{who}name the file or its folder; `errata init` makes one"
            )
        return file.resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise UsageError(
        f"there is no {FILE_NAME} in {here} or a folder above it",
        how=f"`errata init` makes one here; or go to the project's folder, or set {VARIABLE} to it",
    )


def _text(file: Path, shown: str) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the file is not UTF-8 at byte {error.start}", where=shown, how="save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error.strerror}", where=shown) from None


def _project(section: Section, root: Path) -> Project:
    name = section.required("project", "name the project: 'project: quotes'") or ""
    catalog = section.read("catalog", lambda text: catalog_url(text, root)) or catalog_url(DEFAULT_CATALOG, root)
    warehouse = section.read("warehouse", lambda text: place(text, root)) or place(DEFAULT_WAREHOUSE, root)
    spark = _spark(section.section("spark"))
    streams = _streams(section.section("streams"), root)
    section.finish()
    return Project(name, catalog, warehouse, spark, streams, root)


def _spark(section: Section | None) -> SparkSettings:
    if section is None:
        return SparkSettings()
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
    section.finish()
    return SparkSettings(master or "local[*]", remote, conf)


def _streams(section: Section | None, root: Path) -> Mapping[str, Stream]:
    if section is None:
        return {}
    streams: dict[str, Stream] = {}
    for name in section.names():
        try:
            check_name("stream", name)
        except UsageError as error:
            section.mistake(name, error)
            continue
        _refuse_twin(section, name, streams)
        declared = section.section(name)
        if declared is not None and (stream := read_stream(name, declared, root)) is not None:
            streams[name] = stream
    return streams


def _refuse_twin(section: Section, name: str, streams: Mapping[str, Stream]) -> None:
    for other in streams:
        if other.lower() == name.lower():
            section.mistake(
                name,
                UsageError(
                    f"streams {other!r} and {name!r} differ only in upper and lower case",
                    how="name one of them otherwise",
                ),
            )
