"""The near engine: Sail, served in this process, spoken to by Spark Connect. It needs no Java.

One server and one session serve the process, and start when they are first asked for, in about a quarter of a second.
Plans come as SQL text and DataFrames of Spark Connect. What Sail computes otherwise than Spark is known to
`language.functions`, and never comes here; where it fails, the far engine decides.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from errata.engine.session import RULES

_lock = threading.Lock()
_running: tuple[Any, SparkSession] | None = None


def near_session() -> SparkSession:
    """The session of the near engine."""
    global _running  # noqa: PLW0603 - one for the process
    with _lock:
        if _running is None:
            _running = _start()
        return _running[1]


def is_near(session: SparkSession) -> bool:
    """Whether a session, that of a frame say, is the near engine's."""
    return _running is not None and session is _running[1]


def near_is_installed() -> bool:
    """Whether this machine has the near engine."""
    try:
        import pysail  # noqa: F401, PLC0415 - it may be absent
    except ImportError:
        return False
    return True


def stop_near() -> None:
    """Let go of the server and all that it holds; the next session starts another."""
    global _running  # noqa: PLW0603 - one for the process
    with _lock:
        if _running is None:
            return
        server, session = _running
        _running = None
        session.client.close()
        server.stop()


def _start() -> tuple[Any, SparkSession]:
    os.environ.setdefault("RUST_LOG", "error")  # Sail reads its settings from the environment, once
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - it may be absent, and loads 195 MB

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    _, port = server.listening_address
    session = _connected(f"sc://127.0.0.1:{port}")
    for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled"):
        session.conf.set(name, RULES[name])
    return server, session


def _connected(address: str) -> SparkSession:
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415 - takes a second to import

    create: Callable[[], Any] = ConnectSession.builder.remote(address).create
    session: SparkSession = create()
    return session
