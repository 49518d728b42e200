"""How much code a command passes, counted in a process of its own."""

from __future__ import annotations

from pathlib import Path

from bench.shell import Shell
from bench.ways import Way, called_functions, lines


def test_functions_are_counted_once_and_without_imports(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.declare()
    shell.run("apply", "--yes")
    some = [[["ingest", "quotes", lines(shell, number)]] for number in (0, 1)]
    called = called_functions(shell, Way("", *some, 0, 0))
    files = {Path(file).name for file, _ in called}
    assert {"batch_writer.py", "buckets.py"} <= files
    assert "explanation.py" not in files
    assert len(files) < len(called) < 1_000
    assert len(called_functions(shell, Way("", some[1], some[1], 0, 0))) < len(called), (
        "the file is known, and nothing is taken in"
    )
