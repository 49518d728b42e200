"""Paths of answers: invoke, and follow."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from errata.errors import UsageError
from errata.model.access import check_access_name
from errata.psoup.http.events import FollowerCount, FollowRequest, follow_events
from errata.psoup.http.limits import DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS
from errata.psoup.http.messages import problem_responses
from errata.psoup.http.pages import AnswerFormat, PageRequest, chosen_format, parse_commit, parse_cursor
from errata.psoup.http.problems import RequestError
from errata.psoup.http.service import QueryService

Handle = Annotated[str, Path(description="The handle that registering has returned.", examples=["k3fq7a2mzxw4c5ed"])]
At = Annotated[str | None, Query(max_length=40, description="The event time; else the least stable point.")]
AsOf = Annotated[int | None, Query(ge=1, lt=10**18, description="As known at this commit; else at the newest.")]
Cursor = Annotated[str | None, Query(max_length=80, description="`next` of the page before, instead of at and as_of.")]

PAGE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["handle", "commit", "now", "columns", "total", "next", "rows"],
    "properties": {
        "handle": {"type": "string"},
        "commit": {"type": "integer"},
        "now": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "columns": {"type": "array", "items": {"type": "object", "required": ["name", "type"]}},
        "total": {"type": "integer", "description": "Rows of the whole answer."},
        "next": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "The cursor of the next page."},
        "rows": {"type": "array", "items": {"type": "object"}},
    },
}


def answer_routes(service: QueryService) -> APIRouter:
    """The path of answers."""
    routes = APIRouter(tags=["answers"], default_response_class=Response)

    @routes.get(
        "/{handle}/answer",
        responses=problem_responses(400, 401, 404, 406, 409, 422, 429) | {200: _answer_response()},
    )
    async def answer(
        request: Request,
        handle: Handle,
        at: At = None,
        as_of: AsOf = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS, description="Rows of a page.")] = DEFAULT_PAGE_ROWS,
        cursor: Cursor = None,
    ) -> Response:
        """Invoke a query: its answer, a page at a time. The pages of a cursor are of one answer, whatever comes.

        For a moment after a commit the answer may be as of the one before; with `Cache-Control: no-cache` it never is.
        """
        user = await service.access.admit(request.headers.get("authorization"))
        form = accepted_format(request.headers.get("accept"))
        asked = _page_request(handle, at, as_of, cursor)
        fresh = wants_newest(request.headers.get("cache-control"))
        page = await service.page(user, PageRequest(handle, *asked, limit, form), fresh=fresh)
        return page.response()

    return routes


def follow_routes(service: QueryService) -> APIRouter:
    """The path of followers."""
    routes = APIRouter(tags=["following"], default_response_class=Response)
    followers = FollowerCount(service)

    @routes.get(
        "/{handle}/follow",
        responses=problem_responses(400, 401, 404, 409, 422, 429) | {200: _events_response()},
    )
    async def follow(
        request: Request,
        handle: Handle,
        after: Annotated[
            int | None, Query(ge=0, lt=10**18, description="Begin behind this commit; Last-Event-ID is stronger.")
        ] = None,
        consumer: Annotated[
            str | None, Query(max_length=64, description="Begin behind what this consumer has acknowledged.")
        ] = None,
        last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    ) -> Response:
        """Follow an answer by server-sent events: first the whole, then each change, with its commit as id."""

        async def admit() -> Any:
            return await service.access.identify(request.headers.get("authorization"))

        user = await service.access.admit(request.headers.get("authorization"))
        await service.own(user, handle)
        followers.check(user)
        if last_event_id:
            after = parse_commit(last_event_id, "the header Last-Event-ID")
        newest = await service.commits.current()
        if after is not None and after > newest:
            raise UsageError(f"there is no commit {after}", how=f"commits are 1 to {newest}")
        opened = None
        if consumer is not None:
            check_access_name("consumer", consumer)
            opened = await service.look(lambda: service.source.open_consumer(handle, consumer))
            after = opened.acknowledged if after is None else after
        asked = FollowRequest(user, handle, after, opened, admit)

        async def events() -> Any:
            with followers.one_more(user):
                async for event in follow_events(service, asked):
                    yield event

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return routes


def accepted_format(accept: str | None) -> AnswerFormat:
    """The form that an Accept header wants most."""
    form = chosen_format(accept)
    if form is None:
        raise RequestError(
            HTTPStatus.NOT_ACCEPTABLE,
            "the answer has no form that is accepted",
            where="the header Accept",
            how="accept " + ", ".join(AnswerFormat),
        )
    return form


def wants_newest(cache_control: str | None) -> bool:
    """Whether a Cache-Control header refuses an answer as of the commit before."""
    return cache_control is not None and "no-cache" in cache_control.lower()


def _page_request(
    handle: str, at: str | None, as_of: int | None, cursor: str | None
) -> tuple[str | int | None, int | None, int]:
    """The event time, the commit and the first row."""
    if cursor is None:
        return at, as_of, 0
    if at is not None or as_of is not None:
        raise UsageError("a cursor, and an event time or a commit", where=handle, how="leave at and as_of out")
    commit_id, now, first = parse_cursor(cursor)
    return now, commit_id, first


def _answer_response() -> dict[str, Any]:
    text = {"schema": {"type": "string"}}
    content = {AnswerFormat.JSON.value: {"schema": PAGE_SCHEMA}, AnswerFormat.CSV.value: text}
    headers = {
        "Errata-Commit": {"schema": {"type": "string"}, "description": "The commit as of which it is."},
        "Errata-Now": {"schema": {"type": "string"}, "description": "The event time."},
        "Errata-Next-Cursor": {"schema": {"type": "string"}, "description": "The cursor of the next page, if any."},
    }
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "description": "A page of the answer.",
        "content": content | {AnswerFormat.ARROW.value: binary},
        "headers": headers,
    }


def _events_response() -> dict[str, Any]:
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    return {"description": "Events `answer`, `change`, `position`, `held` and `error`.", "content": content}
