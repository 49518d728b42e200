"""The near engine: Sail, in a process beside this one, spoken to by Spark Connect. It needs no Java.

One server serves the process and starts when it is first asked for, in a twentieth of a second. Plans come as SQL text
and DataFrames of Spark Connect. What Sail computes otherwise than Spark is known to `language.near`, and never comes
here; where it fails, the far engine decides.

Sail 0.7 keeps some ten kilobytes for each expression that it reads, for as long as its process lives. So a server that
has grown is retired: work that it has begun is done by it, and what comes next by a new one. A server outlives neither
the process that has started it, however that ends. A process that is forked from one with a server has no near engine:
gRPC, by which it is spoken to, does not survive that.
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
"""Share of the machine's memory in which the engine sorts, joins and adds up; beyond it writes to disk or gives up."""

MAX_GROWTH_BYTES = 768 * 2**20
"""Bytes that a server holds when it is retired."""

SERVER_SETTINGS: Mapping[str, str] = {
    # The statistics of Parquet leave NaN out, and Sail would pass over row groups that have it, and tell a maximum by
    # them. Which files are read is what the bucket index has decided.
    "SAIL_EXECUTION__COLLECT_STATISTICS": "false",
    "SAIL_PARQUET__PRUNING": "false",
    "SAIL_PARQUET__ENABLE_PAGE_INDEX": "false",
    # A session that has been idle for a quarter of an hour would be forgotten, and what it was told.
    "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(10 * 365 * 24 * 3600),
    "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
    "RUST_LOG": "error",
}
"""What the server reads from its environment, and what its answers depend on."""


_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - its name


@dataclass(eq=False)
class _NearServer:
    """A server, and what works on it."""

    process: subprocess.Popen[str]
    session: SparkSession
    users: int = 0

    @property
    def grown(self) -> bool:
        """Whether it holds so much that it is to be retired; one that has ended is as good as that."""
        try:
            self._send("\n")
            return int(self._told()) > MAX_GROWTH_BYTES
        except (OSError, ValueError):
            return True

    def end(self) -> None:
        """Let go of it. It ends by itself when nobody can speak to it any more."""
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

    def _told(self) -> str:
        return "" if self.process.stdout is None else self.process.stdout.readline()


_lock = threading.Lock()
_servers: list[_NearServer] = []
"""The one that is given new work comes last; the others are retired, and end with the work that they have begun."""


_forked = False
"""Whether this process was forked from one that had a server."""


@contextmanager
def near_session() -> Iterator[SparkSession]:
    """The session of the near engine, for a piece of work."""
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
    """Whether a session, that of a frame say, is the near engine's."""
    return any(each.session is session for each in tuple(_servers))  # which another thread may be changing


def stop_near() -> None:
    """Let go of the servers and all that they hold; the next piece of work starts another."""
    with _lock:
        while _servers:
            _servers.pop().end()


def _stop_idle() -> None:
    """End those that are retired and have nothing to do."""
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

    # Where the far engine is a Connect server that PySpark has started, its token is in the environment, and with one
    # the client speaks TLS, which this server does not.
    token = os.environ.pop(_TOKEN, None)
    try:
        channel: Any = DefaultChannelBuilder(f"sc://127.0.0.1:{port}")
        channel.setChannelOption("grpc.enable_http_proxy", 0)
        session: Any = ConnectSession.builder.channelBuilder(channel).create()
    finally:
        if token is not None:
            os.environ[_TOKEN] = token
    # A server that has died is not waited for: the far engine does the work.
    session.client.set_retry_policies([DefaultPolicy(max_retries=1)])
    found: SparkSession = session
    return found


def _machine_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _forget_servers() -> None:
    """In a forked process: what speaks to the servers of the other one is of no use here."""
    global _lock, _forked  # noqa: PLW0603 - another thread of the other process may have held the lock
    _lock = threading.Lock()
    _forked = _forked or bool(_servers)
    for each in _servers:
        each.process.returncode = 0  # it is no child of this process
    _servers.clear()


os.register_at_fork(after_in_child=_forget_servers)
atexit.register(stop_near)
# Before gRPC is loaded: it would tell of each subprocess that it does nothing for it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
