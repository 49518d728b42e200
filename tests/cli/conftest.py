"""A project to run commands in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.cli import main
from fixtures.commands import YAML, Done, Errata, lines


@pytest.fixture
def errata(capsys: pytest.CaptureFixture[str]) -> Errata:
    def run(*argv: str) -> Done:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with declarations that are not applied yet; commands run in it."""
    (tmp_path / "errata.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Path]:
    """A project with two batches taken in: 60 quotes of IBM, then 30 of AAPL, a late one and two bad ones."""
    folder = tmp_path_factory.mktemp("taken")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ERRATA_PROJECT", raising=False)
        (folder / "errata.yaml").write_text(YAML)
        (folder / "one.csv").write_text(lines(range(60)))
        late, bad = "2026-11-18T02:00:01,ORCL,7\n", "2026-11-18T02:01:40,ORCL,x\n2026-11-18T02:01:41,,1\n"
        (folder / "two.csv").write_text(lines(range(30), "AAPL", 1) + late + bad)
        assert main(["apply", "--yes"]) == 0
        assert main(["ingest", "quotes", "one.csv", "--batch-id", "one"]) == 0
        assert main(["ingest", "quotes", "two.csv", "--batch-id", "two"]) == 3
        yield folder
