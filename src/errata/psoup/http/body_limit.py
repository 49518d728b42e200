"""Requests with too large a body are refused before it is read, or as soon as it has become too large."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from errata.psoup.http.problems import RequestError, problem_of


class BodyLimit:
    """Middleware around an app."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 18 or int(declared) > self._max_bytes:
            await problem_of(self._error())(scope, receive, send)
            return
        got = 0

        async def receive_some() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > self._max_bytes:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._error().what)  # FastAPI passes it on
            return message

        await self._app(scope, receive_some, send)

    def _error(self) -> RequestError:
        return RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "the body of the request is too large",
            where="the header Content-Length",
            why=f"a request has {self._max_bytes:,} bytes at most",
            how="send fewer queries at once",
        )
