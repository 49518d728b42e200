"""What tasks ask the catalog. Imported when a task runs, never when a DAG is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from errata.archive.ingest.landing import find_landed
from errata.declare.site import open_site
from errata.errors import UsageError, unknown_name_error
from errata.model.time import format_instant, parse_event_time, to_micros
from errata.read.status import DUE_PROGRESS, QueryStatus, query_statuses

SHOWN = 3
"""Of more streams in one job the rest is counted."""


def landed_jobs(project: Path, most: int) -> list[dict[str, Any]]:
    """Arguments of the jobs that take in what has landed: streams with files, put together into a few jobs; busy ones
    are spread."""
    with open_site(project) as site:
        waiting = {name: len(files) for name, files in find_landed(site).files.items()}
    return [job_of(names) for names in spread(waiting, most)]


def spread(waiting: Mapping[str, int], most: int) -> list[list[str]]:
    """Streams in at most so many groups of about as many files each."""
    groups: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(most, len(waiting)))]
    for name, files in sorted(waiting.items(), key=lambda item: (-item[1], item[0])):
        place = min(range(len(groups)), key=lambda number: groups[number][0])
        total, names = groups[place]
        groups[place] = (total + files, [*names, name])
    return [sorted(names) for _, names in groups]


def job_of(names: Sequence[str]) -> dict[str, Any]:
    """How the operator is told of one job, and what it is called in Airflow's grid."""
    about = ", ".join(names[:SHOWN])
    if len(names) > SHOWN:
        about += f" and {len(names) - SHOWN} more"
    return {"about": about, "arguments": ["--landed", "--accept-quarantine", *names]}


def queries_behind(project: Path) -> list[str]:
    """Queries that are not as far as their streams reach, and may be taken there."""
    with open_site(project) as site:
        return [each.name for each in query_statuses(site) if each.state in DUE_PROGRESS or each.may_go_on]


def interval_of(context: Mapping[str, Any]) -> tuple[str, str] | None:
    """The interval that a run of a backfill stands for: [d, d + one interval). A run by hand stands for none."""
    if context["dag_run"].run_type != "backfill":
        return None
    start, end = context["data_interval_start"], context["data_interval_end"]
    return format_instant(to_micros(start)), format_instant(to_micros(end))


def replay_jobs(project: Path, params: Mapping[str, Any], interval: tuple[str, str] | None) -> list[dict[str, Any]]:
    """Arguments of the jobs that work a range out again, of one query or of all that have results."""
    since, until = params["since"] or (interval or ("",))[0], params["until"] or (interval or ("", ""))[1]
    if not since or not until:
        raise UsageError(
            "the range is not told",
            how="fill in From and To; or start a backfill, whose runs stand for one interval each",
        )
    with open_site(project) as site:
        standing = {each.name: each for each in query_statuses(site)}
    name = params["query"]
    if name and name not in standing:
        raise unknown_name_error("query", name, standing)
    wanted = [name] if name else [each.name for each in standing.values() if _answers(each, since, until)]
    options = ["--from", str(since), "--to", str(until), "--technique", str(params["technique"])]
    options += ["--dry-run"] if params["dry_run"] else []
    return [{"about": f"{each}, {since} to {until}", "arguments": [each, *options]} for each in wanted]


def _answers(query: QueryStatus, since: str, until: str) -> bool:
    """Whether a query has answered anything of a range; a replay of a query by name says so itself."""
    there = query.published
    if there is None:
        return False
    start, end = (parse_event_time(each, timed=query.timed) for each in (since, until))
    return start < end and start <= there.frontier and end > there.last.begins
