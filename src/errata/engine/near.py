"""The near engine: Sail, served in this process, spoken to by Spark Connect. It needs no Java.

One server and one session serve the process, and start when they are first asked for, in about a quarter of a second.
Plans come as SQL text and DataFrames of Spark Connect. What Sail computes otherwise than Spark is known to
`language.functions`, and never comes here; where it fails, the far engine decides.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from errata.engine.session import RULES

SETTINGS: Mapping[str, str] = {
    # The statistics of Parquet leave NaN out, and Sail would pass over row groups that have it, and tell a maximum by
    # them. Which files are read is what the bucket index has decided.
    "SAIL_EXECUTION__COLLECT_STATISTICS": "false",
    "SAIL_PARQUET__PRUNING": "false",
    "SAIL_PARQUET__ENABLE_PAGE_INDEX": "false",
    # A session that has been idle for a quarter of an hour would be forgotten, and what it was told.
    "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(10 * 365 * 24 * 3600),
}
"""What the engine reads from the environment, once, and what its answers depend on."""

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
    os.environ.setdefault("RUST_LOG", "error")
    os.environ.update(SETTINGS)
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
