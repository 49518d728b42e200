"""`jobs/materialise.py`: what a scheduler runs after appends and sweeps."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import errata
from errata.errors import ErrataError

JOB = Path(__file__).resolve().parents[2] / "jobs" / "materialise.py"
YAML = """
project: exchange
catalog: sqlite:///errata.db
warehouse: ./warehouse
streams:
  quotes: {columns: {at: bigint, price: int}, key: [at], order: at}
  others: {columns: {at: bigint, price: int}, key: [at], order: at}
"""


def test_the_job_matches_what_is_new_and_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.spec_from_file_location("materialise_job", JOB)
    assert found is not None
    assert found.loader is not None
    job = importlib.util.module_from_spec(found)
    found.loader.exec_module(job)
    file = tmp_path / "errata.yaml"
    file.write_text(YAML)
    (tmp_path / "quotes.csv").write_text("at,price\n1,5\n2,7\n3,9\n")
    with errata.open(tmp_path) as project:
        project.apply()
        project.ingest("quotes", tmp_path / "quotes.csv")
        with pytest.raises(ErrataError, match="unknown strategy 'best'"):
            project.register("SELECT at FROM quotes BEGIN (NOW - 10) END (NOW)", strategy="best")
        (handle,) = project.register("SELECT at FROM quotes WHERE price > 6 BEGIN (NOW - 10) END (NOW)")
        argv = ["--project", str(file), "--dag-id", "materialise"]
        assert job.main(argv) == 0
        assert "quotes: 3 rows in 1 buckets matched with up to 1 conjunctions, 2 matches" in capsys.readouterr().err
        assert job.main([*argv, "quotes"]) == 0
        assert "quotes: nothing to match" in capsys.readouterr().err
        assert job.main([*argv, "others"]) == 0
        assert capsys.readouterr().err == ""
        assert project.invoke(handle).to_pydict() == {"at": [2, 3]}
        project.materialise()
        assert project.unregister(handle) > 1
        with pytest.raises(ErrataError, match="was unregistered"):
            project.invoke(handle)
