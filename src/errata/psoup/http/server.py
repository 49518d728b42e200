"""The server: one process, one event loop, and the threads of the service. It ends at an interrupt.

It listens on the loopback unless told otherwise, and speaks plain HTTP: where others are to reach it, something that
speaks TLS stands before it, or tokens would travel in the open.
"""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable

import uvicorn

from errata.declare.site import Site
from errata.errors import ErrataError
from errata.psoup.http.app import build_app
from errata.psoup.http.service import QueryService
from errata.psoup.reader import RegisteredReader
from errata.psoup.site_source import SiteSource

BACKLOG = 1_024
"""Connections that wait to be accepted; those that come before the server has begun, too."""

SWITCH_SECONDS = 0.001
"""Seconds after which a thread that computes lets the event loop on: a fifth of Python's own, since hundreds of
requests a second each need the loop several times."""

GRACE_SECONDS = 2
"""Seconds that connections are given to end when the server does; those that follow an answer do not end by themselves
and resume at the next one."""


def serve(site: Site, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve the project's registered queries until an interrupt; `tell` is given the address."""
    listening = _listen(host, port)
    with listening, RegisteredReader(site) as reader, reader.maintained():
        service = QueryService(SiteSource(site, reader))
        config = uvicorn.Config(
            build_app(service),
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        shown = f"[{host}]" if ":" in host else host
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.freeze()  # what is loaded by now stays, and is not looked through again and again
        tell(f"http://{shown}:{listening.getsockname()[1]}")
        try:
            uvicorn.Server(config).run([listening])
        finally:
            service.close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens, made before anything else so that a taken port is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ErrataError(
            f"cannot listen on {host}, port {port}",
            why=error.strerror or str(error),
            how="name another --port, or an address of this machine with --host",
        ) from None
    return listening
