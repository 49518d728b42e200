"""Because of what an evaluation changes results."""

from __future__ import annotations

from typing import Any

from errata.catalog.published import evaluations_of
from errata.evaluate.difference import comparable
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.replaced import replacement_cause
from errata.flows.answering.task import Task
from errata.model.interval import LOWEST


def cause_of(task: Task, inputs: Inputs) -> dict[str, Any]:
    """Why results change: the batches that have come; of results that take the place of others, what made that
    necessary."""
    told: dict[str, Any] = {"feed": "whole" if task.route.covering else "rows"}
    if task.left:
        told["part"] = True
    if task.replaces is not None:
        alike = comparable(task.replaces.shape, task.shape)
        return {**replacement_cause(task, task.replaces, inputs), "feed": "whole" if alike else "reset"}
    return {**inputs.batches(task.revisions, _rows_since(task, inputs)), **told}


def _rows_since(task: Task, inputs: Inputs) -> int:
    """The state of the streams up to which the answer had gone on, all the way: a correction in between did not."""
    if task.basis is None:
        return LOWEST
    if task.basis.last.swept is None and not task.basis.last.is_part:
        return task.basis.last.data_commit
    told = evaluations_of(inputs.site.catalog, task.basis.stream_id)
    return max((each.data_commit for each in told if each.swept is None and not each.is_part), default=LOWEST)
