"""`errata serve`: registered queries over HTTP."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

import typer

from errata.catalog import tokens
from errata.cli.console import print_message
from errata.cli.options import global_options
from errata.declare.site import open_site
from errata.psoup.http.server import serve as serve_queries

DEFAULT_PORT = 8765


def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: one that is free.")
    ] = DEFAULT_PORT,
) -> None:
    """Serve registered queries over HTTP until Ctrl-C: register, invoke, follow, each user with a token.

    The description is at /docs and /openapi.json. It speaks plain HTTP: put something that speaks TLS before it where
    others are to reach it.
    """
    with open_site(global_options(context).project) as site:
        if not _is_loopback(host):
            print_message(f"{host} can be reached by others, and tokens travel unencrypted: put TLS before it")
        if all(each.revoked_at is not None for each in tokens.list_tokens(site.catalog)):
            print_message("there is no token yet; `errata token create USER` makes one")
        serve_queries(site, host, port, lambda address: print_message(f"serving on {address}; Ctrl-C ends it"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
