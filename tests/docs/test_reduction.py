"""The worked example of docs/reduction.md: its files are written, its Python and its commands run, and they print what
it shows."""

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
    shown: list[str] = []
    for kind, content in steps(example_of("reduction.md"), tmp_path):
        if kind == "python":
            exec(content, {})
            continue
        for argv, expected in commands(content):
            code = main(argv)
            out, err = capsys.readouterr()
            assert code == 0, err
            if argv[0] == "ask":
                assert out == expected, argv
                shown.append(err)
    assert len(shown) == 3
    assert "read copies" in shown[0]
