"""What tasks of the DAGs read from the catalog. Imported when a task runs, never when a DAG file is parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from errata.archive.ingest.landing import find_landed
from errata.catalog import streams
from errata.catalog.feed_commits import attach_feed, detach_feed, trust_feed
from errata.declare.feeds import parse_joining
from errata.declare.site import open_site
from errata.errors import UsageError, unknown_name_error
from errata.model.commit import Cause
from errata.model.time import format_instant, parse_event_time, to_micros
from errata.psoup.due import due_matching
from errata.read.feeds import FEED_CHANGES, change_text
from errata.read.status import QueryStatus, query_statuses

SHOWN = 3
"""Streams of a job that are named in its label; the rest are counted."""


def landed_jobs(project: Path, most: int) -> list[dict[str, Any]]:
    """Arguments of the jobs that ingest what has landed: streams with files, in at most `most` jobs, with busy
    streams spread."""
    with open_site(project) as site:
        waiting = {name: len(files) for name, files in find_landed(site).files.items()}
    return [job_arguments(names) for names in group_streams(waiting, most)]


def group_streams(waiting: Mapping[str, int], most: int) -> list[list[str]]:
    """Streams in at most `most` groups with about the same number of files."""
    groups: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(most, len(waiting)))]
    for name, files in sorted(waiting.items(), key=lambda item: (-item[1], item[0])):
        place = min(range(len(groups)), key=lambda number: groups[number][0])
        total, names = groups[place]
        groups[place] = (total + files, [*names, name])
    return [sorted(names) for _, names in groups]


def job_arguments(names: Sequence[str]) -> dict[str, Any]:
    """The operator's arguments for one job, with its label in Airflow's grid."""
    about = ", ".join(names[:SHOWN])
    if len(names) > SHOWN:
        about += f" and {len(names) - SHOWN} more"
    return {"about": about, "arguments": ["--landed", "--accept-quarantine", *names]}


def queries_behind(project: Path) -> list[str]:
    """Queries that are behind their streams and can be evaluated."""
    with open_site(project) as site:
        return [each.name for each in query_statuses(site) if each.due or each.may_resume]


def matching_jobs(project: Path, stream: str | None) -> list[dict[str, Any]]:
    """Arguments of the job that matches rows with registered queries: of one stream, or of all; none where nothing is
    to be matched."""
    with open_site(project) as site:
        if stream:
            site.named([stream])
            return [{"about": stream, "arguments": [stream]}]
        due = due_matching(site)
    if not due:
        return []
    return [{"about": job_arguments(due.streams)["about"] or "views", "arguments": []}]


def cause_of(context: Mapping[str, Any]) -> Cause:
    """What a commit of a task says of its making."""
    ti = context["ti"]
    return Cause("", dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, try_number=ti.try_number)


def change_feed(project: Path, params: Mapping[str, Any], cause: Cause) -> str:
    """Attach, detach or trust a feed, as the form says; what was done, in words."""
    stream, feed, what, since = (params[name] for name in ("stream", "feed", "what", "since"))
    if since and what != "attach":
        raise UsageError(
            f"a time is given to {what} a feed", how="leave From empty; only a feed that is attached has it"
        )
    with open_site(project, cause) as site:
        made = site.caused_by("feeds")
        if what == "attach":
            timed = streams.stream_state(site.catalog, stream).stream.timed
            starts_at = parse_joining(since, timed) if since else None
            commit_id = attach_feed(site.catalog, stream, feed, made, starts_at)
        else:
            commit_id = (detach_feed if what == "detach" else trust_feed)(site.catalog, stream, feed, made)
    return change_text(stream, feed, FEED_CHANGES[what], commit_id)


def interval_of(context: Mapping[str, Any]) -> tuple[str, str] | None:
    """The interval of a backfill's run: [d, d + one interval). A manual run has none."""
    if context["dag_run"].run_type != "backfill":
        return None
    start, end = context["data_interval_start"], context["data_interval_end"]
    return format_instant(to_micros(start)), format_instant(to_micros(end))


def replay_jobs(project: Path, params: Mapping[str, Any], interval: tuple[str, str] | None) -> list[dict[str, Any]]:
    """Arguments of the jobs that replay a range, of one query or of all that have results."""
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
    """Whether a query has results in a range. A replay of a named query reports that itself."""
    there = query.published
    if there is None:
        return False
    start, end = (parse_event_time(each, timed=query.timed) for each in (since, until))
    return start < end and start <= there.frontier and end > there.last.begins
