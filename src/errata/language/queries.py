"""Queries from their texts: one, or all of a project in an order in which each comes after what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from errata.errors import ErrataError, UsageError
from errata.language.lower import lower
from errata.language.mistakes import Text
from errata.language.parse import parse
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.language.statement import Known
from errata.language.tree import is_timed
from errata.model.stream import Stream

_SHOWN = 10
"""So many mistakes are shown at once."""


@dataclass(frozen=True)
class Declared:
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
    return Source(name, SourceKind.QUERY, plan.fields, plan.key, timed=is_timed(plan), plan=plan)


def read_query(text: str, where: str, sources: Mapping[str, Source], *, early: bool = False) -> Plan:
    """The plan of a query over streams, relations and other queries. `where`: what mistakes call the text."""
    whole = Text(text, where)
    return lower(_tree(whole), whole, Known(sources), early=early)


def names_read(text: str, where: str) -> tuple[str, ...]:
    """The streams, relations and queries that a text reads, as it names them; the first reading first."""
    return _names(_tree(Text(text, where)))


def _tree(text: Text) -> exp.Expression:
    # Every query is an expression, too, which its type does not say.
    return cast("exp.Expression", parse(text))


def _names(tree: exp.Expression) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_read(tree, frozenset())))


def _read(node: exp.Expression, commons: frozenset[str]) -> Iterator[str]:
    clause = node.args.get("with_")
    for common in clause.expressions if clause is not None else ():
        yield from _read(common.this, commons)
        commons |= {common.alias.lower()}
    match node:
        case exp.Table(this=exp.Identifier() as named):
            if named.name.lower() not in commons:
                yield named.name
        case exp.Table(this=exp.Anonymous() as function):
            yield from _arguments(function, commons)
        case exp.Column():
            return
    for child in node.iter_expressions():
        if not isinstance(child, exp.With):
            yield from _read(child, commons)


def _arguments(function: exp.Anonymous, commons: frozenset[str]) -> Iterator[str]:
    """Names among the arguments of a table function, which the parser takes for columns."""
    for each in function.expressions:
        if isinstance(each, exp.Column) and each.name.lower() not in commons:
            yield each.name
        elif isinstance(each, exp.Anonymous):
            yield from _arguments(each, commons)


def read_queries(declared: Sequence[Declared], sources: Mapping[str, Source]) -> dict[str, Plan]:
    """The plans of a project's queries over its streams and relations, each after all that it reads."""
    return _Project(declared, sources).read()


@dataclass
class _Waiting:
    """A query that is being read: what it reads, and what of that has not been looked at yet."""

    declared: Declared
    text: Text
    tree: exp.Expression
    names: list[str]
    inputs: Iterator[str]


class _Project:
    """All queries of a project, read depth first, so that a parsed text is kept only while it waits for others."""

    def __init__(self, declared: Sequence[Declared], sources: Mapping[str, Source]) -> None:
        self.known = Known(sources, [each.name for each in declared])
        self.queries: dict[str, Declared] = {}
        self.plans: dict[str, Plan] = {}
        self.mistakes: list[ErrataError] = []
        self.failed: set[str] = set()
        for each in declared:
            self._declare(each)

    def _declare(self, query: Declared) -> None:
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
            raise _all_of(self.mistakes)
        return self.plans

    def _read(self, wanted: str) -> None:
        """Read a query, and before it, on a stack of our own, all that it reads."""
        path: dict[str, _Waiting] = {}
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

    def _begin(self, name: str, path: dict[str, _Waiting]) -> None:
        if self._is_done(name):
            return
        query = self.queries[name]
        text = Text(query.text, query.where)
        try:
            tree = _tree(text)
        except ErrataError as error:
            self._fail(name, error)
        else:
            names = [each.lower() for each in _names(tree)]
            path[name] = _Waiting(query, text, tree, names, iter(names))

    def _finish(self, waiting: _Waiting) -> None:
        query = waiting.declared
        # What reads a query that is wrong can only be told to be wrong itself when that one is right.
        if any(each in self.failed for each in waiting.names):
            self.failed.add(query.name.lower())
            return
        try:
            plan = lower(waiting.tree, waiting.text, self.known, early=query.early)
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


def _all_of(mistakes: Sequence[ErrataError]) -> UsageError:
    shown = "\n\n".join(str(each) for each in mistakes[:_SHOWN])
    more = len(mistakes) - _SHOWN
    rest = f"\n\nand {more} more" if more > 0 else ""
    return UsageError(f"{len(mistakes)} mistakes in queries:\n\n{shown}{rest}")
