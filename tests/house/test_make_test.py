"""How `make test` counts what its runs of pytest print, and when it needs only one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fixtures.airflow import HOUSE


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_test", HOUSE / ".ci" / "test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ci_test = load()


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ("..\n2 passed in 1.20s\n", (2, 0)),
        ("=== 1 failed, 12 passed, 3 errors in 62.10s (0:01:02) ===", (12, 4)),
        ("seed: 5\n1 error in 0.10s", (0, 1)),
        ("12 failed to start in time\n3 passed in 2s\nFAILED", (3, 0)),
        ("no tests ran in 0.10s", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_passed_and_failed_are_counted_from_the_last_line_that_tells(told: str, counts: tuple[int, int]) -> None:
    assert ci_test.counted(told) == counts


def test_what_is_named_runs_in_one_go() -> None:
    assert ci_test.names_tests("tests/house")
    assert ci_test.names_tests("tests/house/test_make_test.py::test_what_is_named_runs_in_one_go")
    assert not any(ci_test.names_tests(each) for each in ("--long", "-q", "no/such/folder", "some_name"))


def test_the_folders_that_are_named_are_there_and_run_once() -> None:
    named = [*ci_test.AIRFLOW, *ci_test.SERVICES, *ci_test.COMPUTING]
    assert all((HOUSE / each).is_dir() for each in named)
    assert len(set(named)) == len(named)


SAYS = """
import sys, time
from pathlib import Path
name, folder = sys.argv[1], Path(sys.argv[2])
print("begins", name, flush=True)
(folder / name).touch()
there = lambda: {each.name for each in folder.iterdir()}
while name != "b" and not (name == "d" or "d" in there()):
    time.sleep(0.01)
print(sorted(there()))
sys.exit("abcd".index(name))
"""


def test_the_next_runs_as_soon_as_one_of_three_has_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first and the third wait for the fourth, which can begin when the second has ended."""
    command = [sys.executable, "-c", SAYS]
    results = ci_test.run_all(command, [(name, str(tmp_path)) for name in "abcd"])
    assert [code for code, _ in results] == [0, 1, 2, 3]
    assert "d" not in results[1][1].splitlines()[1]
    printed = capfd.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("begins")] == [f"begins {each}" for each in "abcd"]
    assert all(output in printed for _, output in results)


def test_what_runs_ends_with_who_breaks_off() -> None:
    with ci_test.Run([sys.executable, "-c", "import time; time.sleep(600)"], ()) as run:
        assert run.is_running
    assert not run.is_running
