"""Paths of queries: register, list, show, unregister; and of their consumers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from errata.errors import UsageError
from errata.model.access import AccessUser, check_access_name
from errata.psoup.http.limits import DEFAULT_LISTED, MAX_LISTED
from errata.psoup.http.messages import (
    AcknowledgeMessage,
    ConsumerMessage,
    QueryListMessage,
    QueryMessage,
    RegisteredMessage,
    RegisterMessage,
    consumer_message,
    problem_responses,
    query_message,
)
from errata.psoup.http.service import QueryService

Handle = Annotated[str, Path(description="The handle that registering has returned.", examples=["k3fq7a2mzxw4c5ed"])]
ConsumerName = Annotated[str, Path(description="Letters, digits and . _ @ -, 64 at most.", examples=["warehouse"])]

_ALWAYS = (401, 429)


def query_routes(service: QueryService) -> APIRouter:
    """The paths of queries."""
    routes = APIRouter(tags=["queries"])

    async def admit(request: Request) -> AccessUser:
        return await service.access.admit(request.headers.get("authorization"))

    @routes.post("", status_code=201, responses=problem_responses(400, 409, 413, 422, *_ALWAYS))
    async def register(request: Request, message: RegisterMessage) -> RegisteredMessage:
        """Register a query, or a list of queries: all of them or none."""
        user = await admit(request)
        texts = [message.sql] if isinstance(message.sql, str) else message.sql
        found = await service.register(user, texts, message.strategy)
        service.materialise(found)
        return RegisteredMessage(queries=[query_message(each) for each in found])

    @routes.get("", responses=problem_responses(422, *_ALWAYS))
    async def list_queries(
        request: Request,
        after: Annotated[int, Query(ge=0, lt=10**18, description="`next` of the page before.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = DEFAULT_LISTED,
    ) -> QueryListMessage:
        """List one's own queries, oldest first, with their costs."""
        user = await admit(request)
        found = await service.look(lambda: service.source.queries(user.name, after, limit + 1))
        more = found[limit - 1].number if len(found) > limit else None
        return QueryListMessage(queries=[query_message(each) for each in found[:limit]], next=more)

    @routes.get("/{handle}", responses=problem_responses(404, 422, *_ALWAYS))
    async def show(request: Request, handle: Handle) -> QueryMessage:
        """Show a query, with its costs."""
        user = await admit(request)
        query = await service.own(user, handle)
        return query_message(await service.look(lambda: service.source.with_cost(query)))

    @routes.delete("/{handle}", status_code=204, responses=problem_responses(404, 422, *_ALWAYS))
    async def unregister(request: Request, handle: Handle) -> Response:
        """Unregister a query: its handle is gone, and is never given again."""
        await service.unregister(await admit(request), handle)
        return Response(status_code=204)

    return routes


def consumer_routes(service: QueryService) -> APIRouter:
    """The paths of consumers that follow a query."""
    routes = APIRouter(tags=["following"])

    async def admit(request: Request) -> AccessUser:
        return await service.access.admit(request.headers.get("authorization"))

    @routes.get("/{handle}/consumers", responses=problem_responses(404, 422, *_ALWAYS))
    async def list_consumers(request: Request, handle: Handle) -> list[ConsumerMessage]:
        """List the consumers that follow under a name, and what each has acknowledged."""
        await service.own(await admit(request), handle)
        return [consumer_message(each) for each in await service.look(lambda: service.source.consumers(handle))]

    @routes.put("/{handle}/consumers/{name}", responses=problem_responses(400, 404, 413, 422, *_ALWAYS))
    async def acknowledge(
        request: Request, handle: Handle, name: ConsumerName, message: AcknowledgeMessage
    ) -> ConsumerMessage:
        """Acknowledge a commit: the change of it, and all before, are stored. The deadline begins anew."""
        await service.own(await admit(request), handle)
        check_access_name("consumer", name)
        return consumer_message(await service.look(lambda: service.source.acknowledge(handle, name, message.commit)))

    @routes.delete(
        "/{handle}/consumers/{name}",
        status_code=204,
        responses=problem_responses(400, 404, 422, *_ALWAYS),
    )
    async def drop_consumer(request: Request, handle: Handle, name: ConsumerName) -> Response:
        """Forget a consumer, and give up what is held for it."""
        await service.own(await admit(request), handle)
        check_access_name("consumer", name)
        if not await service.look(lambda: service.source.drop_consumer(handle, name)):
            raise UsageError(f"the query has no consumer {name[:64]!r}", how="GET …/consumers lists them")
        return Response(status_code=204)

    return routes
