"""The entry point: all commands by name, and the handling of every error.

Names and one-line purposes are in `commands`, so that help loads nothing else. A command's module is imported when it
runs.
Errors are printed in words; the exit code is 0 done, 1 failed, 2 usage or a confirmation is needed, 3 rows in
quarantine.
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from errata import __version__
from errata.cli.commands import COMMAND_ORDER, COMMANDS, GROUPS
from errata.cli.console import print_error, print_message
from errata.errors import EXIT_FAILED, NO_SPACE_ERRNOS, ErrataError, disk_full_error


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """Options given before the command's name."""

    project: Path | None = None


WITHOUT_PANDAS = frozenset(
    f"errata.cli.{each}"
    for each in (
        "archive:ls",
        "archive:stats",
        "results:changes",
        "history:show_history",
        "log:leases",
        "log:log",
        "results:results",
        "scan:scan",
        "status:status",
        "why:why",
    )
)
"""Commands that print stored rows, whose types are those of declared columns. They run without pandas."""


class LazyCommand(TyperCommand):
    """A command known by name and purpose; its module is loaded when it runs."""

    def __init__(self, name: str, purpose: str, target: str) -> None:
        super().__init__(name, help=purpose)
        self.target = target
        """The module and the function in it, as `module:function`."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """The command itself."""
        module, _, function = self.target.partition(":")
        if self.target in WITHOUT_PANDAS:
            skip_pandas()
        command = getattr(importlib.import_module(module), function)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(self.name)(_with_exit_code(command))
        return typer.main.get_command(app)


def lazy_group(name: str, purpose: str, doors: Mapping[str, tuple[str, str]]) -> TyperGroup:
    """A group of commands."""
    commands = {each: LazyCommand(each, said, target) for each, (said, target) in doors.items()}
    return TyperGroup(name=name, help=purpose, commands=dict(commands), no_args_is_help=True, rich_markup_mode=None)


def skip_pandas() -> None:
    """Make PyArrow find no pandas when it first looks for it.

    It looks because a value may be a pandas one, and importing pandas takes a third of the time of a short command.
    Later imports of pandas succeed, also those by PyArrow where it needs it.
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
    """An import hook that reports pandas as missing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - as it is called
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
        return None


def discard_output() -> None:
    """Redirect standard output to nowhere, since its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _with_exit_code(command: Callable[..., int | None]) -> Callable[..., None]:
    """The command, ending with the exit code that it returns. A reader that has gone is no failure."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            code = 0
        if code:
            raise typer.Exit(code)

    return run


# Running a command: arguments in, exit code out, every failure in words.

DEBUG_VARIABLE = "ERRATA_DEBUG"
EXIT_INTERRUPTED = 130
_LONG_WORD = re.compile(r"\S{1000,}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 done, 1 failed, 2 usage or a confirmation is needed, 3 rows in quarantine."""
    given = _globals_first(sys.argv[1:] if argv is None else argv)
    _escape_unprintable()
    debug = "--debug" in given or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
    try:
        program()(args=given, prog_name="errata")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else EXIT_FAILED
        return _report_interrupt() if code == EXIT_INTERRUPTED else code
    except Exception as error:  # noqa: BLE001 - the last resort: a person is told, and --debug tells the rest
        return _report_failure(error, debug)
    raise AssertionError("a program of typer ends by SystemExit")


def _escape_unprintable() -> None:
    """Print characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def program() -> TyperGroup:
    """The command `errata` with all commands below it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback()(_root_options)
    root = typer.main.get_group(app)
    for name in COMMAND_ORDER:
        if name in GROUPS:
            purpose, doors = GROUPS[name]
            root.add_command(lazy_group(name, purpose, doors))
        else:
            root.add_command(LazyCommand(name, *COMMANDS[name]))
    return root


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"errata {__version__}\n")
        raise typer.Exit


def _root_options(
    context: typer.Context,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project", metavar="PATH", help="The project's errata.yaml or its folder; else the nearest from here up."
        ),
    ] = None,
    debug: Annotated[  # noqa: ARG001 - read by main, which also sees failures before a command begins
        bool, typer.Option("--debug", help="Show tracebacks of failures.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell which engine does what, and why.")] = False,
    version: Annotated[  # noqa: ARG001 - done by its callback, since it needs no command
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Archives streams, keeps continuous queries answered, and corrects the answers when the past changes."""
    _log_engines(verbose=verbose)
    context.obj = GlobalOptions(project)


def _log_engines(*, verbose: bool) -> None:
    """Turn the printing of log messages, which engines write, on or off."""
    log = logging.getLogger("errata")
    log.setLevel(logging.INFO if verbose else logging.NOTSET)
    log.handlers = [_LogToConsole()] if verbose else []


class _LogToConsole(logging.Handler):
    """Prints log messages to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())


def _globals_first(argv: Sequence[str]) -> list[str]:
    """The arguments with --project, --debug and --verbose moved before the command, so that they may stand anywhere.

    After `init`, --project is that command's own option: the name of the new project.
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest.append(word)
            break
        elsewhere = rest[:1] != ["init"]
        if word in ("--debug", "--verbose") or (word.startswith("--project=") and elsewhere):
            front.append(word)
        elif word == "--project" and elsewhere:
            front += [word, *[value for value in [next(words, None)] if value is not None]]
        else:
            rest.append(word)
    return [*front, *rest, *words]


def _report_failure(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if _is_interrupt(error):
        return _report_interrupt()
    error = _lost_spark(error) or error
    if isinstance(error, ErrataError):
        print_error(_shortened(str(error)))
        return error.exit_code
    if isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS:
        full = disk_full_error(_shortened(str(error.filename or "here")), error.strerror or str(error))
        print_error(str(full))
        return full.exit_code
    print_error(_unexpected_error(error) + ("" if debug else f"; --debug (or {DEBUG_VARIABLE}=1) shows where"))
    return EXIT_FAILED


def _lost_spark(error: Exception) -> ErrataError | None:
    """The error in words if it was caused by the loss of Spark, whichever call noticed it."""
    if "pyspark" not in sys.modules:
        return None
    from errata.engine.failures import lost_spark_error  # noqa: PLC0415 - most commands need no Spark

    return lost_spark_error(error)


def _shortened(text: str) -> str:
    """The text with very long words cut, such as names and values from input."""
    return _LONG_WORD.sub(lambda word: f"{word[0][:100]}…({len(word[0]):,} letters)", text)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt led to the error: Spark answers one with the failure of the job that it cancels."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _report_interrupt() -> int:
    print_error("stopped; what is not committed is not there, and the same command can be run again")
    return EXIT_INTERRUPTED


def _unexpected_error(error: Exception) -> str:
    """An unexpected error, in one line."""
    told = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, OSError) and error.strerror:
        told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    told = _shortened(told)
    return f"errata failed unexpectedly: {type(error).__name__}{': ' if told else ''}{told}"
