"""What it costs to read queries: the papers' own, one with 20 inputs, and a project that declares 10,000."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.measure import Grid, Metric, Outcome, Scale, talk
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata.language.explain.explanation import explain_plan
from errata.language.plan import Source
from errata.language.queries import read_query, stream_source

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ROUNDS = {Scale.SMALL: 20, Scale.PAPER: 100}
DECLARED = 10_000
INPUTS = 20


def measure(scale: Scale, folder: Path) -> Outcome:
    """Read, check, rewrite and annotate; then declare."""
    talk.print("reading the papers' queries")
    papers = {name: _median(read, ROUNDS[scale]) for name, read in _paper_queries().items()}
    slowest = max(papers, key=lambda name: papers[name])
    talk.print(f"reading a query with {INPUTS} inputs")
    wide = _median(_wide_query(), ROUNDS[scale])
    talk.print(f"declaring {DECLARED:,} queries")
    first, again = _declare(folder)
    return Outcome(
        [
            Metric(
                f"read, check, rewrite, annotate: the papers' slowest, {slowest}", papers[slowest] * 1e3, "ms", "< 10"
            ),
            Metric(f"the same of a query with {INPUTS} inputs", wide * 1e3, "ms", "< 100"),
            Metric(f"errata apply, {DECLARED:,} new queries", first, "s", "< 60"),
            Metric("errata apply, nothing changed", again, "s", "< 5"),
        ],
        grids=[
            Grid(
                "queries",
                "Reading, checking, rewriting and annotating the queries of the papers",
                ["ms"],
                {name: [seconds * 1e3] for name, seconds in papers.items()},
            )
        ],
    )


def _median(run: Callable[[], object], rounds: int) -> float:
    run()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _paper_queries() -> dict[str, Callable[[], object]]:
    """The queries of both papers' experiments, as the examples declare them."""
    found: dict[str, Callable[[], object]] = {}
    for name in ("quotes", "network"):
        project = load_project(EXAMPLES / name, {})
        sources = {each: stream_source(stream) for each, stream in project.streams.items()}
        for query, declared in project.texts().items():
            found[f"{name}/{query}"] = _reading(declared.text, sources)
    return found


def _reading(text: str, sources: Mapping[str, Source]) -> Callable[[], object]:
    return lambda: explain_plan(read_query(text, "query.sql", sources))


def _wide_query() -> Callable[[], object]:
    sources = {each.name: each for each in _links()}
    tables = [f"sliding({name}, '{number + 1} minutes') AS {name}" for number, name in enumerate(sources)]
    joins = "\n".join(f"JOIN {table} ON link0.src = link{number + 1}.src" for number, table in enumerate(tables[1:]))
    filters = " AND ".join(f"{name}.bytes > {number}" for number, name in enumerate(sources))
    text = f"SELECT link0.src, count(*) AS pairs\nFROM {tables[0]}\n{joins}\nWHERE {filters}\nGROUP BY link0.src"
    return _reading(text, sources)


def _links() -> list[Source]:
    stream = load_project(EXAMPLES / "network", {}).streams["link1"]
    made = stream_source(stream)
    return [Source(f"link{number}", made.kind, made.fields, made.key, made.order) for number in range(INPUTS)]


def _declare(folder: Path) -> tuple[float, float]:
    """Seconds of applying so many queries, each of its own kind, a third of them over other queries; and again."""
    project = folder / "errata.yaml"
    texts = folder / "queries"
    texts.mkdir()
    declared = [(EXAMPLES / "network" / "errata.yaml").read_text().partition("queries:")[0], "queries:\n"]
    for number in range(DECLARED):
        (texts / f"q{number}.sql").write_text(_text(number))
        declared.append(f"  q{number}: {{sql: queries/q{number}.sql}}\n")
    project.write_text("".join(declared))

    def applied() -> float:
        began = time.perf_counter()
        apply_plan(plan_apply(load_project(project, {})))
        return time.perf_counter() - began

    return applied(), applied()


def _text(number: int) -> str:
    link = f"link{number % 3 + 1}"
    match number % 3:
        case 0:
            where = f"WHERE bytes > {number}"
            return f"SELECT src, count(*) AS n FROM {link} {where} GROUP BY src, window(time, '5 minutes')"
        case 1:
            return (
                f"SELECT a.src, a.bytes FROM sliding({link}, '{number} seconds') AS a "
                "JOIN sliding(link1, '9 minutes') AS b ON a.src = b.src WHERE a.protocol = 'ftp'"
            )
    return f"SELECT src, n + {number} AS more FROM q{number - 2} WHERE n > 1"
