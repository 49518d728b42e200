"""The near engine: Sail, in a process beside this one, used over Spark Connect. It needs no Java.

One server serves this process and starts when it is first needed, in about 0.05 seconds. Plans arrive as SQL text and
DataFrames of Spark Connect. What Sail computes differently from Spark is known to `language.near_support` and never
sent here; where Sail fails, the far engine does the work.

Sail 0.7 keeps some ten kilobytes for each expression that it parses, for the life of its process. So a server that has
grown is retired: it finishes the work that it has begun, and new work goes to a new server. A server never outlives the
process that started it. A process forked from one with a server has no near engine, since gRPC does not survive a fork.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from errata.engine.session import SESSION_RULES

MEMORY_SHARE = 0.25
"""Share of the machine's memory that the engine uses to sort, join and aggregate. Beyond it the engine spills to disk
or fails."""

MAX_GROWTH_BYTES = 768 * 2**20
"""Resident bytes at which a server is retired."""

SERVER_SETTINGS: Mapping[str, str] = {
    # Parquet statistics leave NaN out, so Sail would skip row groups that contain it, and compute a wrong maximum.
    # Which files are read is decided by the bucket index.
    "SAIL_EXECUTION__COLLECT_STATISTICS": "false",
    "SAIL_PARQUET__PRUNING": "false",
    "SAIL_PARQUET__ENABLE_PAGE_INDEX": "false",
    # By default a session that is idle for a quarter of an hour is dropped, with its settings.
    "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(10 * 365 * 24 * 3600),
    "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
    "RUST_LOG": "error",
}
"""Environment of the server; its results depend on it."""


_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - its name


@dataclass(eq=False)
class _NearServer:
    """A server, and the work that runs on it."""

    process: subprocess.Popen[str]
    session: SparkSession
    users: int = 0

    @property
    def grown(self) -> bool:
        """Whether it has reached the size at which it is retired. A server that has ended counts as grown."""
        try:
            self._send("\n")
            return int(self._read_line()) > MAX_GROWTH_BYTES
        except (OSError, ValueError):
            return True

    def end(self) -> None:
        """Close the connection and end the process."""
        self.session.client.close()
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # of a server that has died
                    pipe.close()
        self.process.wait()

    def _send(self, text: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(text)
            self.process.stdin.flush()

    def _read_line(self) -> str:
        return "" if self.process.stdout is None else self.process.stdout.readline()


_lock = threading.Lock()
_servers: list[_NearServer] = []
"""All servers. The last one gets new work; the others are retired, and end with the work that they have begun."""


_forked = False
"""Whether this process was forked from one that had a server."""


@contextmanager
def near_session() -> Iterator[SparkSession]:
    """A session of the near engine, for one piece of work."""
    if _forked:
        raise NearError("the process was forked from one that uses the near engine")
    with _lock:
        if not _servers or _servers[-1].grown:
            _servers.append(_start_server())
            _stop_idle()
        server = _servers[-1]
        server.users += 1
    try:
        yield server.session
    finally:
        with _lock:
            server.users -= 1
            _stop_idle()


def is_near(session: SparkSession) -> bool:
    """Whether a session belongs to the near engine."""
    return any(each.session is session for each in tuple(_servers))  # which another thread may be changing


def stop_near() -> None:
    """Stop all servers; the next piece of work starts another."""
    with _lock:
        while _servers:
            _servers.pop().end()


def _stop_idle() -> None:
    """Stop retired servers without work."""
    for each in _servers[:-1]:
        if not each.users:
            _servers.remove(each)
            each.end()


def _start_server() -> _NearServer:
    pool = {"SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(round(_machine_memory() * MEMORY_SHARE))}
    process = subprocess.Popen(  # noqa: S603 - of this package
        [sys.executable, "-I", str(Path(__file__).with_name("near_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**pool, **os.environ, **SERVER_SETTINGS},
    )
    port = process.stdout.readline().strip() if process.stdout is not None else ""
    if not port:
        raise NearError(f"the near engine's server ended with exit code {process.wait()}")
    session = _connect(int(port))
    for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled"):
        session.conf.set(name, SESSION_RULES[name])
    return _NearServer(process, session)


class NearError(Exception):
    """The near engine could not be started."""


def _connect(port: int) -> SparkSession:
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - takes a second to import
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - as above
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415 - as above

    # If the far engine is a Connect server that PySpark started, its token is in the environment. With a token the
    # client uses TLS, which this server does not.
    token = os.environ.pop(_TOKEN, None)
    try:
        channel: Any = DefaultChannelBuilder(f"sc://127.0.0.1:{port}")
        channel.setChannelOption("grpc.enable_http_proxy", 0)
        session: Any = ConnectSession.builder.channelBuilder(channel).create()
    finally:
        if token is not None:
            os.environ[_TOKEN] = token
    # No retries on a dead server: the far engine does the work.
    session.client.set_retry_policies([DefaultPolicy(max_retries=1)])
    # Results come from a process beside this one and are not lost on the way. Being able to ask for the rest of one
    # would cost two more calls for each.
    session.client.disable_reattachable_execute()
    found: SparkSession = session
    return found


def _machine_memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _forget_servers() -> None:
    """Runs in a forked process, where the parent's connections cannot be used."""
    global _lock, _forked  # noqa: PLW0603 - another thread of the other process may have held the lock
    _lock = threading.Lock()
    _forked = _forked or bool(_servers)
    for each in _servers:
        each.process.returncode = 0  # it is no child of this process
    _servers.clear()


os.register_at_fork(after_in_child=_forget_servers)
atexit.register(stop_near)
# Before gRPC is loaded: it would otherwise log about each fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
