"""The names that a registered text can use: its sources by their aliases, and the columns of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from errata.errors import UsageError, candidates_text
from errata.language.reading.mistakes import SqlText
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.language.reading.scope import nearest_names
from errata.model.columns import Column, check_name
from errata.model.stream import Stream

MAX_SOURCES = 16
"""Sources of a registered query, at most: an invocation joins them one after the other."""


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """A column of a source, by the place of the source in FROM."""

    source: int
    column: Column


@dataclass(frozen=True, slots=True)
class ScopeSource:
    """A stream in FROM, and its columns by their names in lower case."""

    alias: str
    stream: Stream
    columns: Mapping[str, Column]


class SourceScope:
    """The sources of one text, in the order of FROM."""

    def __init__(self, text: SqlText, sources: Sequence[ScopeSource]) -> None:
        self.text = text
        self.sources = tuple(sources)
        self._places = {each.alias.lower(): at for at, each in enumerate(sources)}

    @property
    def timed(self) -> bool:
        """Whether the sources are ordered by a timestamp; all are, or none is."""
        return self.sources[0].stream.timed

    def source(self, place: exp.Expression | tuple[int, int], alias: str) -> int:
        """The place in FROM of the source with this alias."""
        found = self._places.get(alias.lower())
        if found is None:
            known = [each.alias for each in self.sources]
            raise self.text.mistake(place, f"{alias} is not in FROM", how=candidates_text(alias, known))
        return found

    def column(self, node: exp.Column) -> ColumnPlace:
        """The column that a name means."""
        refuse_unknown_parts(self.text, node, {"this", "table"})
        if not isinstance(node.this, exp.Identifier):
            raise unknown_construct(self.text, node.this)
        if node.table:
            at = self.source(node, node.table)
            return ColumnPlace(at, self._of(node, at))
        name = node.name.lower()
        places = [at for at, each in enumerate(self.sources) if name in each.columns]
        if len(places) > 1:
            written = " or ".join(f"{self.sources[at].alias}.{node.name}" for at in places)
            raise self.text.mistake(node, f"{node.name} can be a column of several sources", how=f"write {written}")
        if not places:
            raise self._unknown(node, {column.name for each in self.sources for column in each.columns.values()})
        return ColumnPlace(places[0], self.sources[places[0]].columns[name])

    def _of(self, node: exp.Column, at: int) -> Column:
        source = self.sources[at]
        found = source.columns.get(node.name.lower())
        if found is None:
            raise self._unknown(node, {each.name for each in source.columns.values()})
        return found

    def _unknown(self, node: exp.Column, known: Collection[str]) -> Exception:
        return self.text.mistake(node, f"unknown column {node.name!r}", how=candidates_text(node.name, sorted(known)))


class FromReader:
    """Reads FROM and the JOINs of a SELECT: the sources, and the conditions under ON."""

    def __init__(self, text: SqlText, streams: Mapping[str, Stream], queries: Collection[str]) -> None:
        self.text = text
        self.streams = {name.lower(): stream for name, stream in streams.items()}
        self.queries = {each.lower() for each in queries}

    def read(self, select: exp.Select) -> tuple[SourceScope, list[exp.Expression]]:
        """The sources, and the conditions under ON."""
        begin = select.args.get("from_")
        if begin is None:
            raise self.text.mistake(select, "there is no FROM", None, "name the streams that the query reads")
        refuse_unknown_parts(self.text, begin, {"this"})
        nodes, conditions = [begin.this], []
        for join in select.args.get("joins") or ():
            kind = {"kind"} if (join.kind or "").upper() in ("INNER", "CROSS") and not join.side else set()
            if join.args.get("using") or join.method:
                word = join.method.upper() or "USING"
                raise self.text.mistake(
                    join.this, f"{word} is not part of registered queries", None, "write JOIN ... ON a.x = b.x"
                )
            if join.side:
                raise self.text.mistake(
                    join.this,
                    f"{join.side.upper()} JOIN is not part of registered queries",
                    "a row without a partner would be in the answer until its partner comes",
                    "write JOIN, or declare the query under queries:",
                )
            refuse_unknown_parts(self.text, join, {"this", "on", *kind})
            nodes.append(join.this)
            conditions += [join.args["on"]] if join.args.get("on") is not None else []
        return self._scope(nodes), conditions

    def _scope(self, nodes: Sequence[exp.Expression]) -> SourceScope:
        if len(nodes) > MAX_SOURCES:
            raise self.text.mistake(
                nodes[MAX_SOURCES],
                f"FROM has {len(nodes):,} sources",
                f"a registered query reads {MAX_SOURCES} at most",
                "declare the query under queries:",
            )
        sources: list[ScopeSource] = []
        for node in nodes:
            source = self._source(node)
            if any(each.alias.lower() == source.alias.lower() for each in sources):
                how = f"give it another name: {source.stream.name} AS {source.alias}_2"
                raise self.text.mistake(node, f"{source.alias} is in FROM twice", how=how)
            self._check_order(node, source, sources)
            sources.append(source)
        return SourceScope(self.text, sources)

    def _check_order(self, node: exp.Expression, source: ScopeSource, sources: Sequence[ScopeSource]) -> None:
        if not sources or sources[0].stream.timed == source.stream.timed:
            return
        first, other = sources[0].stream, source.stream
        timed, plain = (first, other) if first.timed else (other, first)
        raise self.text.mistake(
            node,
            f"{other.name} and {first.name} cannot be read together",
            f"{timed.name} is ordered by a timestamp, {plain.name} by a bigint, and NOW is only one of the two",
            "order both by the same kind of event time",
        )

    def _source(self, node: exp.Expression) -> ScopeSource:
        if isinstance(node, exp.Subquery):
            raise self.text.mistake(
                node,
                "a SELECT in FROM is not part of registered queries",
                "they select, project and join the rows of streams",
                "declare the query under queries:",
            )
        if not isinstance(node, exp.Table):
            raise unknown_construct(self.text, node)
        if not isinstance(node.this, exp.Identifier):
            raise self.text.mistake(
                node,
                f"{node.this.name}(...) is not part of registered queries",
                "FROM names streams, and the window stands at the end of the text",
                "name the stream alone",
            )
        if node.args.get("db") is not None:
            raise self.text.mistake(
                node, f"{node.name} has a name before it", how=f"streams have one name: {node.name}"
            )
        refuse_unknown_parts(self.text, node, {"this", "alias"})
        stream = self._stream(node)
        alias = self._alias(node) or stream.name
        return ScopeSource(alias, stream, {each.name.lower(): each for each in stream.columns})

    def _stream(self, node: exp.Table) -> Stream:
        name = node.name
        found = self.streams.get(name.lower())
        if found is None:
            if name.lower() in self.queries:
                raise self.text.mistake(
                    node,
                    f"{name} is a query",
                    "registered queries read streams: the rows of a result have no order field of their own",
                    "name the streams that it reads, or read its results with errata results",
                )
            how = nearest_names(name, [each.name for each in self.streams.values() if each.relation is None])
            raise self.text.mistake(node, f"unknown stream {name!r}", how=how)
        if found.relation is not None:
            raise self.text.mistake(
                node,
                f"{found.name} is a relation",
                "registered queries read streams: the version that is valid would change with NOW",
                "declare the query under queries:, where relations can be joined",
            )
        return found

    def _alias(self, node: exp.Table) -> str | None:
        alias = node.args.get("alias")
        if alias is None:
            return None
        refuse_unknown_parts(self.text, alias, {"this"})
        if not isinstance(alias.this, exp.Identifier):
            raise self.text.mistake(node, "this is not a name", how="write AS and a name")
        try:
            check_name("source", alias.name)
        except UsageError as error:
            raise self.text.mistake(alias, error.what, error.why, error.how) from None
        return str(alias.name)
