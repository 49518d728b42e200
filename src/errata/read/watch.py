"""Looking at a catalog again and again, for those who wait in an event loop: whenever something has been committed, and
every few seconds besides, since time alone can make work due and word of commits can be lost.

Nothing is kept between looks but the connection that word comes by, so whoever is started anew looks and knows as much.
A catalog that is away for a while is looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.overlays import bucket_sources
from errata.archive.revisions.pending import PLACE, RevisionFlags, revision_keys
from errata.archive.schemas import conform, numbered_pending_schema
from errata.catalog import buckets, commits, streams
from errata.catalog.commits import CommitNotices
from errata.declare.site import Site, open_site
from errata.errors import ErrataError, UsageError
from errata.model.bucket import Role
from errata.model.stream import RevisionPolicy, Stream
from errata.model.time import LOWEST, format_instant, parse_instant

MAX_RETRY_PAUSE = 10.0
"""So many seconds at most pass before a catalog that did not answer is asked again."""

AnswerT = TypeVar("AnswerT")

CatalogQuestion = Callable[[Site], AnswerT]
OnRetry = Callable[[Exception, float], None]
"""Told what went wrong, and in how many seconds the next look follows."""


def ask_catalog(project: Path, question: CatalogQuestion[AnswerT]) -> AnswerT:
    """Ask once. A project and a catalog are opened in a few milliseconds, and what is declared may have changed."""
    with open_site(project) as site:
        return question(site)


async def watch_catalog(
    project: Path,
    question: CatalogQuestion[AnswerT],
    poll: float,
    on_trouble: OnRetry,
    *,
    told: bool = True,
    stubborn: bool = False,
) -> AsyncIterator[AnswerT]:
    """What the question is answered with, now and whenever something may have changed; it is asked in a thread.
    `told`: whether word of commits matters. `stubborn`: whether also what cannot be meant is asked again, since
    somebody may mend it."""
    while True:
        try:
            async with _open_listener(project, told=told) as word:
                while True:
                    yield await asyncio.to_thread(ask_catalog, project, question)
                    await _wait_for_notice(word, poll)
        except (ErrataError, OSError) as error:
            if isinstance(error, UsageError) and not stubborn:
                raise
            pause = min(poll, MAX_RETRY_PAUSE)
            on_trouble(error, pause)
            await asyncio.sleep(pause)


@asynccontextmanager
async def _open_listener(project: Path, *, told: bool) -> AsyncIterator[CommitNotices | None]:
    """Word of commits; to connect and to take leave may take a while, and nobody else is to wait for it."""
    if not told:
        yield None
        return
    with_it = ExitStack()

    def opened() -> CommitNotices:
        site = with_it.enter_context(open_site(project))
        return with_it.enter_context(commits.listen(site.catalog))

    opening = asyncio.create_task(asyncio.to_thread(opened))
    try:
        yield await asyncio.shield(opening)
    finally:
        # Who is cancelled while it opens waits until there is something to close.
        await asyncio.gather(opening, return_exceptions=True)
        await asyncio.to_thread(with_it.close)


async def _wait_for_notice(word: CommitNotices | None, seconds: float) -> None:
    """Wait for word, so long at most."""
    try:
        async with asyncio.timeout(seconds):
            if word is None:
                await asyncio.sleep(seconds)
            elif (number := word.fileno()) is None:
                while not await asyncio.to_thread(word.heard):
                    await asyncio.sleep(commits.NOTICE_POLL_SECONDS)
            else:
                await _wait_readable(word, number)
    except TimeoutError:
        return


async def _wait_readable(word: CommitNotices, number: int) -> None:
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(number, came.set)
    try:
        while not word.heard():
            await came.wait()
            came.clear()
    finally:
        loop.remove_reader(number)


# How far a stream is final: everything before its stable point has come, and what corrects it has become history.


@dataclass(frozen=True, slots=True)
class StreamFinality:
    """Where a stream stands with regard to what may still change."""

    stream: str
    timed: bool
    stable: int | None
    """What comes from now on and begins before this is late; None before the first batch."""
    places: npt.NDArray[np.int64] = field(compare=False, repr=False)
    """Of each pending correction the first place that it may concern, in order."""

    def pending_before(self, until: int) -> int:
        """How many pending corrections may concern rows before a time."""
        return int(np.searchsorted(self.places, until, side="left"))

    def final(self, until: int) -> bool:
        """Whether all rows before a time are there and none of their corrections is pending."""
        return self.stable is not None and self.stable >= until and not self.pending_before(until)

    def moment(self, text: str) -> int:
        """A time as somebody writes it: a date and time, or a whole number where the stream is ordered by one."""
        if self.timed:
            return parse_instant(text)
        try:
            return int(text)
        except ValueError:
            why = f"stream {self.stream} is ordered by whole numbers"
            raise UsageError(f"{text!r} is no whole number", why=why, how="write one, such as 42") from None

    @property
    def told(self) -> dict[str, object]:
        """As JSON can hold it."""
        shown = format_instant(self.stable) if self.timed and self.stable is not None else self.stable
        return {"stream": self.stream, "stable": shown}


def stream_finality(site: Site, stream: str) -> StreamFinality:
    """How far a stream is stable, and which corrections of it are pending."""
    standing = streams.stream_state(site.catalog, stream)
    found: list[npt.NDArray[np.int64]] = []
    # Where corrections are ignored no row is ever changed by one.
    if standing.revisions > standing.applied and standing.stream.on_revision is not RevisionPolicy.IGNORE:
        pending = buckets.visible_buckets(site.catalog, standing.stream_id, standing.changed_in, role=Role.PENDING)
        schema = numbered_pending_schema(standing.stream)
        read = (conform(each.read(site.warehouse), schema) for each in bucket_sources(site.catalog, pending))
        found = [_earliest_places(standing.stream, rows) for rows in read]
    places = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
    return StreamFinality(stream, standing.stream.timed, standing.stable, places)


def _earliest_places(stream: Stream, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Of each correction where its row was or will be, whichever is earlier; the beginning, where it does not say."""
    said = RevisionFlags.by(stream, rows)
    at = stream.names.index(stream.order)
    # A key that does not tell the place: where the row was only an old value tells.
    known = said.claimed[:, at] | said.inserts | stream.key_has_order
    was = np.where(known, pc.fill_null(revision_keys(stream, rows, said)[PLACE], LOWEST).to_numpy(), LOWEST)
    given = said.given[:, at]
    will_be = pc.fill_null(rows[stream.order].cast(pa.int64()), LOWEST).to_numpy()
    found: npt.NDArray[np.int64] = np.where(given, np.minimum(was, will_be), was)
    return found
