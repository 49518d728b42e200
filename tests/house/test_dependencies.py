"""docs/dependencies.md gives a reason for exactly what pyproject.toml declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]


def declared() -> set[str]:
    content = tomllib.loads((HOUSE / "pyproject.toml").read_text())
    project = content["project"]
    lists = [
        project["dependencies"],
        *project.get("optional-dependencies", {}).values(),
        *content["dependency-groups"].values(),
    ]
    return {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for each in lists for requirement in each}


def test_every_dependency_has_its_reason() -> None:
    entries = re.findall(r"^- `([^`]+)`: (.+)", (HOUSE / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    names = [name for name, _ in entries]
    assert sorted(names) == sorted(declared())
    assert all(len(reason.split()) >= 2 for _, reason in entries)


def test_the_lock_holds_every_dependency_with_hashes_and_no_address() -> None:
    lock = (HOUSE / "requirements.lock").read_text()
    locked = set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))
    assert declared() <= locked
    requirements = [part for part in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE) if "==" in part]
    assert all("--hash=sha256:" in part for part in requirements)
    assert "://" not in lock
