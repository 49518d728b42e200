"""What all tests share: the fixtures' home, how long property tests run, by which seed they draw, and nothing else."""

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
    parser.addoption("--long", action="store_true", help="run property tests on 2,000 examples each instead of 25")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "short")
