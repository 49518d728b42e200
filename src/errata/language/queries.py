"""Queries read from their texts: one, or all of a project, each after the queries that it reads.

A project's queries are read depth first. Mistakes of several queries are collected, up to a limit, and reported
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from errata.errors import ErrataError, UsageError
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.language.plan_text import has_timestamps
from errata.language.reading.mistakes import TOO_DEEP, LanguageError, SqlText
from errata.language.reading.parser import parse_tokens, tokenize
from errata.language.reading.samples import SampleClauses, refuse_samples, split_samples
from errata.language.reading.scope import SourceCatalog
from errata.language.reading.select import lower_statement
from errata.model.columns import ColumnType, TypeKind
from errata.model.stream import Stream

_FROM_OR_JOIN = re.compile(r"\b(?:from|join)\s+([a-z]\w*)", re.IGNORECASE | re.ASCII)
_MAX_MISTAKES = 10
"""Mistakes that one error shows; further ones are counted."""


@dataclass(frozen=True)
class QueryText:
    """A query as it is declared: its name, its text, and where the text stands."""

    name: str
    text: str
    where: str
    early: bool = False
    """Whether windows are published from their first row on."""


def stream_source(stream: Stream) -> Source:
    """A stream or a relation as queries read it."""
    fields = tuple(Field(each.name, each.type) for each in stream.columns)
    if stream.relation is not None:
        kind, key = SourceKind(stream.relation.value), stream.relation_key
        return Source(stream.name, kind, fields, key, stream.order, stream.timed, stream.deleted)
    return Source(stream.name, SourceKind.STREAM, fields, stream.key, stream.order, stream.timed)


def query_source(name: str, plan: Plan) -> Source:
    """A query as others read it."""
    return Source(name, SourceKind.QUERY, plan.fields, plan.key, timed=has_timestamps(plan), plan=plan)


def read_query(
    text: str, where: str, sources: Mapping[str, Source], *, early: bool = False, others: Sequence[str] = ()
) -> Plan:
    """The plan of a query over streams, relations and other queries. `where`: what mistakes call the text; `others`:
    names that are none of the sources' and may be meant when one is not found."""
    whole = SqlText(text, where)
    known = SourceCatalog(sources, others)
    return _lower_tree(_checked_tree(whole, known), whole, known, early=early)


def read_one_time_query(text: str, where: str, sources: Mapping[str, Source], others: Sequence[str] = ()) -> Plan:
    """The plan of a query that is answered once, in which streams may be sampled."""
    whole = SqlText(text, where)
    known = SourceCatalog(sources, others)
    tree, samples = _tree_and_samples(whole, known)
    try:
        return lower_statement(tree, whole, known, samples=samples)
    except RecursionError:
        raise whole.mistake(0, *TOO_DEEP) from None


def read_names(text: str, where: str) -> tuple[str, ...]:
    """The streams, relations and queries that a text reads, as it names them; the first reading first."""
    whole = SqlText(text, where)
    return _names_in_tree(_tree_and_samples(whole)[0], whole)


def naming_advice(name: str) -> str | None:
    """How a query must write a name; None where it is written as it stands."""
    for written, how in (
        (name, None),
        (f"`{name}`", f"write it in backticks: `{name}`"),
        (f"`{name}` AS x", f"write it in backticks, and another name behind it: `{name}` AS {name}_2"),
    ):
        if _names_in_text(" ".join(("SELECT 1 AS a FROM", written)), name):
            return how
    return "declare it under another name"


def _names_in_text(sql: str, name: str) -> bool:
    text = SqlText(sql, name)
    columns = (Field("time", ColumnType(TypeKind.TIMESTAMP)),)
    try:
        lower_statement(
            _checked_tree(text),
            text,
            SourceCatalog({name: Source(name, SourceKind.STREAM, columns, ("time",), "time")}),
        )
    except ErrataError:
        return False
    return True


def _checked_tree(text: SqlText, known: SourceCatalog | None = None) -> exp.Expression:
    return _parsed_tree(text, refuse_samples(text, tokenize(text), "queries whose answers are kept"), known)


def _tree_and_samples(text: SqlText, known: SourceCatalog | None = None) -> tuple[exp.Expression, SampleClauses]:
    tokens, samples = split_samples(text, tokenize(text))
    return _parsed_tree(text, tokens, known), samples


def _parsed_tree(text: SqlText, tokens: Sequence[Token], known: SourceCatalog | None) -> exp.Expression:
    try:
        # Every query is an expression, too, which its type does not say.
        return cast("exp.Expression", parse_tokens(text, tokens))
    except LanguageError as error:
        raise (_naming_mistake(text, known) if known is not None else None) or error from None


def _naming_mistake(text: SqlText, known: SourceCatalog) -> LanguageError | None:
    """The error for a text that names what is there by a word that means something else."""
    for found in _FROM_OR_JOIN.finditer(text.sql):
        name = found[1]
        how = naming_advice(name) if known.find(name) is not None else None
        if how is not None:
            return text.mistake(found.span(1), f"{name} is a word of SQL here, and no name", how=how)
    return None


def _lower_tree(tree: exp.Expression, text: SqlText, known: SourceCatalog, *, early: bool) -> Plan:
    try:
        return lower_statement(tree, text, known, early=early)
    except RecursionError:
        raise text.mistake(0, *TOO_DEEP) from None


def _names_in_tree(tree: exp.Expression, text: SqlText) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(_names_below(tree, frozenset())))
    except RecursionError:
        raise text.mistake(0, *TOO_DEEP) from None


def _names_below(node: exp.Expression, commons: frozenset[str]) -> Iterator[str]:
    clause = node.args.get("with_")
    for common in clause.expressions if clause is not None else ():
        yield from _names_below(common.this, commons)
        commons |= {common.alias.lower()}
    match node:
        case exp.Table(this=exp.Identifier() as named):
            if named.name.lower() not in commons:
                yield named.name
        case exp.Table(this=exp.Anonymous() as function):
            yield from _argument_names(function, commons)
        case exp.Column():
            return
    for child in node.iter_expressions():
        if not isinstance(child, exp.With):
            yield from _names_below(child, commons)


def _argument_names(function: exp.Anonymous, commons: frozenset[str]) -> Iterator[str]:
    """Names among the arguments of a table function, which the parser takes for columns."""
    for each in function.expressions:
        if isinstance(each, exp.Column) and each.name.lower() not in commons:
            yield each.name
        elif isinstance(each, exp.Anonymous):
            yield from _argument_names(each, commons)


def read_queries(
    declared: Sequence[QueryText], sources: Mapping[str, Source], others: Sequence[str] = ()
) -> dict[str, Plan]:
    """The plans of a project's queries over its streams and relations, each after all that it reads. `others`: names
    of queries that are not among them, and may be meant when one is not found."""
    return _QueryReader(declared, sources, others).read()


@dataclass
class _PendingQuery:
    """A query being read: the names that it reads, and those not looked at yet."""

    declared: QueryText
    text: SqlText
    tree: exp.Expression
    names: list[str]
    inputs: Iterator[str]


class _QueryReader:
    """Reads all queries of a project depth first; a parsed text is kept only while the query waits for others."""

    def __init__(self, declared: Sequence[QueryText], sources: Mapping[str, Source], others: Sequence[str]) -> None:
        self.known = SourceCatalog(sources, [*(each.name for each in declared), *others])
        self.queries: dict[str, QueryText] = {}
        self.plans: dict[str, Plan] = {}
        self.mistakes: list[ErrataError] = []
        self.failed: set[str] = set()
        for each in declared:
            self._declare(each)

    def _declare(self, query: QueryText) -> None:
        name = query.name.lower()
        if self.known.find(query.name) is not None or name in self.queries:
            other = "a query" if name in self.queries else "a stream or relation"
            why = "upper and lower case are the same"
            self.mistakes.append(UsageError(f"{query.name} is the name of {other} already", where=query.where, why=why))
        else:
            self.queries[name] = query

    def read(self) -> dict[str, Plan]:
        for name in self.queries:
            self._read(name)
        if len(self.mistakes) == 1:
            raise self.mistakes[0]
        if self.mistakes:
            raise _joined_mistakes(self.mistakes)
        return self.plans

    def _read(self, wanted: str) -> None:
        """Read a query, and before it, on a stack of our own, all that it reads."""
        path: dict[str, _PendingQuery] = {}
        self._begin(wanted, path)
        while path:
            name, waiting = next(reversed(path.items()))
            below = next((each for each in waiting.inputs if each in self.queries and not self._is_done(each)), None)
            if below is None:
                del path[name]
                self._finish(waiting)
            elif below in path:
                self._circle([*path][[*path].index(below) :])
                self.failed.update(path)
                path.clear()
            else:
                self._begin(below, path)

    def _is_done(self, name: str) -> bool:
        return name in self.failed or self.queries[name].name in self.plans

    def _begin(self, name: str, path: dict[str, _PendingQuery]) -> None:
        if self._is_done(name):
            return
        query = self.queries[name]
        text = SqlText(query.text, query.where)
        try:
            tree = _checked_tree(text, self.known)
            names = [each.lower() for each in _names_in_tree(tree, text)]
        except ErrataError as error:
            self._fail(name, error)
        else:
            path[name] = _PendingQuery(query, text, tree, names, iter(names))

    def _finish(self, waiting: _PendingQuery) -> None:
        query = waiting.declared
        # Queries that read a wrong query are checked once that one is right.
        if any(each in self.failed for each in waiting.names):
            self.failed.add(query.name.lower())
            return
        try:
            self.known.reading = query.name
            plan = _lower_tree(waiting.tree, waiting.text, self.known, early=query.early)
        except ErrataError as error:
            self._fail(query.name.lower(), error)
        else:
            self.plans[query.name] = plan
            self.known.add(query_source(query.name, plan))

    def _fail(self, name: str, error: ErrataError) -> None:
        self.failed.add(name)
        self.mistakes.append(error)

    def _circle(self, names: Sequence[str]) -> None:
        queries = [self.queries[name] for name in names]
        shown = " reads ".join([*(each.name for each in queries), queries[0].name])
        self.mistakes.append(
            UsageError(
                f"queries read one another in a circle: {shown}",
                where=queries[0].where,
                why="an answer cannot be worked out from itself",
                how="let one of them read streams, or a query outside the circle",
            )
        )


def _joined_mistakes(mistakes: Sequence[ErrataError]) -> UsageError:
    shown = "\n\n".join(str(each) for each in mistakes[:_MAX_MISTAKES])
    more = len(mistakes) - _MAX_MISTAKES
    rest = f"\n\nand {more} more" if more > 0 else ""
    return UsageError(f"{len(mistakes)} mistakes in queries:\n\n{shown}{rest}")
