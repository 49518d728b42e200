"""Set-up tells uv what pip was told, and notices what it must not show."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

HOUSE = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("errata_setup", HOUSE / ".ci" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup = load()

LISTING = """\
:env:.extra-index-url='https://b.example/simple'
global.extra-index-url='https://a.example/simple'
global.find-links='/wheels\\n/more'
global.index-url='https://user:secret@example/simple'
install.timeout='60'
freeze.timeout='1'
global.progress-bar='off'
"""


def test_the_strongest_of_pips_settings_is_taken() -> None:
    assert setup.pip_settings(LISTING) == {
        "extra-index-url": "https://b.example/simple",
        "find-links": "/wheels\n/more",
        "index-url": "https://user:secret@example/simple",
        "timeout": "60",
    }


def test_uv_is_told_the_same_in_its_own_words() -> None:
    assert setup.uv_settings(setup.pip_settings(LISTING)) == {
        "UV_LINK_MODE": "copy",
        "UV_EXTRA_INDEX_URL": "https://b.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_DEFAULT_INDEX": "https://user:secret@example/simple",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_without_pip_settings_uv_keeps_its_own() -> None:
    assert setup.uv_settings({}) == {"UV_LINK_MODE": "copy"}


def test_a_folder_that_cannot_be_made_is_not_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert setup.writable(tmp_path / "new")
    assert not setup.writable(tmp_path / "file")


def test_a_machine_without_a_fitting_python_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(
        ["/bin/sh", str(HOUSE / ".ci" / "setup")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "No Python from 3.11 to 3.13 was found" in done.stderr
    assert "make setup PYTHON=" in done.stderr
