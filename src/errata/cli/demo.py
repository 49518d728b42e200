"""`errata demo`: the commands as a person would type them, on a made-up feed, each with a word of explanation."""

from __future__ import annotations

import select
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.demo_steps import FILES, STEPS
from errata.errors import EXIT_QUARANTINE, ErrataError, Refused
from errata.serve.formats import console_on

PATIENCE = 120
"""So many seconds may pass until a command in another window has told something."""

_DOOR = "import sys; from errata.cli import main; sys.exit(main())"


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Work in this folder and leave all there.", show_default=False),
    ] = None,
) -> int:
    """See a stream taken in, queries kept answered, the past corrected, and a query edited, in under three minutes."""
    if keep is not None:
        return _in_kept(keep)
    with tempfile.TemporaryDirectory(prefix="errata-demo-") as folder:
        code = _play(Path(folder))
    if code == 0:
        _tell("Everything was in a temporary folder and is gone. `errata demo --keep DIR` leaves it to play with;")
        _tell("`errata init` begins a project of your own.")
    return code


def _in_kept(folder: Path) -> int:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(
            f"{folder} is not an empty folder", why="the demo overwrites nothing", how="name a folder that is not there"
        )
    folder.mkdir(parents=True, exist_ok=True)
    code = _play(folder.resolve())
    if code == 0:
        _tell(f"Everything is in {folder}. Go there and try: errata results minutes --format csv | grep IBM")
    return code


def _play(folder: Path) -> int:
    """Go through the steps in a folder."""
    _tell("Errata on a made-up feed, step by step. After each $ stands what one would type.")
    with chdir(folder):
        Path("landing").mkdir()
        _write(FILES)
        for number, step in enumerate(STEPS, 1):
            _head(f"{number}/{len(STEPS)}  {step.title}", step.words)
            _write(step.edits)
            with nullcontext() if step.beside is None else _beside(step.beside):
                for command in step.commands:
                    _command(command)
                    words = shlex.split(command)
                    _DOERS[words[0]](words[1:])
    sys.stdout.write("\n")
    return 0


def _write(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def _errata(words: Sequence[str]) -> None:
    # The door itself, so that the demo is what a person would see; it is loaded by the time that it is needed.
    from errata.cli.main import main  # noqa: PLC0415

    code = main(["--project", ".", *words])
    if code not in (0, EXIT_QUARANTINE):
        raise ErrataError(f"the demo ends here: `errata {shlex.join(words)}` ended with exit code {code}")


def _cat(words: Sequence[str]) -> None:
    for name in words:
        sys.stdout.write(Path(name).read_text(encoding="utf-8"))


def _mv(words: Sequence[str]) -> None:
    source, target = words
    shutil.move(source, target)


def _sqlite3(words: Sequence[str]) -> None:
    database, statement = words
    with closing(sqlite3.connect(database)) as connection:
        for row in connection.execute(statement):
            _tell("|".join(str(value) for value in row))


_DOERS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "errata": _errata,
    "cat": _cat,
    "mv": _mv,
    "sqlite3": _sqlite3,
}


@contextmanager
def _beside(command: str) -> Iterator[None]:
    """Have a command go on in another window, until it has told something; then interrupt it and show what it told."""
    _command(f"{command}    # in another window")
    words = [sys.executable, "-c", _DOOR, "--project", ".", *shlex.split(command)[1:]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, encoding="utf-8") as other:  # noqa: S603
        try:
            yield
            if not _has_told(other):
                raise ErrataError(f"the demo ends here: `{command}` has told nothing for {PATIENCE} seconds")
            other.send_signal(signal.SIGINT)
            told, _ = other.communicate(timeout=PATIENCE)
        finally:
            other.kill()
    if other.returncode != 0:
        raise ErrataError(f"the demo ends here: `{command}` ended with exit code {other.returncode}")
    _tell("\nMeanwhile, in the other window:")
    _tell(f"{told}^C")


def _has_told(other: subprocess.Popen[str]) -> bool:
    """Whether it tells something before patience ends."""
    if other.stdout is None:
        raise AssertionError("it was started with a pipe")
    return bool(select.select([other.stdout], [], [], PATIENCE)[0])


def _head(title: str, words: str) -> None:
    screen = console_on(sys.stdout)
    screen.print()
    screen.print(title, style="bold cyan")
    screen.print(words, width=min(screen.width, 100))


def _command(text: str) -> None:
    screen = console_on(sys.stdout)
    screen.print(f"\n$ {text}", style="bold", soft_wrap=True)
    sys.stdout.flush()


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
