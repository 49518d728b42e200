"""Makes .venv from requirements.lock. Runs on any Python 3.11 to 3.13 by itself, so it imports nothing installed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
VENV = HOUSE / ".venv"
TOOLS = HOUSE / ".tools"
STAMP = VENV / "errata-setup"
UV_VERSION = "0.13.8"

# What pip is told about where packages come from, and how uv is told the same.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
SECTIONS = ("global", "install", ":env:")


def pip_settings(listing: str) -> dict[str, str]:
    """pip's own settings from `pip config list`; the environment is stronger than `install`, that than `global`."""
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, _, quoted = line.partition("=")
        section, _, option = name.strip().partition(".")
        if option in UV_NAMES and section in SECTIONS:
            rank = SECTIONS.index(section)
            if rank >= found.get(option, (-1, ""))[0]:
                found[option] = (rank, str(ast.literal_eval(quoted.strip())))
    return {option: value for option, (_, value) in found.items()}


def uv_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The same as uv reads it from its environment."""
    environ = {"UV_LINK_MODE": "copy"}
    for option, value in settings.items():
        separator = "," if option == "find-links" else " "
        environ[UV_NAMES[option]] = separator.join(value.split())
    if "extra-index-url" in settings:
        # pip takes the best version from all of its indexes; hashes say which files those may be.
        environ["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return environ


def environment() -> dict[str, str]:
    """The environment for uv. The indexes' addresses may carry passwords: they are handed on and never shown."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings = pip_settings(listing.stdout) if listing.returncode == 0 else {}
    environ = {**uv_settings(settings), **os.environ}
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".cache")
    if "UV_CACHE_DIR" not in environ and not writable(cache):
        environ["UV_CACHE_DIR"] = str(TOOLS / "uv-cache")
    environ.pop("VIRTUAL_ENV", None)
    return environ


def writable(folder: Path) -> bool:
    """Whether uv can keep its cache in the folder; the only sure way to know is to make its own folder there."""
    try:
        (folder / "uv").mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder / "uv", os.W_OK)


def find_uv() -> str:
    """uv from PATH, else a pinned one that pip installs into a folder of the project."""
    if (found := shutil.which("uv")) is not None and runs(found):
        return found
    own = TOOLS / "bin" / "uv"
    if not runs(str(own)):
        say("uv is not on PATH: installing it into .tools")
        run([sys.executable, "-m", "venv", "--clear", str(TOOLS)], os.environ)
        pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, f"uv=={UV_VERSION}"], os.environ)
    return str(own)


def runs(program: str) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0  # noqa: S603
    except OSError:
        return False


def run(command: list[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=HOUSE, env=dict(environ), check=False)  # noqa: S603
    if done.returncode != 0:
        sys.exit(f"set-up stopped: {' '.join(command[:4])} … ended with code {done.returncode}; the reason is above")


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def lock(uv: str, environ: Mapping[str, str], *, upgrade: bool) -> None:
    """Resolve requirements.lock, for every platform; it carries hashes and no addresses. Without `upgrade` what is
    locked keeps its version where it can."""
    compile_lock = [uv, "pip", "compile", "pyproject.toml", "--group", "dev", "--extra", "java", "--universal"]
    compile_lock += ["--generate-hashes", "--python-version", "3.11", "--quiet", "--no-emit-index-url"]
    compile_lock += ["--upgrade"] * upgrade
    run([*compile_lock, "--no-emit-find-links", "-o", "requirements.lock"], environ)


def main() -> None:
    environ = environment()
    uv = find_uv()
    if "--lock" in sys.argv[1:]:
        lock(uv, environ, upgrade="--upgrade" in sys.argv[1:])
        return
    python = VENV / "bin" / "python"
    if not runs(str(python)):
        say(f"making .venv with Python {sys.version.split()[0]}")
        run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)], environ)
    say("installing what requirements.lock names (1.3 GB the first time)")
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    run([*install, "--require-hashes", "-r", "requirements.lock"], environ)
    run([*install, "--no-deps", "--editable", "."], environ)
    STAMP.touch()
    say("set-up done")


if __name__ == "__main__":
    main()
