"""Looking at a catalog again and again, for those who wait in an event loop: whenever something has been committed, and
every few seconds besides, since time alone can make work due and word of commits can be lost.

Nothing is kept between looks but the connection that word comes by, so whoever is started anew looks and knows as much.
A catalog that is away for a while is looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from errata.catalog import notices
from errata.catalog.notices import Notices
from errata.errors import ErrataError, UsageError
from errata.flows.site import Site, at_site

PATIENCE = 10.0
"""So many seconds at most pass before a catalog that did not answer is asked again."""

T = TypeVar("T")

Question = Callable[[Site], T]
OnTrouble = Callable[[Exception, float], None]
"""Told what went wrong, and in how many seconds the next look follows."""


def look(project: Path, question: Question[T]) -> T:
    """Ask once. A project and a catalog are opened in a few milliseconds, and what is declared may have changed."""
    with at_site(project) as site:
        return question(site)


async def looks(
    project: Path,
    question: Question[T],
    poll: float,
    on_trouble: OnTrouble,
    *,
    told: bool = True,
    stubborn: bool = False,
) -> AsyncIterator[T]:
    """What the question is answered with, now and whenever something may have changed; it is asked in a thread.
    `told`: whether word of commits matters. `stubborn`: whether also what cannot be meant is asked again, since
    somebody may mend it."""
    while True:
        try:
            async with _word(project, told=told) as word:
                while True:
                    yield await asyncio.to_thread(look, project, question)
                    await _woken(word, poll)
        except (ErrataError, OSError) as error:
            if isinstance(error, UsageError) and not stubborn:
                raise
            pause = min(poll, PATIENCE)
            on_trouble(error, pause)
            await asyncio.sleep(pause)


@asynccontextmanager
async def _word(project: Path, *, told: bool) -> AsyncIterator[Notices | None]:
    """Word of commits; to connect and to take leave may take a while, and nobody else is to wait for it."""
    if not told:
        yield None
        return
    with_it = ExitStack()

    def opened() -> Notices:
        site = with_it.enter_context(at_site(project))
        return with_it.enter_context(notices.listening(site.catalog))

    opening = asyncio.create_task(asyncio.to_thread(opened))
    try:
        yield await asyncio.shield(opening)
    finally:
        # Who is cancelled while it opens waits until there is something to close.
        await asyncio.gather(opening, return_exceptions=True)
        await asyncio.to_thread(with_it.close)


async def _woken(word: Notices | None, seconds: float) -> None:
    """Wait for word, so long at most."""
    try:
        async with asyncio.timeout(seconds):
            if word is None:
                await asyncio.sleep(seconds)
            elif (number := word.fileno()) is None:
                while not await asyncio.to_thread(word.heard):
                    await asyncio.sleep(notices.PAUSE)
            else:
                await _readable(word, number)
    except TimeoutError:
        return


async def _readable(word: Notices, number: int) -> None:
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(number, came.set)
    try:
        while not word.heard():
            await came.wait()
            came.clear()
    finally:
        loop.remove_reader(number)
