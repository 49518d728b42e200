"""The list of SELECT: columns, `*`, or aggregates of all rows, and the names that they have in the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from errata.errors import UsageError
from errata.language.reading.expressions import AGGREGATE_NAMES, aggregate_type, is_aggregate
from errata.language.reading.mistakes import SqlText
from errata.language.reading.parser import refuse_unknown_parts
from errata.language.registered.scope import ColumnPlace, SourceScope
from errata.model.columns import Column, check_name
from errata.model.registered import AggregateFunction, OutputItem

MAX_COLUMNS = 1_000
_DECLARE = "declare the query under queries:"


@dataclass(frozen=True, slots=True)
class _NamedItem:
    """An item, its place in the text, and the name that it takes if its own is there twice."""

    item: OutputItem
    place: exp.Expression
    longer_name: str | None = None


def read_items(text: SqlText, scope: SourceScope, nodes: Sequence[exp.Expression]) -> tuple[OutputItem, ...]:
    """The items of a SELECT."""
    reading = _ItemReader(text, scope)
    named = [each for node in nodes for each in reading.read(node)]
    if len(named) > MAX_COLUMNS:
        what = f"the answer has {len(named):,} columns"
        raise text.mistake(nodes[0], what, f"{MAX_COLUMNS:,} are the most", "name those that are needed")
    _check_aggregates(text, named)
    return _with_different_names(text, named)


def _check_aggregates(text: SqlText, named: Sequence[_NamedItem]) -> None:
    plain = next((each for each in named if each.item.function is None), None)
    if plain is not None and any(each.item.function is not None for each in named):
        raise text.mistake(
            plain.place,
            "a column stands beside an aggregate",
            "registered queries have no groups: an aggregate is over all rows of the answer",
            f"leave one of the two out; for groups, {_DECLARE}",
        )


def _with_different_names(text: SqlText, named: Sequence[_NamedItem]) -> tuple[OutputItem, ...]:
    """The items; columns of `*` whose names are there twice get the alias of their source before them."""
    counts = Counter(each.item.output.name.lower() for each in named)
    found: dict[str, OutputItem] = {}
    for each in named:
        item, name = each.item, each.item.output.name
        if counts[name.lower()] > 1 and each.longer_name is not None:
            name = each.longer_name
            _check_name(text, each.place, name)
            item = replace(item, output=Column(name, item.output.type))
        if name.lower() in found:
            raise text.mistake(
                each.place,
                f"the output name {name} is there twice",
                "columns are told apart by their names",
                f"leave one out, or give it another name: column AS {name}_2",
            )
        found[name.lower()] = item
    return tuple(found.values())


def _check_name(text: SqlText, place: exp.Expression, name: str) -> None:
    try:
        check_name("column", name)
    except UsageError as error:
        raise text.mistake(place, error.what, error.why, error.how) from None


class _ItemReader:
    def __init__(self, text: SqlText, scope: SourceScope) -> None:
        self.text = text
        self.scope = scope

    def read(self, node: exp.Expression) -> list[_NamedItem]:
        """The items that one entry of SELECT stands for."""
        if node.is_star:
            return self._star(node)
        if not isinstance(node, exp.Alias):
            return [_NamedItem(self._item(node, None), node)]
        refuse_unknown_parts(self.text, node, {"this", "alias"})
        alias = node.args["alias"]
        if not isinstance(alias, exp.Identifier):
            raise self.text.mistake(alias, "this is not a name", how="write AS and a name")
        _check_name(self.text, alias, alias.name)
        return [_NamedItem(self._item(node.this, alias.name), alias)]

    def _star(self, node: exp.Expression) -> list[_NamedItem]:
        star = node.this if isinstance(node, exp.Column) else node
        refuse_unknown_parts(self.text, star, ())
        sources = range(len(self.scope.sources))
        if isinstance(node, exp.Column):
            refuse_unknown_parts(self.text, node, {"this", "table"})
            at = self.scope.source(node, node.table)
            sources = range(at, at + 1)
        return [
            _NamedItem(OutputItem(column, at, column.name), node, f"{self.scope.sources[at].alias}_{column.name}")
            for at in sources
            for column in self.scope.sources[at].stream.columns
        ]

    def _item(self, node: exp.Expression, name: str | None) -> OutputItem:
        while isinstance(node, exp.Paren):
            refuse_unknown_parts(self.text, node, {"this"})
            node = node.this
        if isinstance(node, exp.Column):
            found = self.scope.column(node)
            output = found.column if name is None else Column(name, found.column.type)
            return OutputItem(output, found.source, found.column.name)
        if is_aggregate(node):
            return self._aggregate(node, name)
        if isinstance(node, exp.Window | exp.Filter):
            refuse_unknown_parts(self.text, exp.Select(expressions=[node]), ())
        raise self.text.mistake(
            node,
            "an expression is selected here",
            "registered queries hand out columns as they are, and count, sum, avg, min and max of columns",
            f"select the columns, and compute where the answer is read; or {_DECLARE}",
        )

    def _aggregate(self, node: exp.Expression, name: str | None) -> OutputItem:
        refuse_unknown_parts(self.text, node, {"this", "expressions"})
        written, function = node.name.lower(), AGGREGATE_NAMES[node.name.lower()]
        if function not in list(AggregateFunction):
            raise self.text.mistake(
                node,
                f"{written}() is not part of registered queries",
                "any window is answered from parts, and only count, sum, avg, min and max are made of parts",
                _DECLARE,
            )
        argument = self._argument(node, written)
        kind = aggregate_type(function, None if argument is None else argument.column.type)
        if argument is None:
            if kind is None or function != AggregateFunction.COUNT:
                how = f"write count(*), or {written}(column)"
                raise self.text.mistake(node, f"{written}(*) means nothing", how=how)
            return OutputItem(Column(name or function, kind), function=AggregateFunction.COUNT)
        if kind is None:
            raise self.text.mistake(
                node, f"{written} takes a number, and {argument.column.name} is a {argument.column.type}"
            )
        output = name or f"{function}_{argument.column.name}"
        if name is None:
            _check_name(self.text, node, output)
        return OutputItem(Column(output, kind), argument.source, argument.column.name, AggregateFunction(function))

    def _argument(self, node: exp.Expression, written: str) -> ColumnPlace | None:
        """The column that is aggregated; None for `*`."""
        if len(node.expressions) != 1:
            raise self.text.mistake(node, f"{written}() takes 1 argument", how=f"write {written}(column)")
        inner = node.expressions[0]
        if isinstance(inner, exp.Star):
            refuse_unknown_parts(self.text, inner, ())
            return None
        if isinstance(inner, exp.Distinct):
            raise self.text.mistake(
                node,
                f"{written}(DISTINCT ...) is not part of registered queries",
                "the windows of an aggregate are put together from parts, and different values are not",
                f"write SELECT DISTINCT, and count where the answer is read; or {_DECLARE}",
            )
        while isinstance(inner, exp.Paren):
            refuse_unknown_parts(self.text, inner, {"this"})
            inner = inner.this
        if not isinstance(inner, exp.Column) or inner.is_star:
            raise self.text.mistake(
                inner, "an aggregate is of a column here", "other values are not kept with the rows", _DECLARE
            )
        return self.scope.column(inner)
