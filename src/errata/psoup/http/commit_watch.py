"""The newest commit, as the event loop asks for it: one look-up answers all requests that came before it began.

    request 1 ─ look-up A ────────────┐ answers 1
    request 2     └─ waits ─┐         │
    request 3        waits ─┴─ look-up B ── answers 2 and 3

So an answer is never older than its request, and the more requests there are, the less a look-up costs each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.1
"""Seconds between two look-ups on behalf of those who wait for a commit."""


class CommitWatch:
    """The newest commit. Belongs to one event loop."""

    def __init__(self, look: Callable[[], Awaitable[int]]) -> None:
        self._look = look
        self._running: asyncio.Task[int] | None = None
        self._queued: asyncio.Task[int] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._waiting = 0
        self._seen = 0

    async def current(self) -> int:
        """The newest commit at some moment after the call."""
        if self._queued is None:
            self._queued = asyncio.create_task(self._look_behind(self._running))
        return await asyncio.shield(self._queued)

    async def _look_behind(self, running: asyncio.Task[int] | None) -> int:
        if running is not None and not running.done():
            await asyncio.wait([running])
        self._running, self._queued = self._queued, None
        return await self._look()

    async def wait_beyond(self, commit_id: int, seconds: float) -> bool:
        """Wait for a commit after this one; False if none came in time."""
        self._waiting += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(seconds):
                while self._seen <= commit_id:
                    await self._moved.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    async def _poll(self) -> None:
        """Look for a new commit as long as somebody waits for one."""
        while self._waiting:
            newest = await self.current()
            if newest > self._seen:
                self._seen = newest
                self._moved.set()
                self._moved = asyncio.Event()
            await asyncio.sleep(POLL_SECONDS)
