"""Where a project says that things are: whether they can be there at all, before anything is planned or done.

The catalog's file, the warehouse and the landing folders need not be there yet. But what can never be made, written or
watched is refused, and so is a landing folder in which files would be taken in that nobody has delivered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from upath import UPath

from errata.catalog.open import database_file
from errata.declare.project import Project
from errata.errors import UsageError
from errata.intake.places import reaching, scheme, shown

OF_THE_SYSTEM = ("/proc", "/sys", "/dev")
"""Folders whose files are no files: they are without end, or something happens when they are read."""

UNWATCHED = ("http", "https", "data", "memory")
"""What cannot be watched for new files, or not by another process, even where a driver is installed."""


def check_places(project: Project) -> None:
    """Refuse the project if something of it is where it cannot be; all that is wrong is told."""
    mistakes = [*_of_warehouse(project), *_of_landing(project)]
    if len(mistakes) == 1:
        raise mistakes[0]
    if mistakes:
        raise UsageError("\n".join([f"{project.file} has {len(mistakes)} mistakes", *map(str, mistakes)]))


def _of_warehouse(project: Project) -> Iterator[UsageError]:
    """What is wrong with the places of the catalog and the warehouse."""
    file = database_file(project.catalog)
    if file is not None and (why := _never_made(file.parent)):
        yield _refused(project, "catalog", f"the catalog cannot be at {shown(file)}", why)
    url = scheme(project.warehouse)
    if url in UNWATCHED:
        yield _refused(project, "warehouse", f"a warehouse cannot be at {url}://", "nothing can be written there")
    elif url is not None:
        yield from _unreachable(project, "warehouse", project.warehouse)
    elif why := _never_made(Path(project.warehouse)):
        yield _refused(project, "warehouse", f"the warehouse cannot be at {shown(project.warehouse)}", why)


def _of_landing(project: Project) -> Iterator[UsageError]:
    """What is wrong with the landing folders."""
    warehouse = os.path.realpath(project.warehouse) if scheme(project.warehouse) is None else None
    folders: dict[str, str] = {}
    for name, stream in project.streams.items():
        if stream.landing is None:
            continue
        key, path = f"streams.{name}.landing.path", stream.landing.path
        url = scheme(path)
        if url in UNWATCHED:
            why = "it tells no files, or not to every process, and none could be put away"
            yield _refused(project, key, f"what lands at {url}:// cannot be watched", why)
        elif url is not None:
            yield from _unreachable(project, key, path)
        else:
            real = os.path.realpath(path)
            no = _no_landing(real, warehouse) or _never_made(Path(real)) or _shared(real, folders)
            if no is not None:
                yield _refused(project, key, f"files cannot land in {shown(path)}", no)
            folders[real] = name


def _no_landing(folder: str, warehouse: str | None) -> str | None:
    """Why files that lie there are not what a source has delivered."""
    if folder == "/":
        return "it is the whole disk"
    if warehouse is not None and _within(folder, warehouse):
        return "it is in the warehouse, whose files are the archives themselves"
    if warehouse is not None and _within(warehouse, folder):
        return "the warehouse is in it, and deeper folders belong to it: archives would be taken for deliveries"
    return None


def _shared(folder: str, others: dict[str, str]) -> str | None:
    """Why another stream would take the same files."""
    for other, stream in others.items():
        if _within(folder, other) or _within(other, folder):
            return f"files land for {stream} in {shown(other)}, and deeper folders belong to it: both would take them"
    return None


def _unreachable(project: Project, key: str, url: str) -> Iterator[UsageError]:
    try:
        with reaching(url):
            _ = UPath(url).fs
    except UsageError as error:
        yield UsageError(error.what, where=f"{project.file} ({key})", why=error.why, how=error.how)


def _never_made(folder: Path) -> str | None:
    """Why a folder can never be made and written, if it cannot."""
    for of_the_system in OF_THE_SYSTEM:
        if _within(os.path.realpath(folder), of_the_system):
            return f"{of_the_system} is the system's own"
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{shown(there)} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{shown(there)} cannot be written"


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _refused(project: Project, key: str, what: str, why: str) -> UsageError:
    return UsageError(what, where=f"{project.file} ({key})", why=why, how="name another place")
