"""What a run would do (`errata run --plan`): the files that have landed, and the steps of `answer.steps`. Nothing is
taken in, applied or evaluated, and neither engine is started.

What landed files would bring is not known before they are read, so the steps are those of the rows that are there; a
step that comes after others is foretold. `errata sweep --plan` says what corrections would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from errata.answer.catalog_view import CatalogView
from errata.answer.steps import Step, StepKind, StepList, StepRequest
from errata.archive.ingest.landing import find_landed
from errata.catalog import commits, pins
from errata.declare.site import Site
from errata.errors import UsageError


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run would do."""

    landed: Mapping[str, int]
    """For each stream the number of files that would be taken in first."""
    steps: Sequence[Step]
    """In the order in which they would be carried out, with those that wait."""
    timed: Mapping[str, bool]
    """For each query that would be evaluated, whether its event time is a time."""

    @property
    def is_empty(self) -> bool:
        """Whether a run would do nothing."""
        return not self.landed and not any(each.due for each in self.steps)


def plan_run(site: Site, names: Sequence[str] = (), *, take: bool = True, anew: bool = False) -> RunPlan:
    """What a run with these arguments would do."""
    if anew and not names:
        raise UsageError("no query is named that is to be worked out anew", how="name it: errata run --anew QUERY")
    landed = {name: len(files) for name, files in find_landed(site).files.items()} if take else {}
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "run plan") as pin:
        view = CatalogView(site, pin.commit_id)
        due = StepList(view, StepRequest(names, anew=frozenset(names) if anew else frozenset(), probes=True))
        # A run applies revisions to every stream, whichever queries are named.
        applied = StepList(view, StepRequest(probes=True)).steps() if names else []
        steps = due.steps()
        others = [each for each in applied if each.kind is StepKind.APPLY and each not in steps]
        evaluated = [each.name for each in steps if each.evaluation is not None]
        timed = {name: all(each.stream.timed for each in due.bases(name).values()) for name in evaluated}
    return RunPlan(landed, [*others, *steps], timed)
