"""`errata undo`: takes back what a batch did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.archive.revisions import undo as flow
from errata.archive.revisions.undo import UndoPlan, UndoReport
from errata.cli.console import confirm, print_message, step_status
from errata.cli.options import StreamName, global_options
from errata.declare.site import Site, open_site
from errata.errors import EXIT_FAILED, EXIT_QUARANTINE, count_text
from errata.read.wording import short_batch_id


def undo(
    context: typer.Context,
    stream: StreamName,
    batch: Annotated[
        str, typer.Argument(metavar="BATCH", help="The batch's id, or the beginning of it.", show_default=False)
    ],
    keep_later: Annotated[
        bool, typer.Option("--keep-later", help="Leave rows that have been changed since as they are.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")] = False,
) -> int:
    """Take back what a batch did: rows that it brought are deleted, those that it changed or deleted are restored.

    It is a batch of revisions itself, so every past state stays readable, and an undo can be undone.
    """
    with open_site(global_options(context).project) as site:
        if plan or not yes:
            left = _confirm_undo(site, stream, batch, keep_later=keep_later, plan=plan)
            if left is not None:
                return left
        with step_status(f"undo {short_batch_id(batch)}") as on_step:
            report = flow.undo_batch(site, stream, batch, keep_later=keep_later, on_step=on_step)
    for line in undo_lines(report):
        print_message(line)
    return EXIT_QUARANTINE if report.refused else 0


def _confirm_undo(site: Site, stream: str, batch: str, *, keep_later: bool, plan: bool) -> int | None:
    """Show the plan and ask; the exit code if nothing is to be done."""
    with step_status(f"undo {short_batch_id(batch)}") as on_step:
        planned = flow.plan_undo(site, stream, batch, on_step)
    done = planned.undone_in is not None
    if plan or not done:
        for line in undo_plan_lines(planned):
            print_message(line)
    if plan or done:
        return 0 if plan else None
    if not keep_later:
        flow.refuse_later(planned)
    if confirm("do this?"):
        return None
    print_message("nothing was done")
    return EXIT_FAILED


def undo_plan_lines(plan: UndoPlan) -> Iterator[str]:
    """What would be done, in words."""
    batch = short_batch_id(plan.batch_id)
    if plan.undone_in is not None:
        yield f"batch {batch} has been undone already, in commit {plan.undone_in}"
        return
    yield f"undoing batch {batch} of {plan.stream} would"
    yield from (f"  {line}" for line in _action_lines(plan, "delete", "restore", "put back"))
    if plan.pending:
        applied = count_text(plan.pending, "pending revision")
        yield f"  first apply {applied} of {plan.stream}, so that these numbers may change"
    yield from (f"  {line}" for line in _untouched_lines(plan, "refused, unless --keep-later leaves them"))


def undo_lines(report: UndoReport) -> Iterator[str]:
    """What was done, in words."""
    plan = report.plan
    batch = short_batch_id(plan.batch_id)
    if report.already:
        yield f"batch {batch} has been undone already, in commit {report.commit_id}"
        if report.finished:
            yield f"  what was left of it was applied in {_commit_words(report)}"
        return
    where = f", applied in {_commit_words(report)}" if report.commits else ""
    yield f"batch {batch} of {plan.stream} undone in commit {report.commit_id}{where}"
    yield from (f"  {line}" for line in _action_lines(plan, "deleted", "restored", "put back"))
    yield from (f"  {line}" for line in _untouched_lines(plan, "left as they are"))
    if report.refused:
        refused = count_text(report.refused, "row")
        yield f"  {refused} changed in between and left: errata quarantine ls {plan.stream} --batch {plan.undo_id}"


def _action_lines(plan: UndoPlan, delete: str, restore: str, put_back: str) -> Iterator[str]:
    if not plan.revisions:
        yield "change no row"
    for verb, count, of in (
        (delete, plan.deleted, "that it brought"),
        (restore, plan.restored, "that it changed"),
        (put_back, plan.put_back, "that it deleted"),
    ):
        if count:
            yield f"{verb} {count_text(count, 'row')} {of}"


def _untouched_lines(plan: UndoPlan, kept: str) -> Iterator[str]:
    """Rows of the batch that are not changed, and why."""
    if plan.kept:
        since = ", ".join(map(short_batch_id, plan.since))
        yield f"{count_text(plan.kept, 'row')} changed since by {since}: {kept}"
    if plan.aged:
        yield f"{count_text(plan.aged, 'row')} left, aged out"
    if plan.withdrawn:
        yield f"{count_text(plan.withdrawn, 'waiting revision')} withdrawn"
    if plan.quarantined:
        yield f"{count_text(plan.quarantined, 'row')} of it in quarantine, left there"


def _commit_words(report: UndoReport) -> str:
    commits = ", ".join(map(str, report.commits))
    return f"{'commit' if len(report.commits) == 1 else 'commits'} {commits}"
