"""How much code a command passes, counted in a process of its own."""

from __future__ import annotations

from pathlib import Path

from bench.shell import Shell
from bench.ways import Way, lines, passed


def test_functions_are_counted_once_and_without_imports(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.declare()
    shell.run("apply", "--yes")
    some = [[["ingest", "quotes", lines(shell, number)]] for number in (0, 1)]
    met = passed(shell, Way("", *some, 0, 0))
    files = {Path(file).name for file, _ in met}
    assert {"append.py", "buckets.py"} <= files
    assert "explain.py" not in files
    assert len(files) < len(met) < 1_000
    assert len(passed(shell, Way("", some[1], some[1], 0, 0))) < len(met), "the file is known, and nothing is taken in"
