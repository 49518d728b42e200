"""Messages, progress and questions, all on standard error, so that standard output holds data only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from errata.errors import UsageError


def print_message(text: str) -> None:
    """Print a message."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_error(text: str) -> None:
    """Print an error."""
    sys.stdout.flush()
    console = _console()
    console.print(text, style="red" if console.is_terminal else None, soft_wrap=True)


@contextmanager
def step_status(title: str) -> Iterator[Callable[[str], None]]:
    """Show the current step in a line that disappears; nothing if standard error is not a terminal."""
    console = _console()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(title) as line:
        yield lambda step: line.update(f"{title}: {step}")


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, advanced by the function it yields; nothing if standard error is not a terminal."""
    console = _console()
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda more: progress.advance(task, more)


def confirm(question: str) -> bool:
    """Ask a question; if there is no terminal, say which option answers it."""
    if not sys.stdin.isatty():
        raise UsageError(
            "this needs a confirmation, and there is no terminal to ask at", how="look at the plan and add --yes"
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _console() -> Console:
    return Console(file=sys.stderr, highlight=False, markup=False)
