"""Formats of the page's templates: numbers, times, values and drawings. `environment` lists every function and
constant that a template may use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from errata.errors import count_text
from errata.intake.encoding import display_value
from errata.language.route import RouteKind
from errata.model.commit import Cause, Commit
from errata.model.technique import Technique
from errata.model.time import DAY, HOUR, MINUTE, SECOND
from errata.read.details import PATTERN_TEXTS, POLICY_TEXTS
from errata.read.feeds import merge_words
from errata.read.overview import repair_hint, waiting_reason
from errata.read.status import QueryProgress, QueryStatus
from errata.read.wording import (
    byte_size_text,
    commit_author,
    commit_summary,
    event_time_distance,
    event_time_short,
    short_batch_id,
    wall_time,
)
from errata_airflow.page.drawing import coverage_path, sparkline_path, timeline_drawing

ROUTES: Mapping[str, str] = {
    RouteKind.APPENDED: "new results were added, and none that were there changed",
    RouteKind.GROUPED: "what is kept of each group was brought up to date with the rows that came",
    RouteKind.ROW_WINDOWS: "the rows were kept that windows over rows still need, and only new ones were read",
    RouteKind.LAST_ROWS: "the last rows were kept, and only new ones were read",
    RouteKind.NEW_VALUES: "values that had not come before were added",
    RouteKind.RECOMPUTED: "worked out from all rows that count, and compared with what was published",
    Technique.ALL: "all rows of the groups that were touched were read again",
    Technique.MINIMAL: "only rows that take part in results which were touched were read again",
    Technique.DIRECT: "what was published was adjusted, and no row was read again",
}
"""How results were computed or corrected, in a sentence, by route or technique."""

_STEPS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))


def environment(folder: Path) -> Environment:
    """The Jinja environment of the templates in a folder, with all functions that they use."""
    found = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "ago": ago,
        "batch": short_batch_id,
        "deed": deed_of,
        "distance": span,
        "lasting": lasting,
        "moment": when,
        "place": where,
        "size": byte_size_text,
        "who": commit_author,
        "ticks": ticks,
        "word": display_value,
        "segment": lambda text: quote(str(text), safe=""),
    }
    found.globals |= {
        "counted": count_text,
        "coverage_path": coverage_path,
        "sparkline_path": sparkline_path,
        "timeline_drawing": timeline_drawing,
        "patterns": PATTERN_TEXTS,
        "policies": POLICY_TEXTS,
        "routes": ROUTES,
        "mend": repair_hint,
        "merge_words": merge_words,
        "waits_for": waiting_reason,
        "state": state,
        "task_path": task_path,
        "asking": asking,
    }
    return found


def ago(then: int, now: int) -> str:
    """'3 minutes ago'; of a time in the future 'in 3 minutes'."""
    for unit, name in _STEPS:
        count = abs(now - then) // unit
        if count:
            return f"{count_text(count, name)} ago" if then <= now else f"in {count_text(count, name)}"
    return "just now"


def lasting(micros: int) -> str:
    """A duration: '0.42 s', '3 min 5 s', '2 days 4 h'."""
    seconds = micros / SECOND
    if 0 < seconds < 0.01:
        return "under 0.01 s"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if micros < DAY:
        return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    return f"{count_text(micros // DAY, 'day')} {micros % DAY // HOUR} h"


def span(value: int, timed: bool) -> str:
    """The distance of two places, rounded for reading."""
    return lasting(value) if timed else event_time_distance(value, timed)


def when(value: int) -> str:
    """A wall-clock time to the second."""
    return wall_time(value).replace("T", " ")


def where(value: int | None, timed: bool) -> str:
    """A value of an order field; times with milliseconds only if there are any."""
    said = event_time_short(value, timed)
    return said.replace("T", " ").removesuffix(".000") if timed else said


def deed_of(commit: Commit) -> str:
    """The summary of a commit, also of a sweep."""
    if commit.cause.flow != "sweep":
        return commit_summary(commit)
    said = commit.summary
    return f"query {said.get('query')}: {said.get('changed')} of {said.get('compared')} results looked at changed"


def ticks(text: str) -> Markup:
    """Text with parts between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def task_path(cause: Cause) -> str:
    """The path of Airflow's page of the task that made a commit."""
    task, _, rest = cause.task_id.partition("[")
    mapped = f"/mapped/{rest.rstrip(']')}" if rest else ""
    tried = f"?{urlencode({'try_number': cause.try_number})}" if cause.try_number is not None else ""
    names = [quote(each, safe="") for each in (cause.dag_id, cause.run_id, task)]
    return f"/dags/{names[0]}/runs/{names[1]}/tasks/{names[2]}{mapped}{tried}"


def asking(said: Mapping[str, object]) -> str:
    """The query string of an address."""
    told = {name: value for name, value in said.items() if value not in (None, "")}
    return f"?{urlencode(told)}" if told else ""


_MARKS = {
    QueryProgress.STOPPED: "bad",
    QueryProgress.HELD: "look",
    QueryProgress.EDITED: "look",
    QueryProgress.CURRENT: "well",
}


def state(of: QueryStatus) -> Markup:
    """The state of a query, in the colour of its urgency."""
    if of.state is None:
        return Markup('<span class="mark look">{}</span>').format(of.declared.value)
    return Markup('<span class="mark {}">{}</span>').format(_MARKS.get(of.state, ""), of.state.value)
