"""The messages of the HTTP interface, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from errata.model.access import AnswerConsumer
from errata.model.registered import RegisteredQuery, ResultStrategy
from errata.model.time import SECOND, format_instant
from errata.psoup.http.problems import MEDIA_TYPE, Problem

EXAMPLE = "SELECT symbol, price FROM quotes WHERE price > 100 BEGIN (NOW - '10 minutes') END (NOW)"


class RegisterMessage(BaseModel):
    """Queries to register: all of them or none."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"sql": EXAMPLE}]})

    sql: Annotated[str, Field(min_length=1)] | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    """A query, or a list of queries."""
    strategy: ResultStrategy = ResultStrategy.PARTIAL
    """How results are kept between invocations."""


class QueryMessage(BaseModel):
    """A registered query, and what it has cost."""

    handle: str
    sql: str
    strategy: ResultStrategy
    registered_in: int = Field(description="The commit by which it became visible.")
    registered_at: str
    rows: int = Field(description="Rows that match, as far as that is kept.")
    bytes: int = Field(description="Bytes that keeping them takes.")
    matching_seconds: float
    invocations: int
    invocation_seconds: float
    last_asked: str | None


class RegisteredMessage(BaseModel):
    """The queries that were registered, in the order of their texts."""

    queries: list[QueryMessage]


class QueryListMessage(BaseModel):
    """Queries of the user by number; `next` leads to the next page."""

    queries: list[QueryMessage]
    next: int | None


class AcknowledgeMessage(BaseModel):
    """The last commit whose change the consumer has stored."""

    model_config = ConfigDict(extra="forbid")

    commit: Annotated[int, Field(ge=1, lt=10**18)]


class ConsumerMessage(BaseModel):
    """A named consumer: it resumes behind the acknowledged commit, which is held readable until then."""

    consumer: str
    acknowledged: int | None
    held_until: str


class HealthMessage(BaseModel):
    """The service answers, and so does the catalog."""

    commit: int


def query_message(query: RegisteredQuery) -> QueryMessage:
    """A query as it is sent."""
    cost = query.cost
    return QueryMessage(
        handle=query.handle,
        sql=query.text,
        strategy=query.strategy,
        registered_in=query.registered_in,
        registered_at=format_instant(query.registered_at),
        rows=cost.rows,
        bytes=cost.size,
        matching_seconds=cost.matching_micros / SECOND,
        invocations=cost.invocations,
        invocation_seconds=cost.invocation_micros / SECOND,
        last_asked=None if cost.last_asked is None else format_instant(cost.last_asked),
    )


def consumer_message(consumer: AnswerConsumer) -> ConsumerMessage:
    """A consumer as it is sent."""
    until = format_instant(consumer.held_until)
    return ConsumerMessage(consumer=consumer.name, acknowledged=consumer.acknowledged, held_until=until)


def problem_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of the problems with which a request may be answered."""
    words = {
        400: "What is asked is wrong.",
        401: "There is no token, or it is unknown or revoked.",
        404: "There is no such query of this user.",
        406: "No form of the answer is accepted.",
        409: "The present state does not allow it: a quota, a commit or a window that is no longer kept.",
        413: "The request is too large.",
        422: "The request does not fit the schema.",
        429: "Too many requests: Retry-After says when there may be more.",
    }
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {code: {"description": words[code], "content": {MEDIA_TYPE: {"schema": schema}}} for code in codes}
