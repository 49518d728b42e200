"""A Spark Connect server kept warm: jobs that use it start no Spark of their own."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from deploy.ports import HOST, free_port, listens
from deploy.processes import Children

NAME = "spark-connect"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  the name of a variable that both sides read

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def begin_connect(children: Children, environ: Mapping[str, str], folder: Path) -> tuple[str, int]:
    """Start the server; its address for jobs, and its port, that it answers on some seconds later."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
    }
    given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = ["spark-submit", "--master", "local[*]", "--name", "errata", "--class", _SERVER, *given, "spark-internal"]
    children.start(NAME, command, environ, farewell=signal.SIGTERM)
    # A client sends its token to `localhost` alone without TLS.
    return f"sc://localhost:{port}", port


def await_connect(children: Children, port: int) -> None:
    children.until(lambda: listens(port), "Spark Connect")
