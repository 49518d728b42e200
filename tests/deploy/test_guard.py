"""The guard of a service: it keeps the log within bounds, and ends as its command has ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy import guard


def guarded(folder: Path, script: str, **more: int) -> int:
    """How a guard ends that runs a script of Python."""
    order = guard.Order(
        [sys.executable, "-c", script], str(folder / "log"), str(folder), signal.SIGTERM, False, 4.0, **more
    )
    command = [sys.executable, "-I", guard.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(asdict(order))}\n".encode())
        process.stdin.flush()
        return process.wait(120)


def test_a_log_that_has_grown_large_begins_anew_and_no_line_is_lost_or_cut(tmp_path: Path) -> None:
    script = "for n in range(3000): print(f'line {n:06}')"
    assert guarded(tmp_path, script, log_bytes=10_000, log_files=9) == 0
    logs = [guard.aside(tmp_path / "log", number) for number in range(9, -1, -1)]
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    assert lines == [f"line {n:06}" for n in range(3000)]
    assert max(log.stat().st_size for log in logs if log.exists()) <= 10_000 + 65_536


# It speaks again when the guard has taken up what it has said: each line is written down by itself.
SLOWLY = """
import fcntl, struct, termios, time
for n in range(40):
    print("x" * 999, flush=True)
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, b"0000"))[0]:
        time.sleep(0.001)
"""


def test_the_oldest_logs_go(tmp_path: Path) -> None:
    assert guarded(tmp_path, SLOWLY, log_bytes=2_000, log_files=2) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 12_000


def test_a_service_goes_on_where_its_log_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    assert guarded(tmp_path, "print('nobody reads this', flush=True); raise SystemExit(7)") == 7


@pytest.mark.parametrize("word", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_it_ends_by_the_signal_that_has_ended_its_command(tmp_path: Path, word: signal.Signals) -> None:
    assert guarded(tmp_path, f"import os; os.kill(os.getpid(), {int(word)})") == -word
    assert not list(tmp_path.glob("core*"))


def test_it_runs_nothing_where_nobody_gives_it_an_order() -> None:
    done = subprocess.run(
        [sys.executable, "-I", guard.__file__], input=b'{"command": ["true"', capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
