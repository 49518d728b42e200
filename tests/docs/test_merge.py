"""The worked example of docs/merge.md: its files are written and its commands run, and they print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from errata.cli import main
from fixtures.worked_examples import commands, example_of, steps


def test_the_worked_example_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    shown = []
    for kind, content in steps(example_of("merge.md"), tmp_path):
        assert kind == "console"
        for argv, expected in commands(content):
            code = main(argv)
            out, err = capsys.readouterr()
            assert code == 0, err
            if expected:
                assert [line.rstrip() for line in out.splitlines()] == expected.splitlines(), argv
                shown.append(argv[:2])
    assert shown == [["archive", "scan"], ["feeds", "disagreements"], ["archive", "scan"]]
