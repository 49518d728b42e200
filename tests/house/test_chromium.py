"""Where the tests' browser comes from: the machine's own first, and never a package that is not what it was."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from types import ModuleType

import pytest

HOUSE = Path(__file__).resolve().parents[2]


@pytest.fixture
def chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(HOUSE / ".ci")
    spec = importlib.util.spec_from_file_location("errata_chromium", HOUSE / ".ci" / "chromium.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TOOLS", tmp_path)
    monkeypatch.setattr(module, "OWN", tmp_path / "own")
    return module


def program(folder: Path, name: str, code: int = 0) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_the_machines_own_is_taken(chromium: ModuleType, tmp_path: Path) -> None:
    found = program(tmp_path / "bin", "google-chrome")
    path = {"PATH": str(tmp_path / "bin")}
    assert chromium.machines_own(path) == found
    named = program(tmp_path, "mine")
    assert chromium.machines_own({**path, "ERRATA_CHROMIUM": named}) == named


def test_a_name_on_path_that_does_not_start_is_passed_over(chromium: ModuleType, tmp_path: Path) -> None:
    program(tmp_path / "bin", "chromium-browser", 1)
    assert chromium.machines_own({"PATH": str(tmp_path / "bin")}) is None


def test_one_that_is_named_and_does_not_start_is_told(chromium: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"ERRATA_CHROMIUM is /nowhere, and that does not start\n  how to mend: "):
        chromium.machines_own({"ERRATA_CHROMIUM": "/nowhere"})


def test_another_machine_is_told_what_to_do(chromium: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match="for Linux on x86-64 alone\n  how to mend: install Chromium"):
        chromium.own()


def test_a_package_that_is_not_what_it_was_is_refused(chromium: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "package.tgz").write_text("something else")
    with pytest.raises(SystemExit, match="is not what it was"):
        chromium.checked(tmp_path / "package.tgz")


def test_of_two_that_come_at_once_one_gets_it(
    chromium: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(chromium, "find_uv", lambda: "uv")
    got, both = [], threading.Barrier(2)

    def get(npm: str | None, uv: str | None) -> None:
        got.append(uv)
        program(tmp_path / "own", "start")

    monkeypatch.setattr(chromium, "get", get)

    def come() -> None:
        both.wait()
        assert chromium.own() == str(tmp_path / "own" / "start")

    threads = [threading.Thread(target=come) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(got) == 1
