"""The Airflow that all tests here share, gone again after the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures.airflow_up import Exchange, exchange

HEARD = """
import json, os

def _note(kind, record):
    with open(os.environ["HEARD_IN"], "a") as out:
        out.write(json.dumps([kind, record]) + "\\n")

def fault(record):
    _note("fault", dict(record))

def failure(context):
    _note("failure", {"task": context["ti"].task_id, "said": str(context.get("exception"))})
"""


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "modules").mkdir()
    (folder / "modules" / "heard_of.py").write_text(HEARD)
    settings = {
        "PYTHONPATH": str(folder / "modules"),
        "HEARD_IN": str(folder / "heard.jsonl"),
        "ERRATA_ON_FAULT": "heard_of:fault",
        "ERRATA_ON_FAILURE": "heard_of:failure",
    }
    with exchange(folder, more=settings) as found:
        yield found
