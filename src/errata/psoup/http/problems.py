"""Errors as `application/problem+json` (RFC 9457): what is wrong, where, why, and how to mend it.

an error of Errata            its status by its kind         its words
a request that does not fit   422                            the first thing that does not, and where
anything else                 500                            that it is unexpected; the rest is in the server's log
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from errata.errors import ErrataError, RefusedError, UsageError

MEDIA_TYPE = "application/problem+json"

_LOG = logging.getLogger(__name__)


class Problem(BaseModel):
    """What is wrong, in words."""

    type: str = "about:blank"
    title: str = Field(description="The name of the status.")
    status: int
    what: str = Field(description="What is wrong.")
    where: str | None = Field(default=None, description="Where: the part of the request, the place in the text.")
    why: str | None = Field(default=None, description="Why it is wrong.")
    how: str | None = Field(default=None, description="How to mend it.")


class RequestError(ErrataError):
    """An error with a status of its own."""

    def __init__(self, status: int, what: str, *, headers: Mapping[str, str] | None = None, **words: str) -> None:
        super().__init__(what, **words)
        self.status = status
        self.headers = dict(headers or {})


def problem_response(status: int, error: ErrataError, headers: Mapping[str, str] | None = None) -> Response:
    """The response that says an error."""
    words = {name: getattr(error, name) for name in ("what", "where", "why", "how")}
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    content |= {name: text for name, text in words.items() if text is not None}
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(body, status, dict(headers or {}), MEDIA_TYPE)


def error_status(error: ErrataError) -> int:
    """The status of an error: 400 for what is asked wrongly, 409 for what the present state does not allow."""
    if isinstance(error, RequestError):
        return error.status
    return HTTPStatus.BAD_REQUEST if isinstance(error, UsageError) else HTTPStatus.CONFLICT


def problem_of(error: ErrataError) -> Response:
    """The response that says an error of Errata."""
    return problem_response(error_status(error), error, error.headers if isinstance(error, RequestError) else None)


def add_problem_handlers(app: FastAPI) -> None:
    """Have every error of the app answered as a problem."""
    app.add_exception_handler(ErrataError, _say_error)
    app.add_exception_handler(RequestValidationError, _say_misfit)
    app.add_exception_handler(HTTPException, _say_status)
    app.add_exception_handler(Exception, _say_unexpected)


async def _say_error(_: Request, error: Exception) -> Response:
    return problem_of(error) if isinstance(error, ErrataError) else await _say_unexpected(_, error)


async def _say_misfit(_: Request, error: Exception) -> Response:
    first: Mapping[str, object] = {}
    if isinstance(error, RequestValidationError):
        first = next(iter(error.errors()), {})
    place = first.get("loc", ())
    where = ".".join(map(str, place)) if isinstance(place, tuple) else None
    told = UsageError("the request does not fit", where=where, why=str(first.get("msg", "")), how="see /openapi.json")
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, told)


async def _say_status(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return await _say_unexpected(request, error)
    what = "there is nothing here" if error.status_code == HTTPStatus.NOT_FOUND else str(error.detail)
    told = UsageError(what, where=f"{request.method} {request.url.path}", how="see /openapi.json")
    return problem_response(error.status_code, told, error.headers)


async def _say_unexpected(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    told = ErrataError("errata failed unexpectedly", why=type(error).__name__, how="the server's log has the rest")
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, told)


__all__ = ["MEDIA_TYPE", "Problem", "RefusedError", "RequestError", "add_problem_handlers", "problem_of"]
