"""What schemathesis draws from the interface's own description: no request breaks it, every response is described."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from errata.model.access import UserQuota
from errata.model.registered import ResultStrategy
from errata.psoup.http.app import build_app
from errata.psoup.http.service import QueryService
from fixtures.registered.service import ANN, SQL, two_users
from fixtures.registered.source import RecordedSource

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)

source = RecordedSource(users=two_users(UserQuota(rate=10**9)))
source.history.commit([("IBM", 100.5), ("AAPL", None)])
service = QueryService(source)
(made,) = source.register([SQL], "ann", ResultStrategy.PARTIAL)
source.open_consumer(made.handle, "warehouse")
schema = schemathesis.openapi.from_asgi("/openapi.json", build_app(service))


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    yield
    service.close()


@schema.exclude(path_regex="/follow$").parametrize()  # a stream does not end
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_no_request_breaks_it(case: schemathesis.Case) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {ANN}"}, checks=CHECKS)
    if "handle" in case.path_parameters:
        case.path_parameters["handle"] = made.handle
        if case.method != "DELETE":
            case.call_and_validate(headers={"Authorization": f"Bearer {ANN}"}, checks=CHECKS)
