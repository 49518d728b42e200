"""How `make test` counts what its runs of pytest print, and when it needs only one."""

from __future__ import annotations

import importlib.util
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
    named = [*ci_test.WAITING, *ci_test.COMPUTING]
    assert all((HOUSE / each).is_dir() for each in named)
    assert len(set(named)) == len(named)
