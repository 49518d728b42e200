"""`errata serve`: says where it listens, answers, and ends at an interrupt."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from errata.cli.main import EXIT_INTERRUPTED
from fixtures.commands import Errata

COMMAND = str(Path(sys.executable).with_name("errata"))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that a shell has started in the background does not heed interrupts, nor do those that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_it_answers_until_it_is_interrupted(errata: Errata, project: Path) -> None:
    assert errata("apply", "--yes").code == 0
    token = errata("token", "create", "ann").out.strip()
    with subprocess.Popen([COMMAND, "serve", "--port", "0"], cwd=project, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = re.fullmatch(r"serving on (http://127\.0\.0\.1:\d+); Ctrl-C ends it\n", server.stderr.readline())
            assert found is not None
            with httpx.Client(base_url=found[1], headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
                assert client.get("/healthz").json() == {"commit": 1}
                text = "SELECT symbol FROM quotes BEGIN (NOW - '1 minute') END (NOW)"
                handle = client.post("/v1/queries", json={"sql": text}).json()["queries"][0]["handle"]
                refused = client.get(f"/v1/queries/{handle}/answer")
                assert (refused.status_code, "has no rows" in refused.json()["what"]) == (409, True)
                assert "server" not in refused.headers
        finally:
            server.send_signal(signal.SIGINT)
        told = server.stderr.read()
        assert server.wait(30) == EXIT_INTERRUPTED
        assert "Traceback" not in told
        assert token not in told


def test_a_taken_port_is_told(errata: Errata, project: Path) -> None:
    assert errata("apply", "--yes").code == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = errata("serve", "--port", str(taken.getsockname()[1]))
    assert done.code == 1
    assert "cannot listen on 127.0.0.1" in done.err
    assert "there is no token yet" in done.err


def test_an_address_that_others_reach_is_warned_of(errata: Errata, project: Path) -> None:
    assert errata("apply", "--yes").code == 0
    done = errata("serve", "--host", "192.0.2.1", "--port", "0")
    assert done.code == 1
    assert "192.0.2.1 can be reached by others, and tokens travel unencrypted: put TLS before it" in done.err
    assert "cannot listen on 192.0.2.1" in done.err
