"""Sessions: lean ones on this machine, those that spark-submit opens, and Spark Connect, all to the same rules.

Only what Spark Connect also offers is used: no SparkContext, no RDD, no way into the JVM.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
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
"""What every session must agree on for answers to be right, whoever opened it; each can be set on a running session."""

SESSION_TUNING: Mapping[str, str] = {
    # A scan through corrections is a union, of rows as they came and rows as they are now. With this Spark compiles it
    # together with what stands above it; 4.2 has it, and leaves it off (SPARK-56482).
    "spark.sql.codegen.wholeStage.union.enabled": "true",
}
"""What every session is quicker with, unless somebody says otherwise; each can be set on a running session."""

MAX_CONNECT_TRIES = 6
"""How often a Spark Connect server that does not answer is asked again. Each pause is four times as long as the one
before: the first is 0.05 seconds, and none is longer than a minute."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOCAL_THREADS = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")


def is_local(master: str) -> bool:
    """Whether the master is this process."""
    return _LOCAL_THREADS.fullmatch(master) is not None


def local_threads(master: str, cores: int) -> int:
    """How many tasks a local master runs at once."""
    found = _LOCAL_THREADS.fullmatch(master)
    threads = found[1] if found else None
    if threads is None:
        return 1
    return cores if threads == "*" else int(threads)


def local_conf(master: str, cores: int) -> dict[str, str]:
    """Settings for one machine: nothing listens beyond it, nothing is drawn, and small jobs stay small."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Of the collectors, the parallel one sorts and writes fastest on few cores, and starts no slower.
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(max(2, local_threads(master, cores))),
    }


def session_settings(
    master: str | None, conf: Mapping[str, str], *, submitted: bool, cores: int
) -> tuple[str | None, dict[str, str]]:
    """The master and the settings to open a session with; what the project declares is the last word.

    A job that spark-submit started has its master and resources from there, and nothing here may override them.
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
    """What Spark's launcher reads from the environment, where the operator has not said otherwise."""
    java = require_java(environ)
    environ["JAVA_HOME"] = str(quiet_java(java, environ) if local else java)
    # Workers would otherwise run whichever python3 comes first on PATH.
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def open_session(master: str | None, remote: str | None, conf: Mapping[str, str], app: str) -> SparkSession:
    """A session to these rules: the active one if there is one, else Spark Connect at `remote`, else on `master`."""
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
    """Whether something else than py4j logs. That tells the root logger, with all of its stack, of each call that finds
    no JVM any more, and raises the same; a person is told once."""
    return Path(record.pathname).parent.name != "py4j"


def _limit_retries(session: SparkSession) -> None:
    """Let a server that does not answer be asked for about a minute, and not for the ten that are the client's own."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - only a client has it

    client: Any = session.client
    client.set_retry_policies([DefaultPolicy(max_retries=MAX_CONNECT_TRIES)])


@contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until Spark has started, a few seconds: a JVM that is left half-way never ends."""
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
    """The session, with the rules and what of the project's settings a running session can still take."""
    for name, value in {**SESSION_RULES, **SESSION_TUNING, **conf}.items():
        if name in SESSION_RULES or session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


@contextmanager
def temporary_settings(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings for a while."""
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
