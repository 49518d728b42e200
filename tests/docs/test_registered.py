"""The worked example of docs/registered.md: its files are written, its commands run, and they print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import errata as package
from errata.cli import main
from errata.model.registered import HANDLE
from fixtures.worked_examples import BLOCK, commands, example_of, steps

EXAMPLE = example_of("registered.md")


def test_the_worked_example_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    handles: dict[str, str] = {}
    run = 0
    for kind, content in steps(EXAMPLE, tmp_path):
        for argv, shown in commands(content) if kind == "console" else ():
            code = main([handles.get(word, word) for word in argv])
            out, err = capsys.readouterr()
            assert code == 0, err
            if argv[:2] == ["query", "register"]:
                assert all(HANDLE.fullmatch(line) for line in out.split())
                handles |= zip(shown.split(), out.split(), strict=True)
            elif argv[0] == "invoke":
                assert out == shown, argv
            run += 1
    assert run > 10
    assert len(handles) == 4


def test_the_python_of_the_example_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = {kind: content for kind, content in reversed(BLOCK.findall(EXAMPLE)) if kind in ("yaml", "csv", "python")}
    folder = tmp_path / "exchange"
    folder.mkdir()
    for name, kind in (("errata.yaml", "yaml"), ("quotes.csv", "csv")):
        (folder / name).write_text(blocks[kind])
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    with package.open() as project:
        project.apply()
        project.ingest("quotes", "quotes.csv")
    monkeypatch.chdir(tmp_path)
    said: dict[str, object] = {"errata": package}
    exec(blocks["python"], said)
    rows = said["rows"]
    assert rows.to_pydict() == {"symbol": ["IBM", "SAP", "IBM"]}  # type: ignore[attr-defined]
