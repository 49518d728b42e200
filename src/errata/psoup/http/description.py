"""The description of the interface: OpenAPI with its tokens and problems, and a page of it that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from errata.psoup.http.problems import Problem

SCHEME = "token"
OPEN_PATHS = ("/healthz",)
"""Paths that need no token."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { font: 600 15px/1.5 ui-monospace, monospace; margin: 2rem 0 .3rem; border-top: 1px solid #ddd; padding-top: 1rem }
table { border-collapse: collapse } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
code { font: 13px ui-monospace, monospace } .in { color: #777 }
"""


def describe(app: FastAPI) -> None:
    """Have the app's OpenAPI say that paths need a token, and what problems look like."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(get_openapi(title=app.title, version=app.version, routes=app.routes))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI documents


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    components = schema.setdefault("components", {})
    components.setdefault("schemas", {})[Problem.__name__] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer", "description": "errata token create"}}
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in OPEN_PATHS else [{SCHEME: []}]
    return schema


def html_page(schema: Mapping[str, Any]) -> str:
    """The schema as a page: each path with its parameters and answers."""
    title = escape(schema["info"]["title"])
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{title}</h1><p>Send <code>Authorization: Bearer errata_…</code> with each request.")
    parts.append(" The whole description is at <a href=openapi.json>openapi.json</a>.</p>")
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            parts += _operation_parts(method, path, operation)
    return "".join(parts) + "</html>"


def _operation_parts(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation.get('description', ''))}</p><table>"
    for each in operation.get("parameters", ()):
        where, words = escape(each["in"]), escape(each.get("description", ""))
        yield f"<tr><td><code>{escape(each['name'])}</code><td class=in>{where}<td>{words}"
    for code, each in operation["responses"].items():
        yield f"<tr><td><code>{escape(str(code))}</code><td class=in>answer<td>{escape(each['description'])}"
    yield "</table>"
