"""What a TABLESAMPLE clause says: the name of a reduction function and its arguments, as values.

A stream that is read with such a clause is a source of its own in the plan (`sampled_source`), whose name is the
stream's with the clause. So the same stream can be read at several rates in one query, and code that reads plans needs
no notion of a sample. `TABLESAMPLE (10 PERCENT)` is another way to write `TABLESAMPLE uniform(0.1)`. What a function
means is decided by `reduce.rates`; what is estimated from a sample, by `reduce.estimates`.
"""

from __future__ import annotations

from dataclasses import dataclass

from errata.language.expr import STRING, Lit, literal_sql
from errata.language.nodes import scans_of
from errata.language.plan import Plan, Source

UNIFORM = "uniform"
CLAUSE = "TABLESAMPLE"
_EXAMPLES = "(10 PERCENT), uniform(0.1) or by_age('1 day', 0.5)"
CLAUSE_ADVICE = f"write {CLAUSE} {_EXAMPLES}"


@dataclass(frozen=True, slots=True)
class ColumnArgument:
    """A column, named as an argument."""

    name: str


SampleArgument = str | int | float | bool | ColumnArgument | None


@dataclass(frozen=True, slots=True)
class SampleClause:
    """A reduction, as it is asked for."""

    function: str
    """The name of the reduction function, in lower case if it is built in."""
    arguments: tuple[SampleArgument, ...]

    @property
    def text(self) -> str:
        """The call as it is written."""
        return f"{self.function}({', '.join(map(_argument_text, self.arguments))})"


def _argument_text(value: SampleArgument) -> str:
    match value:
        case ColumnArgument(name):
            return name
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case float() | int():
            return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
        case str():
            return literal_sql(Lit(value, STRING))


@dataclass(frozen=True)
class SampledSource(Source):
    """A stream that is read at a reduced rate."""

    stream: str = ""
    """The stream's own name."""
    clause: SampleClause = SampleClause(UNIFORM, (1.0,))


def sampled_source(source: Source, clause: SampleClause) -> SampledSource:
    """The stream as the clause reads it."""
    return SampledSource(
        f"{source.name} {CLAUSE} {clause.text}",
        source.kind,
        source.fields,
        source.key,
        source.order,
        source.timed,
        source.deleted,
        stream=source.name,
        clause=clause,
    )


def sampled_sources(plan: Plan) -> dict[str, SampledSource]:
    """The sampled sources that a plan reads, by their names."""
    return {each.source.name: each.source for each in scans_of(plan) if isinstance(each.source, SampledSource)}


RATE_COLUMN, UNIT_COLUMN = "_rate", "_sample"
"""Columns of a sampled scan: the rate at which a row was read, and its sampling hash."""
