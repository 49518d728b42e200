"""The check of the docs finds what it is for, and the project's own docs pass it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HOUSE = Path(__file__).resolve().parents[2]
WITHOUT_MAKE = {
    name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS"}
}
"""The environment of somebody who types `make`, also where a make runs these tests."""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", HOUSE / "docs" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = load()

PAGE = """
See [the model](docs/model.md#time), [nothing](docs/none.md) and [elsewhere](https://example.org/x).
Type `errata apply --yes` or `make demo`; not `make tea`, and `errata.yaml` is a file.

```sh
$ errata archive ls|stats quotes [--format json] | head
errata ingest quotes \\
    --landed   # what has landed
```

    make test ARGS=-x && make lint
"""


def test_commands_are_found_wherever_they_are_named() -> None:
    assert check.commands(PAGE) == [
        "errata apply --yes",
        "make demo",
        "make tea",
        "errata archive ls|stats quotes [--format json]",
        "errata ingest quotes --landed",
        "make test ARGS=-x",
    ]


def test_alternatives_are_commands_of_their_own() -> None:
    assert check.alternatives("errata archive ls|stats quotes [--format json]") == [
        ["errata", "archive", "ls", "quotes", "--format", "json"],
        ["errata", "archive", "stats", "quotes", "--format", "json"],
    ]


def test_what_is_wrong_is_named_with_its_page(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "model.md").write_text("# Model\n\n## Time\n")
    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "Makefile").write_text("demo:  ## x\n\ntest lint:\n\ntest:\n")

    def ask(words: list[str]) -> str | None:
        return "No such option" if "--landed" in words else None

    assert check.check(tmp_path, ask) == [
        "README.md: docs/none.md does not exist",
        "README.md: `make tea`: make has no target tea",
        "README.md: `errata ingest quotes --landed`: No such option",
    ]


def test_headings_and_names_of_the_code_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("")
    (tmp_path / "src" / "errata" / "model").mkdir(parents=True)
    (tmp_path / "src" / "errata" / "model" / "bucket.py").write_text("SIZE: int = 1\n\nclass Role:\n    BASE = 1\n")
    (tmp_path / "README.md").write_text(
        "# A `Role` of [its](x) own\n\n[here](#a-role-of-its-own), [not](#roles). `model/bucket.py:SIZE`,\n"
        "`model/bucket.py:Role.BASE`, `jobs/NAME.py`; `model/bucket.py:Bucket` and `model/none.py` are not.\n"
    )
    assert check.check(tmp_path) == [
        "README.md: x does not exist",
        "README.md: #roles leads to no heading",
        "README.md: model/bucket.py does not define Bucket",
        "README.md: model/none.py is no file",
    ]


@pytest.mark.parametrize(("target", "words"), [("demo", ["demo"]), ("bench", ["bench", "scan", "small", "here"])])
def test_make_says_what_it_would_run(target: str, words: list[str]) -> None:
    given = ["NAME=scan", "SCALE=small", "OUT=here"]
    printed = subprocess.run(
        ["make", "--dry-run", target, *given], cwd=HOUSE, env=WITHOUT_MAKE, capture_output=True, text=True, check=True
    )
    assert all(word in printed.stdout.split("errata")[-1].split() for word in words)


def test_make_hands_nothing_of_its_own_to_a_make_that_its_recipe_calls(tmp_path: Path) -> None:
    house = tmp_path / "errata"  # a nested make names the folder that it enters, so the name must not matter either
    recipe = house / ".venv" / "bin" / "python"
    recipe.parent.mkdir(parents=True)
    (house / ".ci").mkdir()
    for name in ("pyproject.toml", "requirements.lock", ".ci/setup", ".ci/setup.py", ".venv/errata-setup"):
        (house / name).touch()
    shutil.copyfile(HOUSE / "Makefile", house / "Makefile")
    recipe.write_text("#!/bin/sh\nenv\nmake --dry-run demo\n")
    recipe.chmod(0o755)
    given = ["make", "test", "ARGS=--durations=60 -q", "NAME=scan", "SCALE=paper", "OUT=there"]
    done = subprocess.run(given, cwd=house, env=WITHOUT_MAKE, capture_output=True, text=True, check=True)
    *environ, nested = done.stdout.splitlines()
    assert nested.split() == [".venv/bin/errata", "demo"]
    names = {line.partition("=")[0] for line in environ}
    assert names.isdisjoint({"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS", "NAME", "SCALE", "OUT"})


def test_the_docs_are_right() -> None:
    done = subprocess.run(
        [sys.executable, str(HOUSE / "docs" / "check.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_schedules_of_the_dags_are_told() -> None:
    files = sorted((HOUSE / "dags").glob("*.py"))
    scheduled = re.compile(r'settings\.schedule\w*\("(\w+)", "(.*?)"')
    found = {dag: schedule for path in files for dag, schedule in scheduled.findall(path.read_text(encoding="utf-8"))}
    by_hand = [path.stem for path in files if "schedule=None" in path.read_text(encoding="utf-8")]
    assert by_hand == ["feeds"]
    assert sorted([*found, *by_hand]) == [path.stem for path in files]
    variables = (HOUSE / "docs" / "configuration.md").read_text(encoding="utf-8")
    costs = (HOUSE / "docs" / "operations.md").read_text(encoding="utf-8")
    for dag, schedule in found.items():
        variable = f"ERRATA_{dag.upper()}_SCHEDULE"
        assert re.search(rf"^\| `{variable}` \| .*`{dag}`.*: `{re.escape(schedule)}` \|$", variables, re.MULTILINE), dag
        assert re.search(rf"^\| `{dag}` \| [^|]*`{variable}`", costs, re.MULTILINE), dag


def test_every_variable_that_the_dags_read_is_told_and_no_other() -> None:
    settings = (HOUSE / "plugins" / "errata_airflow" / "settings.py").read_text(encoding="utf-8")
    read = set(re.findall(r'os\.environ\.get\("(ERRATA_\w+)"\)', settings))
    page = (HOUSE / "docs" / "configuration.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(ERRATA_\w+)` \|", page, re.MULTILINE))
    assert read
    assert read <= told
    dags = {f"ERRATA_{path.stem.upper()}_SCHEDULE" for path in (HOUSE / "dags").glob("*.py")}
    assert told - read - dags == {"ERRATA_DEBUG", "ERRATA_NEAR"}
