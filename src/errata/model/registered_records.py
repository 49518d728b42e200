"""Registered queries as JSON: what the queries of a statement share, what each has of its own, and conjunctions.

    of a statement: sources, items, DISTINCT, relations without their offsets
    of a query:     its constants, the windows, the offsets of the relations, the numbers of its conjunctions
    a conjunction:  its factors; equal factors are equal text, by which conjunctions are found again

A constant keeps its type: what JSON cannot tell apart, or does not know, is an object with the type's name.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from errata.model.columns import Column, ColumnType
from errata.model.registered import (
    AggregateFunction,
    Bound,
    ColumnFactor,
    Comparison,
    Conjunction,
    Constant,
    ConstantFactor,
    Factor,
    MemberFactor,
    NullFactor,
    OutputItem,
    RegisteredPlan,
    RegisteredSource,
    RegisteredWindow,
    Relation,
)

Record = dict[str, Any]


def record_digest(*parts: object) -> str:
    """A digest of records: equal records have equal ones."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def statement_to_record(plan: RegisteredPlan) -> Record:
    """What the queries of one statement share."""
    return {
        "sources": [[each.stream, each.alias] for each in plan.sources],
        "items": [
            [each.output.name, str(each.output.type), each.source, each.column, each.function] for each in plan.items
        ],
        "distinct": plan.distinct,
        "relations": [
            [each.left_source, each.left, each.comparison.value, each.right_source, each.right]
            for each in plan.relations
        ],
    }


def parameters_to_record(plan: RegisteredPlan) -> Record:
    """What a query has of its own, besides its conjunctions."""
    return {
        "constants": [_constant_to_record(each) for each in plan.parameters],
        "windows": [[_bound_to_record(each.begin), _bound_to_record(each.end), each.rows] for each in plan.windows],
        "offsets": [_constant_to_record(each.offset) for each in plan.relations],
    }


def statement_from_record(text: str, record: Record) -> RegisteredPlan:
    """What the queries of one statement share: a plan that lacks what each has of its own."""
    return RegisteredPlan(
        sources=tuple(RegisteredSource(*each) for each in record["sources"]),
        conjunctions=(),
        relations=tuple(
            Relation(left_source, left, Comparison(comparison), right_source, right)
            for left_source, left, comparison, right_source, right in record["relations"]
        ),
        windows=(),
        items=tuple(_item_from_record(*each) for each in record["items"]),
        distinct=record["distinct"],
        statement=text,
        parameters=(),
    )


def plan_from_record(
    statement: RegisteredPlan, parameters: Record, conjunctions: Sequence[Conjunction]
) -> RegisteredPlan:
    """The plan of a query: of its statement, and of what it has of its own."""
    offsets = map(_constant_from_record, parameters["offsets"])
    return replace(
        statement,
        conjunctions=tuple(conjunctions),
        relations=tuple(
            replace(each, offset=offset) for each, offset in zip(statement.relations, offsets, strict=True)
        ),
        windows=tuple(_window_from_record(*each) for each in parameters["windows"]),
        parameters=tuple(map(_constant_from_record, parameters["constants"])),
    )


def conjunction_to_record(conjunction: Conjunction) -> list[Any]:
    """A conjunction as a list of its factors."""
    return [_factor_to_record(each) for each in conjunction]


def conjunction_from_record(record: Sequence[Any]) -> Conjunction:
    """The conjunction that was recorded."""
    return tuple(_factor_from_record(*each) for each in record)


def _factor_to_record(factor: Factor) -> list[Any]:
    match factor:
        case ConstantFactor(column, comparison, constant):
            return ["constant", column, comparison.value, _constant_to_record(constant)]
        case MemberFactor(column, constants):
            return ["member", column, [_constant_to_record(each) for each in constants]]
        case NullFactor(column, is_null):
            return ["null", column, is_null]
        case ColumnFactor(left, comparison, right, offset):
            return ["column", left, comparison.value, right, _constant_to_record(offset)]


def _factor_from_record(kind: str, name: str, *rest: Any) -> Factor:
    column = sys.intern(name)  # thousands of conjunctions name the same few columns
    if kind == "constant":
        return ConstantFactor(column, Comparison(rest[0]), _constant_from_record(rest[1]))
    if kind == "member":
        return MemberFactor(column, tuple(map(_constant_from_record, rest[0])))
    if kind == "null":
        return NullFactor(column, rest[0])
    return ColumnFactor(column, Comparison(rest[0]), sys.intern(rest[1]), _constant_from_record(rest[2]))


def _constant_to_record(constant: Constant) -> object:
    if isinstance(constant, Decimal):
        return {"decimal": str(constant)}
    if isinstance(constant, float) and not math.isfinite(constant):
        return {"float": str(constant)}
    if constant is None or isinstance(constant, (bool, int, float, str)):
        return constant
    raise TypeError(f"a constant cannot be a {type(constant).__name__}")


def _constant_from_record(record: Any) -> Constant:
    if not isinstance(record, dict):
        return record  # type: ignore[no-any-return]
    return Decimal(record["decimal"]) if "decimal" in record else float(record["float"])


def _bound_to_record(bound: Bound | None) -> list[Any] | None:
    return None if bound is None else [bound.relative, bound.value]


def _window_from_record(begin: list[Any] | None, end: list[Any], rows: int | None) -> RegisteredWindow:
    return _window(None if begin is None else tuple(begin), tuple(end), rows)


@lru_cache(1_024)  # thousands of queries have the same few windows
def _window(begin: tuple[bool, int] | None, end: tuple[bool, int], rows: int | None) -> RegisteredWindow:
    return RegisteredWindow(Bound(*end), None if begin is None else Bound(*begin), rows)


def _item_from_record(name: str, kind: str, source: int, column: str | None, function: str | None) -> OutputItem:
    output = Column(name, ColumnType.parse(kind))
    return OutputItem(output, source, column, None if function is None else AggregateFunction(function))
