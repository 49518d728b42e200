"""The page as a FastAPI application. Every address, also the style sheet, requires a user whom Airflow admits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view, resolve_user_from_token
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from errata.declare.site import Site, open_site
from errata.errors import ErrataError, UsageError
from errata_airflow import settings
from errata_airflow.page.panel import Page, PageRequest, Panel, all_panels
from errata_airflow.page.words import environment

STATIC = {"errata.css": "text/css", "errata.js": "text/javascript", "errata.svg": "image/svg+xml"}

GUARDS = {
    # The page is shown in a frame of Airflow's and loads nothing from other hosts.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}

admitted = requires_access_view(AccessView.WEBSITE)
"""Admits every user who may see Airflow's own pages."""

_HERE = Path(__file__).parent


def build() -> FastAPI:
    """Build the application."""
    app = FastAPI(title="Errata", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(admitted)])
    app.add_exception_handler(HTTPException, _refused)
    context = _PageContext(all_panels())
    for panel in context.panels:
        for page in (panel.page, *panel.more):
            app.add_api_route(f"/{page.path}", partial(_shown, context, panel, page), methods=["GET"], name=page.path)
    app.add_api_route("/static/{name}", _static, methods=["GET"])
    app.add_api_route("/{rest:path}", partial(_nowhere, context), methods=["GET"])
    return app


class _PageContext:
    """What all pages share: the project, the templates and the tabs."""

    def __init__(self, panels: list[Panel]) -> None:
        self.panels = panels
        self._templates = environment(_HERE / "templates")

    def rendered(self, request: Request, template: str, status: int = 200, **told: object) -> Response:
        here = str(request.scope.get("root_path", ""))
        there = {"panels": self.panels, "here": here, "airflow": here.removesuffix("/errata"), "panel": None}
        text = self._templates.get_template(template).render({**there, **told})
        return HTMLResponse(text, status, GUARDS)

    def failed(self, request: Request, error: ErrataError, status: int) -> Response:
        """An error page with the reason and the remedy, without a traceback."""
        return self.rendered(request, "error.html", status, error=error, away=status >= 500)


def _shown(context: _PageContext, panel: Panel, page: Page, request: Request) -> Response:
    asked = PageRequest({**request.query_params, **{name: str(each) for name, each in request.path_params.items()}})
    try:
        with open_site(settings.project_path()) as site:
            return _page(context, panel, page, request, asked, site)
    except ErrataError as error:
        return context.failed(request, error, 503)


def _page(
    context: _PageContext, panel: Panel, page: Page, request: Request, asked: PageRequest, site: Site
) -> Response:
    try:
        data = page.data(site, asked)
    except UsageError as error:
        return context.failed(request, error, 404)
    name, now = site.project.name, site.catalog.clock.now()
    return context.rendered(
        request, page.template, panel=panel, page=page, data=data, project=name, now=now, asked=asked
    )


def _static(name: str) -> Response:
    if name not in STATIC:
        raise HTTPException(404)
    return Response((_HERE / "static" / name).read_bytes(), media_type=STATIC[name], headers=GUARDS)


def _nowhere(context: _PageContext, request: Request, rest: str) -> Response:
    error = UsageError(f"there is no page /{rest}", how="begin at one of the tabs above")
    return context.failed(request, error, 404)


async def _refused(request: Request, error: Exception) -> Response:
    """The response to a user who is not logged in: a redirect to Airflow's login for a top-level page, an error
    within a frame or a script."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    airflow = str(request.scope.get("root_path", "")).removesuffix("/errata")
    # Airflow answers an invalid token as it answers an account that may not see the page.
    forged = status == 403 and not await _has_valid_token(request)
    if (status == 401 or forged) and request.headers.get("sec-fetch-dest") == "document":
        # Only the path is used: behind a proxy the host may differ.
        back = quote(f"{request.url.path}{'?' if request.url.query else ''}{request.url.query}", safe="")
        return RedirectResponse(f"{airflow}/api/v2/auth/login?next={back}", 303, GUARDS)
    words = _FORGED if forged else _WORDS.get(status, "This cannot be shown.")
    text = f'<!doctype html><meta charset="utf-8"><title>Errata</title><p>{words}</p>'
    return HTMLResponse(text, status, GUARDS)


async def _has_valid_token(request: Request) -> bool:
    """Whether Airflow accepts the request's token, whatever its user may do."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    given = token if scheme.lower() == "bearer" else request.cookies.get(COOKIE_NAME_JWT_TOKEN)
    try:
        await resolve_user_from_token(given)
    except HTTPException:
        return False
    return True


_SCRIPT = "A script gets a token from Airflow by POST /auth/token."
_FORGED = (
    "Your token is not valid: another Airflow made it, or Airflow&rsquo;s key has changed since. "
    f"Log in to Airflow again, then open Errata. {_SCRIPT}"
)
_WORDS = {
    401: f"You are not logged in to Airflow, or no longer. Log in, then open Errata again. {_SCRIPT}",
    403: "Your account may not see Airflow&rsquo;s pages, and so not this one. Ask an administrator.",
    404: "There is nothing here.",
}
