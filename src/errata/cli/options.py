"""Arguments and options that commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.doors import Given
from errata.declare.locations import NAME_BYTES
from errata.declare.text_files import is_folder
from errata.errors import ErrataError, UsageError
from errata.serve.formats import Format

Printed = Annotated[Format, typer.Option("--format", help="How rows are printed.", case_sensitive=False)]
StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.", show_default=False)]
QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.", show_default=False)]
MaybeStream = Annotated[str | None, typer.Argument(metavar="STREAM", help="Only this stream.", show_default=False)]


MOST_ROWS = 2**31 - 2
"""Rows of the largest limit: Spark counts them in 32 bits, one more is asked for to tell whether there are more."""


def given(context: typer.Context) -> Given:
    """What was said before the command's name."""
    found = context.obj
    return found if isinstance(found, Given) else Given()


def check_place(file: Path | None) -> None:
    """Refuse a file whose folder is not there, or that cannot be, before anything is worked out for it."""
    if file is None:
        return
    with_mark = f"_{file.name}.tmp"  # as it is called until it is complete
    if "\0" in str(file) or len(os.fsencode(with_mark)) > NAME_BYTES:
        why = f"a name has no NUL and {NAME_BYTES} bytes at most"
        raise UsageError("the file to write cannot have this name", why=why, how="name another file")
    if not is_folder(file.parent):
        raise ErrataError(f"cannot write {file}: there is no folder {file.parent}", how="make it, or name another file")
