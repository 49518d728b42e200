"""What Spark needs to plan the queries of the mixes: step by step, as frames are made, and as one text of SQL.

Each step on a frame asks the JVM and is checked there at once. The same steps written into one text of nested SELECTs
are checked together; the frames below have to be given names for it. Nothing is read: the frames are empty. What it
costs to optimise and run the plan over them, as every plan is, stands beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from bench.evaluate_day import Stretch, as_texts, declared_project
from bench.evaluate_fixed import fixed_project
from bench.evaluate_fixed_queries import QUERIES
from bench.evaluate_queries import MIX
from bench.measure import Grid, Metric, Outcome, interleaved, talk
from errata.declare.project import Project
from errata.declare.query_plans import read_plans
from errata.engine.frames import spark_type
from errata.engine.plans.compile import compile_plan
from errata.engine.session import open_session
from errata.language.plan import Plan, Source
from errata.language.queries import query_source, stream_source
from errata.language.rewrite import rewrite_plan

ROUNDS = 5
SINCE = 0
"""A plan that goes on from somewhere, as most do."""
_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "left_semi": "LEFT SEMI JOIN", "left_anti": "LEFT ANTI JOIN"}


def planning_figures(folder: Path, rounds: int = ROUNDS) -> Outcome:
    """Both mixes: all of their queries are planned in each round, either way."""
    session = open_session(None, None, {}, "bench")
    stretch = Stretch(0, 24_000, 6_000)
    projects = {
        "mix": declared_project(folder / "mix", stretch, as_texts(MIX)),
        "fixed": fixed_project(folder / "fixed", QUERIES),
    }
    metrics, lines = [], {}
    for name, project in projects.items():
        talk.print(f"planning the queries of {name} …")
        plans, frames = planned(session, project)
        times = interleaved(rounds, **_ways(session, plans, frames))
        metrics.append(Metric(f"planning {name}: one text", times.ratio("text", "steps"), "times as long as by steps"))
        metrics.append(Metric(f"planning {name}: by steps", times.ratio("steps", "run"), "of a run over nothing"))
        lines[name] = [1_000 * times.median(way) / len(plans) for way in ("steps", "text", "run")]
    columns = ["by steps ms", "one text ms", "with a run over nothing ms"]
    return Outcome(metrics, grids=[Grid("planning", "Planning a query on Spark", columns, lines)])


def _ways(
    session: SparkSession, plans: Sequence[Plan], frames: Mapping[str, DataFrame]
) -> dict[str, Callable[[int], object]]:
    return {
        "steps": lambda _: [compile_plan(plan, frames, since=SINCE).schema for plan in plans],
        "text": lambda _: [one_text(session, plan, frames).schema for plan in plans],
        "run": lambda _: [compile_plan(plan, frames, since=SINCE).toArrow() for plan in plans],
    }


def planned(session: SparkSession, project: Project) -> tuple[list[Plan], dict[str, DataFrame]]:
    """The plans of a project's queries, and empty frames of all that they read."""
    texts = project.texts()
    plans = read_plans(project.streams, texts, list(texts))
    sources = [stream_source(stream) for stream in project.streams.values()]
    sources += [query_source(name, plan) for name, plan in plans.items()]
    frames = {source.name: session.createDataFrame([], _ddl(source)) for source in sources}
    return [rewrite_plan(plan).plan for plan in plans.values()], frames


def _ddl(source: Source) -> str:
    columns = [f"`{each.name}` {spark_type(each.type).simpleString()}" for each in source.fields]
    return ", ".join([*columns, *(["_vs bigint", "_ve bigint"] if source.plan is not None else [])])


def one_text(session: SparkSession, plan: Plan, frames: Mapping[str, DataFrame]) -> DataFrame:
    with _as_text():
        texts = {name: cast("DataFrame", Text(session, f"bench_{name}")) for name in frames}
        made = cast("Text", compile_plan(plan, texts, since=SINCE))
    found_in = [name for name in frames if re.search(rf"\bbench_{name}\b", made.text)]
    for name in found_in:
        frames[name].createOrReplaceTempView(f"bench_{name}")
    found = session.sql(made.text)
    for name in found_in:
        session.catalog.dropTempView(f"bench_{name}")
    return found


@contextmanager
def _as_text() -> Iterator[None]:
    """Steps that take columns take their text."""
    with patch("errata.engine.frames.sql_column", lambda _, text: text):
        yield


@dataclass(frozen=True, slots=True)
class Text:
    """In the place of a frame: what is done to it is written down."""

    sparkSession: SparkSession  # noqa: N815 - as that of a frame is called
    text: str

    def _select(self, columns: Sequence[str], rest: str = "") -> Text:
        return Text(self.sparkSession, f"SELECT {', '.join(columns)} FROM {self._below}{rest}")

    @property
    def _below(self) -> str:
        return f"({self.text})" if self.text.startswith("SELECT") else self.text

    def selectExpr(self, *columns: str) -> Text:  # noqa: N802 - as those of a frame are called
        return self._select(columns)

    select = selectExpr

    def filter(self, condition: str) -> Text:
        return self._select(["*"], f" WHERE {condition}")

    def drop(self, *columns: str) -> Text:
        return self._select([f"* EXCEPT ({', '.join(columns)})"])

    def distinct(self) -> Text:
        return self._select(["DISTINCT *"])

    def withColumns(self, columns: Mapping[str, str]) -> Text:  # noqa: N802 - as above
        there = [name for name in columns if name in ("_vs", "_ve")]
        kept = f"* EXCEPT ({', '.join(there)})" if there else "*"
        return self._select([kept, *(f"{text} AS {name}" for name, text in columns.items())])

    def groupBy(self, *by: str) -> Any:  # noqa: N802 - as above
        return _Groups(self, by)

    def repartition(self, *by: str) -> Text:
        return self._select([f"/*+ REPARTITION({', '.join(by)}) */ *"])

    def join(self, other: Text, condition: str, how: str) -> Text:
        return self._select(["*"], f" {_JOINS[how]} {other._below} ON {condition}")

    def unionAll(self, other: Text) -> Text:  # noqa: N802 - as above
        return self._select(["*"], f" UNION ALL SELECT * FROM {other._below}")


@dataclass(frozen=True, slots=True)
class _Groups:
    rows: Text
    by: tuple[str, ...]

    def agg(self, *aggregates: str) -> Text:
        grouped = f" GROUP BY {', '.join(self.by)}" if self.by else ""
        return self.rows._select(list(itertools.chain(self.by, aggregates)), grouped)  # noqa: SLF001 - of one module
