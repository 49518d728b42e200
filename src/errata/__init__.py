"""Errata keeps the answers of continuous queries right when the past changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from errata.flows.open_project import OpenProject

__version__ = "0.1.0"
__all__ = ["__version__", "ask", "changes", "open", "reduction", "results", "table", "why"]

F = TypeVar("F", bound=Callable[..., Any])


def open(project: Path | str | None = None) -> OpenProject:  # noqa: A001 - as files are opened: errata.open("folder")
    """A project, by its folder or its errata.yaml, to be read and brought up to date without a session of Spark.

    Without an argument it is the nearest errata.yaml.
    """
    # As below: importing errata must stay quick.
    from errata.flows.open_project import OpenProject  # noqa: PLC0415

    return OpenProject(Path(project) if project is not None else None)


def table(
    spark: SparkSession,
    stream: str,
    *,
    as_of: str | int | None = None,
    start: str | int | None = None,
    end: str | int | None = None,
    groups: Sequence[Mapping[str, str]] = (),
    project: Path | str | None = None,
) -> DataFrame:
    """A stream's archive as a DataFrame: rows with start <= order field < end, as known at a commit or a moment.

    The project is the nearest errata.yaml unless it is named; each of `groups` gives values of all group columns.
    """
    # PySpark takes seconds to import, and importing errata must stay quick.
    from errata.read import stream_scan  # noqa: PLC0415

    return stream_scan.stream_frame(spark, stream, as_of=as_of, start=start, end=end, groups=groups, project=project)


def ask(
    spark: SparkSession,
    query: str,
    *,
    at: str | int | None = None,
    as_of: str | int | None = None,
    with_error: bool = False,
    project: Path | str | None = None,
) -> DataFrame:
    """A one-time answer as a DataFrame: of a query that has been applied, by its name, or of a text of the language.

    `at` is the event time, by default the last that is certain; `as_of` is a commit or a moment of commit. With
    `with_error`, estimates over streams with TABLESAMPLE have their 95% intervals beside them, `<name>_low` and
    `<name>_high`. The project is the nearest errata.yaml unless it is named. The session's time zone becomes UTC, and
    its ANSI mode is turned on.
    """
    from errata.read.ask import ask_frame  # noqa: PLC0415

    return ask_frame(spark, query, at=at, as_of=as_of, with_error=with_error, project=project)


@overload
def results(
    spark: SparkSession,
    query: str,
    *,
    at: str | int | None = None,
    as_of: str | int | None = None,
    aligned: None = None,
    project: Path | str | None = None,
) -> DataFrame: ...


@overload
def results(
    spark: SparkSession,
    query: str,
    *,
    at: str | int | None = None,
    as_of: str | int | None = None,
    aligned: Sequence[str],
    project: Path | str | None = None,
) -> dict[str, DataFrame]: ...


def results(
    spark: SparkSession,
    query: str,
    *,
    at: str | int | None = None,
    as_of: str | int | None = None,
    aligned: Sequence[str] | None = None,
    project: Path | str | None = None,
) -> DataFrame | dict[str, DataFrame]:
    """The published answer of a query as a DataFrame, sorted by its columns.

    `at` is the event time, by default the last that is answered; `as_of` is a commit or a moment of commit. With
    `aligned`, further queries by name, all of them are read as of one state of the streams and at one event time, and
    the DataFrames come by name. The project is the nearest errata.yaml unless it is named.
    """
    from errata.read.results import results_frames  # noqa: PLC0415

    found = results_frames(spark, query, at=at, as_of=as_of, aligned=aligned or (), project=project)
    return next(iter(found.values())) if aligned is None else found


def changes(
    spark: SparkSession,
    query: str,
    *,
    since: str | int | None = None,
    project: Path | str | None = None,
) -> DataFrame:
    """How the published answer of a query has changed, as a DataFrame in the order of commits.

    A result is told by `key` and `vs`. It lasts until its `ve`, or until the next result of its key begins. `since`
    leaves out what commits up to it have changed. The project is the nearest errata.yaml unless it is named.
    """
    from errata.read.changes import query_changes_frame  # noqa: PLC0415

    return query_changes_frame(spark, query, since=since, project=project)


def why(
    spark: SparkSession,
    query: str,
    key: Mapping[str, object],
    *,
    at: str | int | None = None,
    project: Path | str | None = None,
) -> dict[str, object]:
    """A result's story as plain data: the `values` that it has had, each with its causes, and the rows `behind` it.

    `key` gives values of columns of the key, all or so many that they tell one result. Where a key has had several,
    `at` is an event time at which the one that is meant counts. The project is the nearest errata.yaml unless it is
    named.
    """
    from errata.read.why import explain_result_json  # noqa: PLC0415

    return explain_result_json(spark, query, key, at=at, project=project)


def reduction(function: F) -> F:
    """The decorator of a function that says at which rate a portion of a stream is read: `TABLESAMPLE name(...)`.

    It is called with the portion (`start`, `end`, `rows`, `age`; `start_time` and `end_time`) and the arguments of the
    clause, and gives a number above 0 and at most 1. It stands in a file of the project's folder `reductions`.
    """
    from errata.reduce.functions import mark_reduction  # noqa: PLC0415

    return mark_reduction(function)
