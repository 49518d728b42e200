"""The inputs of FROM: streams, relations and queries by name, windows over them, negations, and SELECTs in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from errata.errors import UsageError, candidates_text
from errata.language.nodes import Negation, Scan, Sliding, SlidingRows
from errata.language.plan import Plan, Source, SourceKind
from errata.language.reading.literals import is_calendar_interval
from errata.language.reading.mistakes import REFUSED_FUNCTIONS, SqlText
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.language.reading.samples import WrittenSample
from errata.language.reading.scope import CommonTable, CommonTables, FromItem, StatementScope, from_item
from errata.language.sampling import CLAUSE, sampled_source
from errata.language.times import OwnTime, row_times
from errata.model.time import parse_duration

NEGATION_PREFIX = "_without"
"""Suffix to the alias of a negation, for the columns on its right."""
_MAX_SPAN = 2**60
_MAX_NUMBER_DIGITS = 100
_TABLE_FUNCTIONS = ("sliding", "sliding_rows", "negation")


def lower_whole_number(text: SqlText, node: exp.Expression, what: str) -> int:
    """A constant whole number above 0."""
    value = node.this if isinstance(node, exp.Literal) and not node.is_string else ""
    if not (value.isascii() and value.isdigit()) or len(value) > _MAX_NUMBER_DIGITS or not 0 < int(value) < _MAX_SPAN:
        raise text.mistake(node, f"{what} is a whole number above 0", how="write the number as it is, such as 1000")
    return int(value)


def lower_span(statement: StatementScope, node: exp.Expression, what: str) -> int:
    """A span of event time: a duration as text, or units of a bigint."""
    if not statement.timed:
        if isinstance(node, exp.Literal) and node.is_string:
            raise statement.text.mistake(
                node,
                f"{what} is a whole number here",
                "event time is a bigint",
                "write it in units of the order column",
            )
        return lower_whole_number(statement.text, node, what)
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise statement.text.mistake(
            node, f"{what} is a duration", "event time is a timestamp", "write it as a text, such as '5 minutes'"
        )
    try:
        span = parse_duration(node.this)
    except UsageError as error:
        why = (
            "it lasts equally long at all times, so months and years are none"
            if is_calendar_interval(node.this)
            else None
        )
        raise statement.text.mistake(node, error.what, why, error.how) from None
    if not 0 < span < _MAX_SPAN:
        raise statement.text.mistake(
            node, f"{what} cannot last for {node.this!r}", "it is longer than nothing, and shorter than all of time"
        )
    return span


def own_time_obstacle(plan: Plan) -> str:
    """Why windows cannot be over a node's rows."""
    if row_times(plan).own is OwnTime.NONE:
        return "its rows say what holds, not what happened: they have no time of their own"
    return (
        "its rows may begin to count later than they happened, or again: after a negation, an outer join or a change"
        " of a relation"
    )


@dataclass(frozen=True)
class FromInputs:
    """Reads the inputs that FROM and JOIN name."""

    statement: StatementScope
    commons: CommonTables

    @property
    def text(self) -> SqlText:
        return self.statement.text

    def part(self, node: exp.Expression) -> FromItem:
        """One input of FROM or JOIN."""
        within: exp.Expression = node.this
        if isinstance(node, exp.Subquery) and isinstance(within, exp.Query):
            refuse_unknown_parts(self.text, node, {"this", "alias"})
            return self._part(node, within, self._alias(node))
        if not isinstance(node, exp.Table):
            raise self._no_part(node)
        if node.args.get("db") is not None:
            raise self.text.mistake(
                node, f"{node.name} has a name before it", how=f"streams have one name: {node.name}"
            )
        refuse_unknown_parts(self.text, node, {"this", "alias"})
        return self._part(node, within, self._alias(node), self._sample_behind_alias(node))

    def _sample_behind_alias(self, node: exp.Table) -> WrittenSample | None:
        """The TABLESAMPLE behind the alias of a stream: it is the stream that is sampled."""
        alias = node.args.get("alias")
        if alias is None or not isinstance(node.this, exp.Identifier):
            return None
        return self.statement.samples.behind(alias.this)

    def _no_part(self, node: exp.Expression) -> Exception:
        if isinstance(node, exp.Subquery):
            return self.text.mistake(
                node, "joins in brackets are not part of the language", None, "write the joins one after the other"
            )
        return unknown_construct(self.text, node)

    def _part(
        self, place: exp.Expression, node: exp.Expression, alias: str | None, sample: WrittenSample | None = None
    ) -> FromItem:
        name = alias or self._own_name(node)
        if name is None:
            what = "(SELECT ...)" if isinstance(node, exp.Query) else f"{node.name}(...)"
            raise self.text.mistake(place, "this part of FROM has no name", how=f"write {what} AS name")
        self.statement.check_alias(place, name)
        unique = self.statement.alias(name)
        plan = self._argument(node, unique) if sample is None else self._named(node, unique, sample)
        return from_item(name, unique, plan)

    def _alias(self, node: exp.Expression) -> str | None:
        alias = node.args.get("alias")
        if alias is None:
            return None
        if alias.args.get("columns"):
            raise self.text.mistake(
                alias, "columns are not named here", how="name them in the SELECT within: expression AS name"
            )
        refuse_unknown_parts(self.text, alias, {"this"})
        self.statement.check_alias_word(alias.this)
        return str(alias.name)

    def _own_name(self, node: exp.Expression) -> str | None:
        """The default alias of an input: the name of the (first) stream, relation or query."""
        if isinstance(node, exp.Anonymous):
            self._check_function(node)
            return self._own_name(node.expressions[0]) if node.expressions else None
        if isinstance(node, exp.Query):
            return None
        name = node.name
        common = self.commons.get(name.lower())
        source = self.statement.known.find(name)
        if common is not None:
            return common.name
        return name if source is None else source.name

    def _argument(self, node: exp.Expression, alias: str) -> Plan:
        """The plan of a name, a table function or a SELECT in brackets, with its columns under the alias."""
        match node:
            case exp.Query():
                return self.statement.query(node, f"{alias}.", self.commons)
            case exp.Anonymous():
                return self._function(node, alias)
            case exp.Identifier():
                return self._named(node, alias)
            case exp.Column(this=exp.Identifier()):
                refuse_unknown_parts(self.text, node, {"this"})
                return self._named(node, alias)
        raise self.text.mistake(
            node, "here stands what is read", how="name a stream or query, or write sliding(...) or (SELECT ...)"
        )

    def _named(self, node: exp.Expression, alias: str, behind: WrittenSample | None = None) -> Plan:
        name = node.this if isinstance(node, exp.Column) else node
        sample = self._one_sample(self.statement.samples.behind(name), behind)
        common = self.commons.get(node.name.lower())
        if common is not None:
            if sample is not None:
                raise self._no_stream(sample, f"{common.name} is a query under WITH")
            return self._common(node, common, alias)
        source = self.statement.known.find(node.name)
        if source is None:
            raise self.statement.unknown_name_error(node, node.name, self.commons)
        if sample is None:
            return self.statement.scan(node, source, alias)
        if source.kind is not SourceKind.STREAM:
            raise self._no_stream(sample, f"{source.name} is a {_kind_word(source)}")
        return self.statement.scan(node, sampled_source(source, sample.clause), alias)

    def _one_sample(self, before: WrittenSample | None, behind: WrittenSample | None) -> WrittenSample | None:
        if before is not None and behind is not None:
            raise self.text.mistake(behind.place, f"{CLAUSE} is there twice", how="keep one of them")
        return before or behind

    def _no_stream(self, sample: WrittenSample, why: str) -> Exception:
        return self.text.mistake(
            sample.place,
            f"{CLAUSE} stands behind the name of a stream",
            f"{why}; samples are of streams, whose rows have a sampling hash",
            f"write out what it reads, with {CLAUSE} behind its stream",
        )

    def _common(self, place: exp.Expression, common: CommonTable, alias: str) -> Plan:
        self.statement.count_input(place)
        self.statement.used.add(id(common.query))
        return self.statement.query(common.query, f"{alias}.", common.seen)

    # table functions

    def _function(self, node: exp.Anonymous, alias: str) -> Plan:
        self._check_function(node)
        match node.name.lower():
            case "sliding":
                of, size = self._arguments(node, "sliding(stream, '5 minutes')")
                plan = self._window(of, alias)
                return Sliding(plan, lower_span(self.statement, size, "a sliding window"))
            case "sliding_rows":
                of, rows = self._arguments(node, "sliding_rows(stream, 1000)")
                plan = self._window(of, alias, for_ever=True)
                return SlidingRows(plan, lower_whole_number(self.text, rows, "a window's number of rows"))
        return self._negation(node, alias)

    def _check_function(self, node: exp.Expression) -> None:
        if node.name.lower() not in _TABLE_FUNCTIONS:
            elsewhere = REFUSED_FUNCTIONS.get(node.name.lower())
            known = (elsewhere and elsewhere[2]) or candidates_text(node.name, _TABLE_FUNCTIONS)
            raise self.text.mistake(node, f"{node.name} is not a table function here", how=known)

    def _arguments(self, node: exp.Anonymous, example: str) -> list[exp.Expression]:
        if len(node.expressions) != 2:
            raise self.text.mistake(node, f"{node.name} takes what is read and a size", how=f"write {example}")
        return list(node.expressions)

    def _window(self, node: exp.Expression, alias: str, *, for_ever: bool = False) -> Plan:
        """The input of a window over rows."""
        plan = self._no_relation(node, alias)
        times = row_times(plan)
        if not times.happened:
            raise self.text.mistake(
                node,
                "a sliding window is over a stream, or a query whose rows happened",
                own_time_obstacle(plan),
                "put the window around a stream below it, or group by window(time, '5 minutes') there",
            )
        if for_ever and not times.for_ever:
            raise self.text.mistake(
                node,
                "a window over rows is over what does not expire",
                "which rows are the last ones would depend on how long each counts",
                "put sliding_rows(...) around the stream itself",
            )
        return plan

    def _no_relation(self, node: exp.Expression, alias: str) -> Plan:
        plan = self._argument(node, alias)
        if is_relation(plan):
            raise self.text.mistake(
                node,
                f"the relation {node.name} can only be joined",
                "its changes are no events",
                f"write FROM a stream or a query JOIN {node.name} ON ...",
            )
        return plan

    def _negation(self, node: exp.Anonymous, alias: str) -> Plan:
        if len(node.expressions) < 3:
            raise self.text.mistake(
                node, "negation takes two inputs and at least one column", how="write negation(a, b, 'column')"
            )
        first, second, *names = node.expressions
        left = self._no_relation(first, alias)
        without = self.statement.alias(f"{alias}{NEGATION_PREFIX}")
        right = self._no_relation(second, without)
        sides = from_item(alias, alias, left), from_item(without, without, right)
        pairs = dict(self._pair(each, *sides) for each in names)
        if len(pairs) < len(names):
            raise self.text.mistake(node, "a column is named twice", how="name each column once")
        return Negation(left, right, tuple(pairs.items()))

    def _pair(self, node: exp.Expression, left: FromItem, right: FromItem) -> tuple[str, str]:
        if not isinstance(node, exp.Literal) or not node.is_string:
            raise self.text.mistake(node, "a column is named by a text here", how="write negation(a, b, 'column')")
        for part, side in ((left, "left"), (right, "right")):
            if node.this.lower() not in part.columns:
                raise self.text.mistake(
                    node,
                    f"unknown column {node.this!r} on the {side}",
                    how=candidates_text(node.this, list(part.columns)),
                )
        mine, theirs = left.columns[node.this.lower()], right.columns[node.this.lower()]
        if mine.type != theirs.type:
            raise self.text.mistake(
                node,
                f"{node.this} is {mine.type} on the left and {theirs.type} on the right",
                "values of one type are compared",
                f"convert one: in place of the right input write a SELECT in brackets, with CAST(... AS {mine.type})",
            )
        return mine.name, theirs.name


def _kind_word(source: Source) -> str:
    return "query" if source.kind is SourceKind.QUERY else "relation"


def is_relation(plan: Plan) -> bool:
    return isinstance(plan, Scan) and plan.source.kind.is_relation
