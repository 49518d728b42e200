"""What all tests share: the fixtures' home, what runs only with `--long`, and how many examples property tests draw."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # fixtures/ is imported by name, here and by tests

pytest_plugins = [
    "fixtures.spark",
    "fixtures.postgres",
    "fixtures.catalog",
    "fixtures.connect",
    "fixtures.houses",
    "fixtures.chance",
]

for name, examples in (("short", 25), ("long", 2_000)):
    settings.register_profile(
        name, max_examples=examples, deadline=None, database=None, print_blob=True, derandomize=False
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "run the tests marked `long`, too, and property tests on 2,000 examples each instead of 25"
    parser.addoption("--long", action="store_true", help=words)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes, or repeats at length what another test shows; with --long")
    settings.load_profile("long" if config.getoption("--long") else "short")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
