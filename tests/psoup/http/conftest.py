"""The HTTP interface over queries in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from errata.psoup.http.service import QueryService
from fixtures.registered.service import ServiceCaller, called_service, two_users
from fixtures.registered.source import RecordedSource


@pytest.fixture
def source() -> RecordedSource:
    """A source that ann and bob know the tokens of, with one row."""
    made = RecordedSource(users=two_users())
    made.history.commit([("IBM", 100.5)])
    return made


@pytest.fixture
def called(source: RecordedSource) -> Iterator[tuple[QueryService, ServiceCaller]]:
    with called_service(source) as both:
        yield both


@pytest.fixture
def service(called: tuple[QueryService, ServiceCaller]) -> QueryService:
    return called[0]


@pytest.fixture
def call(called: tuple[QueryService, ServiceCaller]) -> ServiceCaller:
    return called[1]
