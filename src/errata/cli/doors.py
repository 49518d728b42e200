"""Commands by name: what can be listed without loading anything, and the way to the rest."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Given:
    """What was said before the command's name."""

    project: Path | None = None


READING = frozenset(
    f"errata.cli.{each}"
    for each in ("archive", "changes", "history", "leases", "log", "results", "scan", "status", "why")
)
"""Modules of commands that show what is stored, which has the types of declared columns. They run without pandas."""


class Door(TyperCommand):
    """A command of which only name and purpose are known until it is run."""

    def __init__(self, name: str, purpose: str, target: str) -> None:
        super().__init__(name, help=purpose)
        self.target = target
        """The module and, behind a colon, the function in it."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """The command itself."""
        module, _, function = self.target.partition(":")
        if module in READING:
            leave_pandas_out()
        command = getattr(importlib.import_module(module), function)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(self.name)(_with_exit_code(command))
        return typer.main.get_command(app)


def group(name: str, purpose: str, doors: Mapping[str, tuple[str, str]]) -> TyperGroup:
    """A command whose first argument is the name of another."""
    commands = {each: Door(each, said, target) for each, (said, target) in doors.items()}
    return TyperGroup(name=name, help=purpose, commands=dict(commands), no_args_is_help=True, rich_markup_mode=None)


def leave_pandas_out() -> None:
    """Let PyArrow find that there is no pandas when it looks, once, at the first value that it is given.

    It looks because the value may be one of pandas', and to import pandas takes a third of the time of a short command.
    Whatever imports pandas afterwards gets it, and so does PyArrow where it cannot do without.
    """
    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return  # it is loaded, or PyArrow may have looked
    absent = _NoPandas()
    sys.meta_path.insert(0, absent)
    try:
        importlib.import_module("pyarrow").array([])
    finally:
        sys.meta_path.remove(absent)


class _NoPandas(MetaPathFinder):
    """Answers that pandas is not there."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - as it is called
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
        return None


def turn_deaf() -> None:
    """Let what is still to be written to standard output go nowhere, since nobody reads it any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _with_exit_code(command: Callable[..., int | None]) -> Callable[..., None]:
    """The command, ended by the exit code that it returns; that its reader has gone is no failure."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            turn_deaf()
            code = 0
        if code:
            raise typer.Exit(code)

    return run
