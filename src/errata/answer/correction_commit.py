"""Commits a correction, with a record of what it did: the technique, the revisions and the number of results that
changed."""

from __future__ import annotations

from typing import Any

from errata.answer.correction import CorrectionResult, compute_correction
from errata.answer.correction_plan import CorrectionPlan
from errata.answer.evaluation_commit import (
    EvaluationOutcome,
    commit_or_discard,
    new_revisions_read,
    result_table_update,
)
from errata.answer.inputs import RunInputs
from errata.catalog.result_archives import EvaluationCommit
from errata.model.bucket import Role
from errata.model.commit import EvaluationSpan, SweepSummary
from errata.model.time import LOWEST


def correct_query(correction: CorrectionPlan, inputs: RunInputs) -> EvaluationOutcome:
    """Correct a query's results, and commit. It is committed even if no result is different: the results then contain
    the revisions."""
    return commit_correction(compute_correction(correction, inputs), inputs)


def commit_correction(result: CorrectionResult, inputs: RunInputs) -> EvaluationOutcome:
    """Make a computed correction visible."""
    correction, made, measures = result.correction, result.diff.buckets, result.measures
    task, basis = correction.task, correction.basis
    starts = [each.interval.start for each in correction.sequence.regions]
    step = EvaluationSpan(max(LOWEST + 1, min(starts, default=task.step.until)), task.step.until)
    swept = SweepSummary(
        correction.technique.value,
        correction.why,
        _revision_ranges(correction),
        len(correction.sequence.regions),
        result.diff.compared,
        result.changed,
        tuple(result.refused),
    )
    done = EvaluationCommit(
        task.name,
        task.query.query_id,
        task.shape,
        basis,
        step,
        correction.data_commit,
        task.revisions,
        cause_of_correction(correction),
        measures,
        basis.last.begins,
        made,
        rows=sum(each.rows for each in made if each.role is Role.BASE),
        consumed=new_revisions_read(task, inputs),
        table_update=result_table_update(task, inputs, made, whole=True, corrects=True),
        inputs=correction.inputs,
        correction=swept,
        keeps_state=correction.keeps_state,
    )
    return commit_or_discard(done, "sweep", inputs)


def cause_of_correction(correction: CorrectionPlan) -> dict[str, Any]:
    """Why results change, for the commit's cause: which revisions of which sources."""
    changes = [
        f"late versions of {each.source}"
        if each.came_late
        else f"{each.source} {_number_range(each.since + 1, each.up_to)}"
        for each in correction.revisions
    ]
    if not changes:
        return {"type": "replay", "id": correction.name, "feed": "whole"}
    return {"type": "revisions", "id": ", ".join(changes), "feed": "whole"}


def _number_range(first: int, last: int) -> str:
    return str(last) if first >= last else f"{first} to {last}"


def _revision_ranges(correction: CorrectionPlan) -> dict[str, tuple[int, int]]:
    """For each source the range of revisions that was taken up: after the first number, up to the second."""
    found: dict[str, tuple[int, int]] = {}
    for each in correction.revisions:
        since, up_to = found.get(each.source, (each.since, each.up_to))
        found[each.source] = (min(since, each.since), max(up_to, each.up_to))
    return found
