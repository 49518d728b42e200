"""What is secret is made once, and read by nobody else."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from deploy.kept import kept_password, kept_secrets
from deploy.ports import HOST, free_port, listens, wanted_port

from errata.errors import RefusedError

HOUSE = Path(__file__).resolve().parents[2]


def test_secrets_are_made_once_and_for_their_owner(tmp_path: Path) -> None:
    made = kept_secrets(tmp_path)
    assert kept_secrets(tmp_path) == made
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert kept_secrets(tmp_path.parent / "other" if (tmp_path.parent / "other").mkdir() is None else tmp_path) != made


def test_a_password_is_made_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "passwords.json"
    password = kept_password(file, "admin")
    assert len(password) >= 16
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept_password(file, "admin") == password
    file.write_text(json.dumps({"admin": "chosen by hand"}))
    assert kept_password(file, "admin") == "chosen by hand"


def test_containers_make_it_in_the_same_way_and_print_nothing(tmp_path: Path) -> None:
    file = tmp_path / "passwords.json"
    command = [sys.executable, "-m", "deploy.kept", str(file), "admin"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert set(json.loads(file.read_text())) == {"admin"}


def test_a_taken_port_is_said_with_how_to_choose_another() -> None:
    with closing(socket.socket()) as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert listens(port)
        with pytest.raises(RefusedError) as told:
            wanted_port(port)
    assert f"port {port} cannot be had" in str(told.value)
    assert "make airflow PORT=8081" in str(told.value)
    assert not listens(port)
    assert wanted_port(port) == port
    assert wanted_port(0) not in (0, port)
    assert free_port() > 0
