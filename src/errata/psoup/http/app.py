"""The app: paths, and what they lead to. Everything but the health of the service needs a token.

POST   /v1/queries                              register
GET    /v1/queries                              list one's own
GET    /v1/queries/{handle}                     show, with its costs
DELETE /v1/queries/{handle}                     unregister
GET    /v1/queries/{handle}/answer              the answer, page by page: JSON, CSV, Arrow
GET    /v1/queries/{handle}/follow              its changes, as server-sent events
GET    /v1/queries/{handle}/consumers           who follows under a name
PUT    /v1/queries/{handle}/consumers/{name}    acknowledge
DELETE /v1/queries/{handle}/consumers/{name}    forget
GET    /healthz, /openapi.json, /docs
"""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from errata.psoup.http.answer_routes import answer_routes, follow_routes
from errata.psoup.http.description import describe, html_page
from errata.psoup.http.messages import HealthMessage
from errata.psoup.http.middleware import BodyLimit, QuickAnswers
from errata.psoup.http.problems import add_problem_handlers
from errata.psoup.http.query_routes import consumer_routes, query_routes
from errata.psoup.http.service import QueryService

PREFIX = "/v1/queries"


def build_app(service: QueryService) -> FastAPI:
    """The app over a service."""
    app = FastAPI(title="Errata: registered queries", version=version("errata"), docs_url=None, redoc_url=None)
    for routes in (query_routes, answer_routes, follow_routes, consumer_routes):
        app.include_router(routes(service), prefix=PREFIX)

    @app.get("/healthz", tags=["service"])
    async def healthz() -> HealthMessage:
        """Whether the service and its catalog answer."""
        return HealthMessage(commit=await service.commits.current())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(html_page(app.openapi()))

    describe(app)
    add_problem_handlers(app)
    app.add_middleware(BodyLimit, max_bytes=service.limits.body_bytes)
    app.add_middleware(QuickAnswers, service=service)
    return app
