"""Ports of the loopback."""

from __future__ import annotations

import socket
from contextlib import closing

from errata.errors import RefusedError

HOST = "127.0.0.1"


def free_port() -> int:
    """A port that nobody has now."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wanted_port(port: int) -> int:
    """The port, if nobody has it; for 0 any that is free."""
    if port == 0:
        return free_port()
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was just given up is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise RefusedError(
                f"port {port} cannot be had: {error.strerror}",
                why="another program listens there, perhaps another Airflow",
                how="choose another one: make airflow PORT=8081, or PORT=0 for any that is free",
            ) from error
    return port


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    with closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
