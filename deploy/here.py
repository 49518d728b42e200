"""`make airflow`: everything on this machine until Ctrl-C, in plain words.

Everything that it keeps is in .airflow/ beside this folder; started again, it goes on with the same data.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from deploy.environment import HOUSE
from deploy.feed import CORRECTED_EVERY, EVERY
from deploy.rest import NotAnswering
from deploy.services import Here, airflow_here
from errata.errors import ErrataError, UsageError

FOLDER = HOUSE / ".airflow"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READ_WITHIN = 60.0


class Interrupted(Exception):
    """Ctrl-C, or a signal that means the same."""


class Attention:
    """Hears signals, and minds them only while it waits: nothing is broken off half-way."""

    def __init__(self) -> None:
        self._came = False

    @contextmanager
    def paid(self) -> Iterator[None]:
        before = {each: signal.signal(each, self._hear) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def wait(self, seconds: float) -> None:
        if not self._came:
            time.sleep(seconds)
        if self._came:
            raise Interrupted

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._came:
            say("it is being stopped already")
        self._came = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring everything up and stay; the exit code."""
    options = _parser().parse_args(arguments)
    attention = Attention()
    with attention.paid():
        try:
            _stay(options, attention)
        except Interrupted:
            say("all is stopped; `make airflow` goes on with the same data")
            return 0
        except ErrataError as error:
            say(str(error))
            return error.exit_code
    raise AssertionError("it stays until something ends it")


def _stay(options: argparse.Namespace, attention: Attention) -> None:
    own = os.environ.get("ERRATA_PROJECT")
    environ = dict(os.environ)
    connect = options.connect or environ.get("ERRATA_SPARK_REMOTE") == "local"
    if connect:
        environ.pop("ERRATA_SPARK_REMOTE", None)
    say(f"Airflow and all that it needs, on this machine, kept in {_short(options.folder)}; Ctrl-C stops it")
    began = time.monotonic()
    with airflow_here(
        options.folder,
        project=Path(own) if own else None,
        port=_port(),
        feed=own is None,
        connect=connect,
        unpause=environ.get("ERRATA_UNPAUSE", "yes").lower() != "no",
        # A project of one's own says itself where its catalog is: another one would not know the files that are there.
        embedded_catalog=own is None,
        environ=environ,
        say=lambda text: say(f"  {time.monotonic() - began:5.1f} s  {text}"),
        wait=attention.wait,
    ) as here:
        _greet(here, options.folder, example=own is None)
        _tell_dags(here, attention)
        while True:
            here.check()
            attention.wait(1)


def _greet(here: Here, folder: Path, *, example: bool) -> None:
    say(f"""
It is up:   {here.url}
  user      {here.user}
  password  {here.password}    (kept in {_short(folder / "passwords.json")})
  project   {_short(here.project)}
  logs      {_short(folder / "logs")}

What to look at first:
  {here.url}/dags    the DAGs: `append` takes in what lands and answers the queries, `revisions` waits for corrections
  Errata in the navigation on the left: streams, corrections and what they changed, queries and how far they are""")
    if example:
        corrected = EVERY * CORRECTED_EVERY // 60
        say(f"""
Quotes of 20 stocks land every {EVERY} seconds, and every {corrected} minutes a correction of one of them.
In another terminal:
  . {_short(folder / "environment")}
  errata status
  errata results avg_5m
""")


def _tell_dags(here: Here, attention: Attention) -> None:
    """Say when Airflow has read the DAGs, and which it could not read."""
    wanted, end = len(list((HOUSE / "dags").glob("*.py"))), time.monotonic() + _READ_WITHIN
    read = 0
    errors: list[dict[str, str]] = []
    while read + len(errors) < wanted:
        if time.monotonic() > end:
            say(f"Airflow has not read all DAGs yet: see {_short(here.children.logs / 'dag-processor.log')}")
            break
        here.check()
        with suppress(NotAnswering):  # its database may be away
            read, errors = here.api("GET", "/dags")["total_entries"], here.api("GET", "/importErrors")["import_errors"]
        attention.wait(1)
    say(f"{read} DAGs are read")
    for error in errors:
        say(f"{error['filename']} cannot be read: {error['stack_trace'].strip().splitlines()[-1]}")


def _port() -> int:
    said = os.environ.get("PORT") or "8080"
    if not said.isdecimal() or int(said) > 65535:
        raise UsageError(f"PORT is {said!r}", how="give a number, such as PORT=8081, or PORT=0 for any that is free")
    return int(said)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.here",
        description="Brings up PostgreSQL, Airflow and a project on this machine, until Ctrl-C. From the environment: "
        "PORT (8080; 0 is any free one), ERRATA_PROJECT (the example, fed, when it is not set), ERRATA_UNPAUSE=no "
        "(DAGs start paused), ERRATA_SPARK_REMOTE=local (like --connect).",
    )
    parser.add_argument("--connect", action="store_true", help="keep a Spark Connect server warm for the jobs")
    parser.add_argument("--folder", type=lambda text: Path(text).absolute(), default=FOLDER, help=argparse.SUPPRESS)
    return parser


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def say(text: str) -> None:
    """A word to the person, at once: what waits for it may take long."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
