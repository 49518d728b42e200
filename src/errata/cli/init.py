"""`errata init`: a first errata.yaml to change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.console import print_message
from errata.declare.project import FILE_NAME
from errata.errors import ErrataError, RefusedError
from errata.model.columns import check_name

PROJECT_TEMPLATE = """\
# What this project archives. `errata apply` shows what a change here would do, and does it.
# ${{NAME:-default}} is an environment variable; relative paths are relative to this file.
project: {name}

# The commit point: what is not in it is not there. For more than one machine: postgresql://user:password@host/database
catalog: ${{ERRATA_CATALOG:-sqlite:///errata.db}}

# Where the archives' files are.
warehouse: ${{ERRATA_WAREHOUSE:-./warehouse}}

spark:
  master: "local[*]"

streams:
  quotes:
    columns: {{time: timestamp, symbol: string, price: double}}
    key: [time, symbol]     # identifies a row: corrections name the row by it
    order: time             # the time at which a row counts
    group: [symbol]         # scans of one symbol pass over buckets that have none of it
    # layout: grouped       # for many scans of single symbols over long times; every append then sorts once more
    retention: 24 hours     # older buckets are dropped; leave it out to keep everything
    slack: 5 seconds        # disorder put right by waiting; what comes later than that is a correction
    landing: {{path: ./landing/quotes, settle: 10 seconds, then: move}}

# Relations hold versions of things, which queries join with streams by name; take the # away, and it works.
# relations:
#   companies:
#     kind: nrr             # each row of a stream joins the version that was valid at its time
#     columns: {{symbol: string, name: string, since: timestamp, gone: boolean}}
#     key: [symbol]         # identifies a thing
#     order: since          # the time from which a version is valid
#     deleted: gone         # a version with true here ends the thing

# Queries are files of SQL: `errata explain avg_5m` tells what one does, `errata run` keeps all of them answered.
# queries:
#   avg_5m: queries/avg_5m.sql
"""

EXAMPLE_QUERY = """\
-- The average price of each symbol in every five minutes.
SELECT symbol, window_start, avg(price) AS mean
FROM quotes
GROUP BY symbol, window(time, '5 minutes')
"""

GITIGNORE = "warehouse/\nlanding/\nfeed/\nspark-warehouse/\n*.db\n*.db-wal\n*.db-shm\n"


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder.")] = Path(),
    project: Annotated[
        str | None,
        typer.Option("--project", metavar="NAME", help="The project's name; else the folder's.", show_default=False),
    ] = None,
) -> None:
    """Begin a project: write a commented errata.yaml, an example of a query, a folder for files to land in, and a
    .gitignore.

    Nothing that is there is overwritten.
    """
    name = project or _name_of_folder(folder)
    check_name("project", name)
    target = folder / FILE_NAME
    if target.exists():
        raise RefusedError(
            f"{target} is there already", why="init never overwrites", how="change it, or name another folder"
        )
    try:
        (folder / "landing" / "quotes").mkdir(parents=True, exist_ok=True)
        _write_new(target, PROJECT_TEMPLATE.format(name=name))
        made = [str(target), f"{folder / 'landing' / 'quotes'}/"]
        (folder / "queries").mkdir(exist_ok=True)
        if _write_new(folder / "queries" / "avg_5m.sql", EXAMPLE_QUERY):
            made.append(str(folder / "queries" / "avg_5m.sql"))
        if _write_new(folder / ".gitignore", GITIGNORE):
            made.append(str(folder / ".gitignore"))
    except OSError as error:
        raise ErrataError(
            f"cannot write to {folder}: {error.strerror}", how="name a folder that can be written"
        ) from None
    print_message(f"made {', '.join(made)}")
    print_message("next:")
    there = [] if folder.resolve() == Path.cwd() else [f"cd {folder}"]
    for command in [
        *there,
        "errata apply",
        "errata generate quotes --rows 100000 --out feed",
        "errata ingest quotes feed",
    ]:
        print_message(f"  {command}")


def _name_of_folder(folder: Path) -> str:
    """The folder's name as a valid project name."""
    return re.sub(r"\W", "_", folder.resolve().name, flags=re.ASCII).strip("_") or "streams"


def _write_new(path: Path, text: str) -> bool:
    """Write a file unless it exists, and return whether it was written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
