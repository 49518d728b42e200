"""`errata changes`: how the published answer of a query has changed, and goes on changing."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import pyarrow as pa
import typer

from errata.cli.options import QueryName, given
from errata.cli.talk import say
from errata.errors import ErrataError
from errata.flows.site import at_site
from errata.flows.telling.changes import Feed
from errata.serve.changes import NAMES, drawn_changes, last_changes, last_of
from errata.serve.encode import csv_header, csv_lines, json_lines
from errata.serve.formats import Format, console_on
from errata.serve.rows import Rows, blocks

SHOWN = 50
"""So many changes are shown in a table at once."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 1.0
"""Seconds between two looks for new commits: longer, the longer there have been none."""

Write = Callable[[Iterator[Rows]], None]


def changes(
    context: typer.Context,
    query: QueryName,
    since: Annotated[
        str | None, typer.Option("--since", metavar="COMMIT|TIME", help="Only what later commits have changed.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as commits come, until Ctrl-C.")] = False,
    kind: Annotated[
        Format | None,
        typer.Option("--format", help="How changes are printed; JSON unless on a screen.", case_sensitive=False),
    ] = None,
) -> None:
    """Tell how a query's results have changed, in the order of commits: op, key, vs, ve, old, new, cause, commit.

    A result is told by key and vs. It lasts until its ve, or until the next result of its key begins.
    """
    kind = kind or (Format.TABLE if sys.stdout.isatty() else Format.JSON)
    write = _WRITERS[kind]
    if kind is Format.CSV:
        _put(csv_header(NAMES))
    with at_site(given(context).project) as site:
        feed = Feed(site, query, since)
        if not follow:
            feed.check_answered()
            write(each.rows for each in feed.new())
            return
        _say_if_not_answered(feed)
        with _until_interrupted() as interrupted:
            _follow(feed, write, interrupted)


def _say_if_not_answered(feed: Feed) -> None:
    try:
        feed.check_answered()
    except ErrataError as error:
        say(f"{error.what}; waiting for its first results")


def _follow(feed: Feed, write: Write, interrupted: Callable[[], bool]) -> None:
    pause = FIRST_PAUSE
    while not interrupted():
        before = feed.told
        write(each.rows for each in feed.new())
        if feed.ended:
            say(f"query {feed.query} is no longer there")
            return
        pause = min(pause * 1.5, LONGEST_PAUSE) if feed.told == before else FIRST_PAUSE
        if not interrupted():
            time.sleep(pause)


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C only say that it is enough, so that no change is written by half; a second one ends all."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)


def _put(block: bytes) -> None:
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _write_json(some: Iterator[Rows]) -> None:
    for rows in some:
        for block in blocks(rows, json_lines):
            _put(block)


def _write_csv(some: Iterator[Rows]) -> None:
    for rows in some:
        for block in blocks(rows, csv_lines):
            _put(block)


def _write_table(some: Iterator[Rows]) -> None:
    """The last changes, which a person wants to see; each form that the query has had by itself."""
    shown: list[pa.Table] = []
    left_out = False
    for rows in some:
        shown, more = last_of([*shown, last_changes(rows, SHOWN + 1)], SHOWN)
        left_out |= more
    console = console_on(sys.stdout)
    for rows in shown:
        console.print(drawn_changes(rows, console.width))
    if left_out:
        say("earlier changes are left out; --format json gives all, --since those of later commits")


_WRITERS: dict[Format, Write] = {Format.TABLE: _write_table, Format.JSON: _write_json, Format.CSV: _write_csv}
