"""Arguments and options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errata.cli.doors import Given
from errata.errors import ErrataError
from errata.serve.formats import Format

Printed = Annotated[Format, typer.Option("--format", help="How rows are printed.", case_sensitive=False)]
StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.", show_default=False)]
QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.", show_default=False)]
MaybeStream = Annotated[str | None, typer.Argument(metavar="STREAM", help="Only this stream.", show_default=False)]


def given(context: typer.Context) -> Given:
    """What was said before the command's name."""
    found = context.obj
    return found if isinstance(found, Given) else Given()


def check_place(file: Path | None) -> None:
    """Refuse a file whose folder is not there, before anything is worked out for it."""
    if file is not None and not file.parent.is_dir():
        raise ErrataError(f"cannot write {file}: there is no folder {file.parent}", how="make it, or name another file")
