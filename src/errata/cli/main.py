"""The door: arguments in, exit code out, and every failure in words."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from errata import __version__
from errata.cli.doors import Door, Given, group
from errata.cli.talk import complain, say
from errata.errors import EXIT_FAILED, FULL, ErrataError, disk_full

DEBUG = "ERRATA_DEBUG"
INTERRUPTED = 130
_ENDLESS = re.compile(r"\S{1000,}")

COMMANDS = {
    "init": ("Begin a project with a commented errata.yaml.", "errata.cli.init:init"),
    "apply": ("Show what errata.yaml would change, and do it.", "errata.cli.apply:apply"),
    "ingest": ("Take files into a stream's archive.", "errata.cli.ingest:ingest"),
    "run": ("Do all that is due: take in, evaluate.", "errata.cli.run:run"),
    "revise": ("Take corrections in, and apply what is pending.", "errata.cli.revise:revise_command"),
    "sweep": ("Correct the results that corrections invalidate.", "errata.cli.sweep:sweep"),
    "replay": ("Work a range of a query's results out again.", "errata.cli.replay:replay"),
    "undo": ("Take back what a batch did.", "errata.cli.undo:undo"),
    "results": ("Read the published answer of a query.", "errata.cli.results:results"),
    "changes": ("Tell how a query's results have changed.", "errata.cli.changes:changes"),
    "why": ("Tell a result's story, and what made it.", "errata.cli.why:why"),
    "ask": ("Answer a query once, as of any time.", "errata.cli.ask:ask"),
    "explain": ("Tell what a query does, and draw its plan.", "errata.cli.explain:explain"),
    "history": ("Show every version that a row has had.", "errata.cli.history:show_history"),
    "log": ("List commits: when, who, and what they did.", "errata.cli.log:log"),
    "status": ("Show how streams stand, and what waits.", "errata.cli.status:status"),
    "leases": ("Show who is at work on what; release it.", "errata.cli.leases:leases"),
    "doctor": ("See whether archives are whole, and mend them.", "errata.cli.doctor:doctor"),
    "demo": ("See it all at work, in under three minutes.", "errata.cli.demo:demo"),
    "bench": ("Measure Errata beside plain Spark.", "errata.cli.bench:bench"),
}

GROUPS = {
    "generate": (
        "Write made-up feeds to try things with.",
        {"quotes": ("Stock quotes, with all that goes wrong.", "errata.cli.generate:quotes")},
    ),
    "archive": (
        "Look into archives, read them, age them.",
        {
            "ls": ("List a stream's buckets, and draw them.", "errata.cli.archive:ls"),
            "stats": ("Show how much the archives hold.", "errata.cli.archive:stats"),
            "scan": ("Read rows of an archive as known at a commit.", "errata.cli.scan:scan"),
            "age-out": ("Drop buckets that are past the retention.", "errata.cli.age_out:age_out"),
            "compact": ("Work corrections in, and merge small buckets.", "errata.cli.compact:compact"),
            "vacuum": ("Remove what nobody needs any more.", "errata.cli.vacuum:vacuum"),
        },
    ),
    "quarantine": (
        "See rows and files not taken in; retry or drop them.",
        {
            "ls": ("List what is in quarantine, and why it is there.", "errata.cli.quarantine:ls"),
            "retry": ("Take what is in quarantine in again.", "errata.cli.retry:retry"),
            "drop": ("Give what is in quarantine up for good.", "errata.cli.quarantine:drop"),
        },
    ),
}

ORDER = (
    "init",
    "apply",
    "generate",
    "ingest",
    "run",
    "revise",
    "sweep",
    "replay",
    "undo",
    "quarantine",
    "archive",
    "results",
    "changes",
    "why",
    "ask",
    "explain",
    "history",
    "log",
    "status",
    "leases",
    "doctor",
    "bench",
    "demo",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 done, 1 failed, 2 usage or a confirmation is needed, 3 rows in quarantine."""
    given = _globals_first(sys.argv[1:] if argv is None else argv)
    _speak_plainly()
    debug = "--debug" in given or os.environ.get(DEBUG, "") not in ("", "0")
    try:
        program()(args=given, prog_name="errata")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else EXIT_FAILED
        return _stopped() if code == INTERRUPTED else code
    except Exception as error:  # noqa: BLE001 - the last resort: a person is told, and --debug tells the rest
        return _failed(error, debug)
    raise AssertionError("a program of typer ends by SystemExit")


def _speak_plainly() -> None:
    """Let letters that the terminal's encoding lacks be shown as escapes, and not be an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def program() -> TyperGroup:
    """The command `errata` with all there is below it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback()(_before)
    root = typer.main.get_group(app)
    for name in ORDER:
        if name in GROUPS:
            purpose, doors = GROUPS[name]
            root.add_command(group(name, purpose, doors))
        else:
            root.add_command(Door(name, *COMMANDS[name]))
    return root


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"errata {__version__}\n")
        raise typer.Exit


def _before(
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
    _tell_engines(verbose=verbose)
    context.obj = Given(project)


def _tell_engines(*, verbose: bool) -> None:
    """Let what is logged, which is what the engines do, be said or not."""
    log = logging.getLogger("errata")
    log.setLevel(logging.INFO if verbose else logging.NOTSET)
    log.handlers = [_Said()] if verbose else []


class _Said(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def _globals_first(argv: Sequence[str]) -> list[str]:
    """The arguments with --project, --debug and --verbose moved before the command, so that they may stand anywhere.

    Behind `init` a --project is another thing: the name of the project that is begun.
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


def _failed(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if _interrupted(error):
        return _stopped()
    error = _lost_spark(error) or error
    if isinstance(error, ErrataError):
        complain(_cut(str(error)))
        return error.exit_code
    if isinstance(error, OSError) and error.errno in FULL:
        full = disk_full(_cut(str(error.filename or "here")), error.strerror or str(error))
        complain(str(full))
        return full.exit_code
    complain(_sentence(error) + ("" if debug else f"; --debug (or {DEBUG}=1) shows where"))
    return EXIT_FAILED


def _lost_spark(error: Exception) -> ErrataError | None:
    """The error in words where it came of Spark being gone, whatever the call was that noticed it."""
    if "pyspark" not in sys.modules:
        return None
    from errata.engine.lost import lost_spark  # noqa: PLC0415 - most commands need no Spark

    return lost_spark(error)


def _cut(text: str) -> str:
    """The text with words that nobody would read to their end cut: names and values that somebody gave."""
    return _ENDLESS.sub(lambda word: f"{word[0][:100]}…({len(word[0]):,} letters)", text)


def _interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt led to the error: Spark answers one with the failure of the job that it cancels."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _stopped() -> int:
    complain("stopped; what is not committed is not there, and the same command can be run again")
    return INTERRUPTED


def _sentence(error: Exception) -> str:
    """An error that nobody foresaw, in one line."""
    told = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, OSError) and error.strerror:
        told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    told = _cut(told)
    return f"errata failed unexpectedly: {type(error).__name__}{': ' if told else ''}{told}"
