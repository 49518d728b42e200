"""`errata run --plan`: the list of steps, printed instead of carried out."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from errata.answer.run_plan import RunPlan
from errata.answer.steps import Step
from errata.cli.console import print_message
from errata.errors import count_text
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, event_time_short, event_time_text

RUN_PLAN_FIELDS = (
    TableField("step", "step"),
    TableField("name", "stream or query"),
    TableField("why", "why"),
    TableField("revisions", "corrections", right=True),
    TableField("until", "up to"),
    TableField("waits", "errata run"),
)
"""Columns of a planned run in a table."""


def report_run_plan(plan: RunPlan, kind: OutputFormat) -> None:
    """Print the plan: a row for each step, and the landed files in words."""
    if plan.steps or kind is not OutputFormat.TABLE:
        records = [{**_record(each), "until": _until(plan, each, short=False)} for each in plan.steps]
        shown = [
            {**_record(each), "until": _until(plan, each, short=True), "waits": _waits(each) or "does it"}
            for each in plan.steps
        ]
        print_records(RUN_PLAN_FIELDS, records, shown, kind, sys.stdout)
    for line in _plan_lines(plan):
        print_message(line)


def _plan_lines(plan: RunPlan) -> Iterator[str]:
    for name, count in plan.landed.items():
        some = count_text(count, "file has landed", "files have landed")
        yield f"{name}: {some} and would be taken in first; what comes of the rows is not in the plan"
    if plan.is_empty:
        yield "nothing is due" if not plan.steps else "nothing is due: all that is left waits"


def _record(step: Step) -> TableRecord:
    return {
        "step": step.kind.value,
        "name": step.name,
        "why": step.why,
        "revisions": step.revisions or None,
        "waits": _waits(step),
    }


def _waits(step: Step) -> str | None:
    """What a run would wait for before it carried the step out; None if it would do it."""
    if step.held_by is not None:
        return f"waits for query {step.held_by}" if step.held_by != step.name else "has stopped, and waits to be mended"
    if step.waits is not None:
        return step.waits
    return "finds nothing to do yet" if step.idle else None


def _until(plan: RunPlan, step: Step, *, short: bool) -> str | None:
    if step.evaluation is None:
        return None
    write = event_time_short if short else event_time_text
    return write(step.evaluation.until, plan.timed[step.name])
