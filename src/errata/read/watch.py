"""Asks a question of a catalog again whenever something has been committed, for triggers in an event loop; and tells
how far a stream is final.

PostgreSQL sends a notice of each commit. Besides, the question is asked every few seconds, since time alone can make
work due and notices can be lost. The only state is the connection for notices, so a watcher that is restarted loses
nothing. A catalog that does not answer is asked again.
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
"""Seconds at most between tries to ask a catalog that does not answer."""

AnswerT = TypeVar("AnswerT")

CatalogQuestion = Callable[[Site], AnswerT]
OnRetry = Callable[[Exception, float], None]
"""Called with the error and the seconds until the next try."""


def ask_catalog(project: Path, question: CatalogQuestion[AnswerT]) -> AnswerT:
    """Ask once. The project is opened anew each time, which takes a few milliseconds, since declarations may have
    changed."""
    with open_site(project) as site:
        return question(site)


async def watch_catalog(
    project: Path,
    question: CatalogQuestion[AnswerT],
    poll: float,
    on_trouble: OnRetry,
    *,
    on_commits: bool = True,
    retry_refused: bool = False,
) -> AsyncIterator[AnswerT]:
    """The answers to the question, now and whenever something may have changed; it is asked in a thread. `on_commits`:
    whether commits can change the answer. `retry_refused`: whether a question that is refused is asked again, since a
    person may correct what is wrong."""
    while True:
        try:
            async with _open_listener(project, on_commits=on_commits) as word:
                while True:
                    yield await asyncio.to_thread(ask_catalog, project, question)
                    await _wait_for_notice(word, poll)
        except (ErrataError, OSError) as error:
            if isinstance(error, UsageError) and not retry_refused:
                raise
            pause = min(poll, MAX_RETRY_PAUSE)
            on_trouble(error, pause)
            await asyncio.sleep(pause)


@asynccontextmanager
async def _open_listener(project: Path, *, on_commits: bool) -> AsyncIterator[CommitNotices | None]:
    """Notices of commits. Connecting and disconnecting may take a while and run in a thread."""
    if not on_commits:
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
        # A task that is cancelled while it opens waits, so that the connection can be closed.
        await asyncio.gather(opening, return_exceptions=True)
        await asyncio.to_thread(with_it.close)


async def _wait_for_notice(word: CommitNotices | None, seconds: float) -> None:
    """Wait for a notice, at most `seconds`."""
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


# Finality: a stream is final up to a time when its stable point has passed it and no pending revision concerns an
# earlier row.


@dataclass(frozen=True, slots=True)
class StreamFinality:
    """How far a stream is final."""

    stream: str
    timed: bool
    stable: int | None
    """Rows that arrive from now on and begin before this are late; None before the first batch."""
    places: npt.NDArray[np.int64] = field(compare=False, repr=False)
    """The first place that each pending revision may concern, sorted."""

    def pending_before(self, until: int) -> int:
        """The number of pending revisions that may concern rows before a time."""
        return int(np.searchsorted(self.places, until, side="left"))

    def is_final(self, until: int) -> bool:
        """Whether all rows before a time have arrived and none of their revisions is pending."""
        return self.stable is not None and self.stable >= until and not self.pending_before(until)

    def parse_time(self, text: str) -> int:
        """A time from text: a date and time, or a whole number if the stream is ordered by one."""
        if self.timed:
            return parse_instant(text)
        try:
            return int(text)
        except ValueError:
            why = f"stream {self.stream} is ordered by whole numbers"
            raise UsageError(f"{text!r} is no whole number", why=why, how="write one, such as 42") from None

    @property
    def to_json(self) -> dict[str, object]:
        """As JSON can hold it."""
        shown = format_instant(self.stable) if self.timed and self.stable is not None else self.stable
        return {"stream": self.stream, "stable": shown}


def stream_finality(site: Site, stream: str) -> StreamFinality:
    """The stable point of a stream, and the places that its pending revisions may concern."""
    standing = streams.stream_state(site.catalog, stream)
    found: list[npt.NDArray[np.int64]] = []
    # If revisions are ignored, no row is ever changed by one.
    if standing.revisions > standing.applied and standing.stream.on_revision is not RevisionPolicy.IGNORE:
        pending = buckets.visible_buckets(site.catalog, standing.stream_id, standing.changed_in, role=Role.PENDING)
        schema = numbered_pending_schema(standing.stream)
        read = (conform(each.read(site.warehouse), schema) for each in bucket_sources(site.catalog, pending))
        found = [_earliest_places(standing.stream, rows) for rows in read]
    places = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
    return StreamFinality(stream, standing.stream.timed, standing.stable, places)


def _earliest_places(stream: Stream, rows: pa.Table) -> npt.NDArray[np.int64]:
    """For each revision the earlier of the old and the new place of its row; LOWEST if it does not say."""
    said = RevisionFlags.by(stream, rows)
    at = stream.names.index(stream.order)
    # If the key lacks the order field, only an old value gives the row's place.
    known = said.claimed[:, at] | said.inserts | stream.key_has_order
    was = np.where(known, pc.fill_null(revision_keys(stream, rows, said)[PLACE], LOWEST).to_numpy(), LOWEST)
    given = said.given[:, at]
    will_be = pc.fill_null(rows[stream.order].cast(pa.int64()), LOWEST).to_numpy()
    found: npt.NDArray[np.int64] = np.where(given, np.minimum(was, will_be), was)
    return found
