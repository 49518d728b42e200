"""A task gives back what tasks hold that do not run any more, whoever's they are, and leaves all else alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from errata.catalog import leases
from errata.catalog.database import Catalog, open_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata_airflow.operator import ErrataJob
from fixtures.airflow import PROJECT
from fixtures.lease_cases import left_elsewhere

STATES = {
    "append": {"scheduled__1": {"answer": "failed"}, "scheduled__2": {"answer": "running"}},
    "replay": {"backfill/1": {"replay_0": "up_for_retry", "replay_1": "running", "replay": "success"}},
}


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    (tmp_path / "errata.yaml").write_text(PROJECT)
    apply_plan(plan_apply(load_project(tmp_path)))
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path / "errata.yaml"))
    found = open_catalog(f"sqlite:///{tmp_path / 'errata.db'}")
    yield found
    found.close()


def get_task_states(dag_id: str, task_ids: Sequence[str], run_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """As Airflow answers: by runs, and of mapped tasks each by its own name."""
    found = {run: states for run, states in STATES.get(dag_id, {}).items() if run in run_ids}
    return {
        run: {name: state for name, state in states.items() if name.rpartition("_")[0] in task_ids or name in task_ids}
        for run, states in found.items()
    }


def test_leases_of_tasks_that_have_ended_are_given_back(catalog: Catalog) -> None:
    owners = {
        "append/scheduled__1/answer/1": False,
        "append/scheduled__2/answer/1": True,
        "append/of another Airflow/answer/1": True,
        "replay/backfill/1/replay[0]/2": False,
        "replay/backfill/1/replay[1]/1": True,
        "": True,
    }
    for owner in owners:
        left_elsewhere(catalog, f"query {owner}", owner)
    task = ErrataJob(task_id="answer", job="run")
    context: Any = {"ti": SimpleNamespace(get_task_states=get_task_states)}
    task._release_ended(context)
    assert {each.owner for each in leases.list_holders(catalog)} == {owner for owner, stays in owners.items() if stays}
    task._release_ended({"ti": SimpleNamespace()})  # type: ignore[typeddict-item]
    assert len(leases.list_holders(catalog)) == 4
