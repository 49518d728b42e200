"""One query's results corrected: what came of it is written and committed."""

from __future__ import annotations

from typing import Any

from errata.catalog.published import Done
from errata.flows.answering.evaluate import Evaluated, committed, news
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.serving import serving
from errata.flows.correcting.sweeping import Sweeping
from errata.flows.correcting.worked import Worked, worked_out
from errata.model.bucket import Role
from errata.model.evaluation import Step, Swept
from errata.model.interval import LOWEST


def sweep_query(sweeping: Sweeping, inputs: Inputs) -> Evaluated:
    """Correct the query's results, and commit it: also where none comes out different, since they now contain what has
    been revised."""
    return commit_worked(worked_out(sweeping, inputs), inputs)


def commit_worked(worked: Worked, inputs: Inputs) -> Evaluated:
    """Make what has been written visible."""
    sweeping, made, measures = worked.sweeping, worked.laid.buckets, worked.measures
    task, basis = sweeping.task, sweeping.basis
    starts = [each.interval.start for each in sweeping.work.regions]
    step = Step(max(LOWEST + 1, min(starts, default=task.step.until)), task.step.until)
    swept = Swept(
        sweeping.technique.value,
        sweeping.why,
        _revisions(sweeping),
        len(sweeping.work.regions),
        worked.laid.compared,
        worked.changed,
        tuple(worked.refused),
    )
    done = Done(
        task.name,
        task.query.query_id,
        task.shape,
        basis,
        step,
        sweeping.data_commit,
        task.revisions,
        cause_of(sweeping),
        measures,
        basis.last.begins,
        made,
        rows=sum(each.rows for each in made if each.role is Role.BASE),
        holds=news(task, inputs),
        serves=serving(task, inputs, made, whole=True, corrects=True),
        inputs=sweeping.inputs,
        swept=swept,
        keeps_state=sweeping.keeps_state,
    )
    return committed(done, "sweep", inputs)


def cause_of(sweeping: Sweeping) -> dict[str, Any]:
    """Why results change, in a few words: which revisions of which sources."""
    told = [
        f"late versions of {each.source}" if each.came_late else f"{each.source} {_numbers(each.since + 1, each.up_to)}"
        for each in sweeping.revised
    ]
    if not told:
        return {"type": "replay", "id": sweeping.name, "feed": "whole"}
    return {"type": "revisions", "id": ", ".join(told), "feed": "whole"}


def _numbers(first: int, last: int) -> str:
    return str(last) if first >= last else f"{first} to {last}"


def _revisions(sweeping: Sweeping) -> dict[str, tuple[int, int]]:
    """Of each source the revisions that have been taken up; late versions have no numbers."""
    found: dict[str, tuple[int, int]] = {}
    for each in sweeping.revised:
        since, up_to = found.get(each.source, (each.since, each.up_to))
        found[each.source] = (min(since, each.since), max(up_to, each.up_to))
    return found
