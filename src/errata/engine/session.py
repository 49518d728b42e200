"""Spark sessions: local ones, those that spark-submit opens, and Spark Connect, all with the same rules.

Only what Spark Connect also offers is used: no SparkContext, no RDD, no access to the JVM.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from errata.engine.failures import forget_lost_spark
from errata.engine.java import quiet_java, require_java

SESSION_RULES: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings that answers depend on, in every session; each can be set on a running session."""

SESSION_TUNING: Mapping[str, str] = {
    # A scan through corrections is a union of base rows and overlay rows. With this setting Spark compiles it together
    # with the operators above; 4.2 has it, off by default (SPARK-56482).
    "spark.sql.codegen.wholeStage.union.enabled": "true",
}
"""Settings for speed, unless the operator sets others; each can be set on a running session."""

MAX_CONNECT_TRIES = 6
"""Retries of a call that a Spark Connect server does not answer. The first pause is 0.05 seconds, each is four times
the one before, and none is longer than a minute."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOCAL_THREADS = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")


def is_local(master: str) -> bool:
    """Whether the master is this process."""
    return _LOCAL_THREADS.fullmatch(master) is not None


def local_threads(master: str, cores: int) -> int:
    """Tasks that a local master runs at once."""
    found = _LOCAL_THREADS.fullmatch(master)
    threads = found[1] if found else None
    if threads is None:
        return 1
    return cores if threads == "*" else int(threads)


def local_conf(master: str, cores: int) -> dict[str, str]:
    """Settings for one machine: no port is open to others, no UI, and small jobs stay small."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        # The parallel garbage collector sorts and writes fastest on few cores, and starts no slower than others.
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(max(2, local_threads(master, cores))),
    }


def session_settings(
    master: str | None, conf: Mapping[str, str], *, submitted: bool, cores: int
) -> tuple[str | None, dict[str, str]]:
    """The master and the settings to open a session with; the project's declared settings take precedence.

    A job that spark-submit started has its master and resources from there; these settings do not override them.
    """
    if submitted:
        return None, {**SESSION_RULES, **SESSION_TUNING, **conf}
    master = master or "local[*]"
    return master, {
        **(local_conf(master, cores) if is_local(master) else {}),
        **SESSION_RULES,
        **SESSION_TUNING,
        **conf,
    }


def prepare_environment(environ: MutableMapping[str, str], *, local: bool) -> None:
    """Environment variables for Spark's launcher, where the operator has not set them."""
    java = require_java(environ)
    environ["JAVA_HOME"] = str(quiet_java(java, environ) if local else java)
    # Workers would otherwise run the first python3 on PATH.
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def open_session(master: str | None, remote: str | None, conf: Mapping[str, str], app: str) -> SparkSession:
    """A session with these rules: the active one if there is one, else Spark Connect at `remote`, else a new one on
    `master`."""
    forget_lost_spark()
    active = SparkSession.getActiveSession()
    if active is not None:
        return apply_settings(active, conf)
    if remote is not None:
        if is_local(remote):  # PySpark then starts a Connect server of its own
            prepare_environment(os.environ, local=True)
        session = SparkSession.builder.remote(remote).appName(app).getOrCreate()
        _limit_retries(session)
        return apply_settings(session, conf)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen, options = session_settings(master, conf, submitted=submitted, cores=os.cpu_count() or 1)
    builder = SparkSession.builder.appName(app)
    if chosen is not None:
        prepare_environment(os.environ, local=is_local(chosen))
        builder = builder.master(chosen)
    logging.getLogger().addFilter(is_not_py4j_log)
    with _delayed_interrupts():
        return builder.config(map=dict(options)).getOrCreate()


def is_not_py4j_log(record: logging.LogRecord) -> bool:
    """Whether a record is not one of py4j's, which logs each call that finds no JVM, with its stack, and raises the
    same error."""
    return Path(record.pathname).parent.name != "py4j"


def _limit_retries(session: SparkSession) -> None:
    """Limit retries of an unanswered call to about a minute, instead of the client's ten."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - only a client has it

    client: Any = session.client
    client.set_retry_policies([DefaultPolicy(max_retries=MAX_CONNECT_TRIES)])


@contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until Spark has started, a few seconds: a half-started JVM never ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def apply_settings(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """The session with the rules, and with those of the project's settings that a running session accepts."""
    for name, value in {**SESSION_RULES, **SESSION_TUNING, **conf}.items():
        if name in SESSION_RULES or session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


@contextmanager
def temporary_settings(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Temporarily change settings of the session."""
    before = {name: session.conf.get(name, None) for name in conf}
    try:
        for name, value in conf.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, former in before.items():
            if former is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, former)


if __name__ == "__main__":  # for shell scripts: python -m errata.engine.session > spark-defaults.conf
    for option, setting in sorted(local_conf("local[2]", 2).items()):
        sys.stdout.write(f"{option} {setting}\n")


class LazySession:
    """A Spark session that is opened once, by the thread that first needs it."""

    def __init__(self, open_session: Callable[[], SparkSession], on_opening: Callable[[], None] = lambda: None) -> None:
        self._open_session, self._on_opening = open_session, on_opening
        self._lock = threading.Lock()
        self._opened: SparkSession | None = None
        self._conf: Mapping[str, str] = {}
        self._settings_stack: ExitStack | None = None

    @property
    def opened(self) -> SparkSession | None:
        """The session, if it has been opened."""
        return self._opened

    def open(self) -> SparkSession:
        with self._lock:
            if self._opened is None:
                self._on_opening()
                self._opened = self._open_session()
                if self._settings_stack is not None:
                    self._settings_stack.enter_context(temporary_settings(self._opened, self._conf))
            return self._opened

    @contextmanager
    def configured(self, conf: Mapping[str, str]) -> Iterator[None]:
        """Use other settings within the block, also if the session is opened there."""
        with ExitStack() as stack:
            with self._lock:
                self._conf, self._settings_stack = conf, stack
                if self._opened is not None:
                    stack.enter_context(temporary_settings(self._opened, conf))
            try:
                yield
            finally:
                self._conf, self._settings_stack = {}, None
