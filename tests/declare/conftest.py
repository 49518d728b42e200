"""A folder in which errata.yaml is written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from errata.declare.project import Project, load_project
from fixtures.errata_yaml import Load


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write errata.yaml into an empty folder, go there and load it."""
    monkeypatch.chdir(tmp_path)

    def loaded(text: str, **environ: str) -> Project:
        (tmp_path / "errata.yaml").write_text(text, encoding="utf-8")
        return load_project(environ=environ)

    return loaded
