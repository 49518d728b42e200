"""A project to look at, and the page that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from fixtures.airflow_page import the_app
from fixtures.sample_project import Looked, looked


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path / "errata.yaml"))
    with looked(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(the_app(guarded=False)) as found:
        yield found
