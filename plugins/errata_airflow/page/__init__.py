"""The page in Airflow's navigation. It is built on the first request, since every process of Airflow imports the
plugin and only the API server shows the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class LazyPage:
    """The page as Airflow mounts it: an ASGI application that builds the real one on the first request."""

    def __init__(self) -> None:
        self._app: _App | None = None
        self._making = threading.Lock()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        app = await asyncio.to_thread(self._made) if self._app is None else self._app
        await app(scope, receive, send)

    def _made(self) -> _App:
        with self._making:
            if self._app is None:
                # Importing FastAPI, the templates and Errata takes seconds.
                from errata_airflow.page.app import build  # noqa: PLC0415

                self._app = build()
            return self._app
