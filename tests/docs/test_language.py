"""The examples of docs/language.md: each is read as a query, and its answers are those of DuckDB and of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.declare.project import load_project
from errata.errors import ErrataError
from errata.language.functions import ALIASES, FUNCTIONS, WITH_COMMON_TYPE
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, Source
from errata.language.plan_text import plan_tree
from errata.language.queries import query_source, read_query, stream_source
from errata.model.columns import ColumnType, TypeKind
from errata.model.time import to_datetime, to_micros
from fixtures.duck import Row, Rows, answer_at
from fixtures.evaluation import Asked, evaluate, live

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
DAY = datetime(2026, 11, 18)  # noqa: DTZ001
WHERE = "query.sql"

BLOCK = re.compile(r"^(?:[^\n]*The query `(\w+)`:\n\n)?```sql\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ANSWER = re.compile(
    r"^(With `emit: early`, at|At) ([\d:]+) \((\w+); key (.+)\)(?: there is nothing\.|:\n\n((?:\|.*\n)+))", re.MULTILINE
)
REFUSAL = re.compile(rf"\A\n```text\n({re.escape(WHERE)}:.*?)```", re.DOTALL)
PLAN = re.compile(rf"^```text\n(?!{re.escape(WHERE)})(.*?)```", re.MULTILINE | re.DOTALL)


@dataclass
class Answer:
    """What the page says that a query answers."""

    early: bool
    at: str
    pattern: str
    key: str
    table: str


@dataclass
class Example:
    """A query of the page, and what the page says of it."""

    text: str
    name: str | None
    answers: list[Answer] = field(default_factory=list)
    refusal: str | None = None
    plan: str | None = None

    @property
    def title(self) -> str:
        return " ".join(self.text.split())[:60]


def examples(page: str = PAGE) -> list[Example]:
    blocks = list(BLOCK.finditer(page))
    ends = [*(block.start() for block in blocks[1:]), len(page)]
    return [_example(block, page[block.end() : end]) for block, end in zip(blocks, ends, strict=True)]


def _example(block: re.Match[str], rest: str) -> Example:
    answers = [Answer(early.startswith("With"), *others) for early, *others in ANSWER.findall(rest)]
    refusal, plan = REFUSAL.match(rest), PLAN.search(rest)
    return Example(block[2], block[1], answers, refusal and refusal[1], plan and plan[1])


EXAMPLES = examples()
ANSWERED = [(example, answer) for example in EXAMPLES for answer in example.answers]


def moment(text: str) -> int:
    """An instant of the page's day."""
    hours, minutes, *seconds = map(int, text.split(":"))
    return to_micros(DAY + timedelta(hours=hours, minutes=minutes, seconds=sum(seconds)))


def cell(value: object, kind: ColumnType) -> str:
    """A value as the page's tables show it."""
    if value is None:
        return "NULL"
    if kind.kind is TypeKind.TIMESTAMP:
        assert isinstance(value, int)
        return f"{to_datetime(value):%H:%M:%S}"
    return str(value)


def value(text: str, kind: ColumnType) -> object:
    """A value from a table of the page."""
    readers = {
        TypeKind.TIMESTAMP: moment,
        TypeKind.DOUBLE: float,
        TypeKind.BIGINT: int,
        TypeKind.BOOLEAN: lambda word: word == "true",
    }
    return None if text == "NULL" else readers.get(kind.kind, str)(text)


def cells(line: str) -> list[str]:
    return [each.strip() for each in line.strip().strip("|").split("|")]


def table(plan: Plan, rows: Rows) -> list[list[str]]:
    """What a table of the page has: the columns, and the rows in some order."""
    shown = [place for place, each in enumerate(plan.fields) if not each.hidden]
    fields = [plan.fields[place] for place in shown]
    found = [[cell(row[place], plan.fields[place].type) for place in shown] for row in rows]
    return [[each.name for each in fields], *sorted(found)]


def told(answer: Answer, plan: Plan) -> list[list[str]]:
    if not answer.table:
        return table(plan, [])
    head, _, *rows = answer.table.strip().splitlines()
    return [cells(head), *sorted(map(cells, rows))]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    """The streams and relations of the page, and its queries that others read."""
    folder = tmp_path_factory.mktemp("language")
    (folder / "errata.yaml").write_text(re.findall(r"```yaml\n(project:.*?)```", PAGE, re.DOTALL)[0])
    found = {name: stream_source(stream) for name, stream in load_project(folder).streams.items()}
    for example in EXAMPLES:
        if example.name is not None:
            found[example.name] = query_source(example.name, read_query(example.text, WHERE, found))
    return found


@cache
def data() -> dict[str, list[str]]:
    """The lines of the tables of what the examples read, by name."""
    return {lines[0].split(":")[0].strip("| "): lines for lines in _tables()}


def _tables() -> Iterator[list[str]]:
    section = PAGE.split("## What the examples read")[1].split("\n## ")[0]
    for each in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        yield each.splitlines()


@pytest.fixture(scope="module")
def rows(sources: dict[str, Source]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for name, (head, _, *lines) in data().items():
        names = cells(head.replace(f"{name}: ", "", 1))
        kinds = {each.name: each.type for each in sources[name].fields}
        assert names == list(kinds)
        texts = [dict(zip(names, cells(line), strict=True)) for line in lines]
        found[name] = [{column: value(text, kinds[column]) for column, text in row.items()} for row in texts]
    return found


def read(example: Example, sources: dict[str, Source], *, early: bool = False) -> Plan:
    return read_query(example.text, WHERE, sources, early=early)


def test_every_example_has_an_answer_or_a_refusal() -> None:
    assert len(EXAMPLES) > 30
    assert [each.title for each in EXAMPLES if not each.answers and each.refusal is None] == []
    assert len(ANSWERED) == PAGE.count("; key ")
    assert sum(each.refusal is not None for each in EXAMPLES) == PAGE.count(f"```text\n{WHERE}:")


@pytest.mark.parametrize(("example", "answer"), ANSWERED, ids=[f"{each.title} @{at.at}" for each, at in ANSWERED])
def test_an_example_answers_what_the_page_says(
    example: Example, answer: Answer, sources: dict[str, Source], rows: dict[str, list[Row]]
) -> None:
    plan = read(example, sources, early=answer.early)
    assert table(plan, answer_at(plan, rows, moment(answer.at))) == told(answer, plan)
    assert (answer.pattern, answer.key) == (update_pattern(plan).shown, ", ".join(plan.key) or "none")


def test_spark_answers_the_same(spark: SparkSession, sources: dict[str, Source], rows: dict[str, list[Row]]) -> None:
    asked = [(answer, read(example, sources, early=answer.early)) for example, answer in ANSWERED]
    plans = list(dict.fromkeys(plan for _, plan in asked))
    found = dict(zip(plans, evaluate(spark, [Asked(plan, [rows]) for plan in plans]), strict=True))
    for answer, plan in asked:
        assert table(plan, live(found[plan].get(0, []), moment(answer.at))) == told(answer, plan), plan_tree(plan)


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.refusal], ids=lambda each: each.title)
def test_what_is_refused_is_refused_in_the_words_of_the_page(example: Example, sources: dict[str, Source]) -> None:
    with pytest.raises(ErrataError) as refused:
        read(example, sources)
    assert f"{refused.value}\n" == example.refusal


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.plan], ids=lambda each: each.title)
def test_a_plan_is_the_one_on_the_page(example: Example, sources: dict[str, Source]) -> None:
    assert plan_tree(read(example, sources)) == example.plan


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


CONSTANTS = [
    (codes(kind)[0], constant)
    for kind, constants, _ in map(cells, re.findall(r"^\| `.*` \| `.*$", PAGE.split("## Functions")[0], re.MULTILINE))
    for constant in codes(constants)
]


@pytest.mark.parametrize(("kind", "constant"), CONSTANTS, ids=[constant for _, constant in CONSTANTS])
def test_a_constant_is_of_the_type_that_the_page_says(kind: str, constant: str, sources: dict[str, Source]) -> None:
    plan = read_query(f"SELECT {constant} AS c FROM quotes", WHERE, sources)
    assert str(plan.types["c"]).partition("(")[0] == kind.partition("(")[0]


def test_every_type_has_constants() -> None:
    assert {kind.partition("(")[0] for kind, _ in CONSTANTS} == {kind.value for kind in TypeKind}


def test_the_functions_are_those_of_the_page() -> None:
    section = PAGE.split("\n## Functions\n")[1].split("\n## ")[0]
    functions, other_names = section.split("Other names")
    words = re.findall(r"`(\w+)`", functions)
    assert len(words) == len(set(words))
    operators = {"div"}
    written = {*FUNCTIONS, *WITH_COMMON_TYPE, "to_date", "to_timestamp"}
    assert {each for each in words if each.islower()} == written | operators
    assert set(re.findall(r"`(\w+)` for", other_names)) == {each for each in ALIASES if each.isidentifier()}
