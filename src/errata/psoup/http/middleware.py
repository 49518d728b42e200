"""What stands between a connection and the app: the limit of a request's body, and a short way for most requests.

A request with too large a body is refused before it is read, or as soon as it has become too large.

An answer without parameters is sent before FastAPI reads the request, which takes a third of a millisecond to find that
there are none: more than all else that a kept answer needs. The short way takes exactly the requests that say nothing
but whose answer and in which form; all others, and the description of these, are FastAPI's. Both ways end in
`QueryService.page`.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from errata.errors import ErrataError
from errata.psoup.http.answer_routes import accepted_format, wants_newest
from errata.psoup.http.limits import DEFAULT_PAGE_ROWS
from errata.psoup.http.pages import PageRequest
from errata.psoup.http.problems import RequestError, problem_of
from errata.psoup.http.service import QueryService

_ANSWER_PATH = re.compile(r"/v1/queries/([a-z2-7]{16})/answer")


class BodyLimit:
    """Middleware that refuses large bodies."""

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


class QuickAnswers:
    """Middleware that answers what needs no reading of the request."""

    def __init__(self, app: ASGIApp, service: QueryService) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] == "http" and scope["method"] == "GET" and not scope["query_string"]
        found = _ANSWER_PATH.fullmatch(scope["path"]) if plain else None
        if found is None:
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            user = await self._service.access.admit(headers.get(b"authorization"))
            form = accepted_format(headers.get(b"accept"))
            asked = PageRequest(found[1], None, None, 0, DEFAULT_PAGE_ROWS, form)
            page = await self._service.page(user, asked, fresh=wants_newest(headers.get(b"cache-control")))
        except ErrataError as error:
            await problem_of(error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": page.raw_headers})
        await send({"type": "http.response.body", "body": page.body})
