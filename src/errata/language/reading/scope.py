"""The scopes of names: in one SELECT (`SelectScope`: the columns of its FROM) and in one statement (`StatementScope`:
the sources that it reads, and the names it has given)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from errata.errors import UsageError, candidates_text
from errata.language.expr import Expr, Ref
from errata.language.nodes import Scan
from errata.language.plan import Plan, Source
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.samples import SampleClauses
from errata.language.times import OwnTime, own_time_expr, row_times
from errata.model.columns import check_name


@dataclass(frozen=True)
class FromItem:
    """A part of FROM: its name in the text, and its columns by the names that the text may use, in lower case."""

    name: str
    plan: Plan
    columns: dict[str, Ref]


def from_item(name: str, alias: str, plan: Plan) -> FromItem:
    """A part of FROM whose columns the plan calls `alias.column`."""
    begin = len(alias) + 1
    return FromItem(name, plan, {each.name[begin:].lower(): Ref(each.name, each.type) for each in plan.visible})


def short_name(ref: Ref) -> str:
    """The name of a column without that of its part of FROM."""
    return ref.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class UsingColumn:
    """A column under USING."""

    name: str
    """In lower case."""
    left: Ref
    right: Ref
    whole: Ref
    """The expression for both columns."""


class SelectScope:
    """The parts of FROM so far, the meaning of `*`, and of names without an alias."""

    def __init__(
        self, text: SqlText, items: Sequence[FromItem], star: Sequence[Ref], bare: dict[str, tuple[Ref, ...]]
    ) -> None:
        self._text = text
        self.items = tuple(items)
        self.star = tuple(star)
        self._bare = bare

    @classmethod
    def of(cls, text: SqlText, first: FromItem) -> SelectScope:
        """The scope of a FROM with one part."""
        return cls(text, [first], list(first.columns.values()), {name: (ref,) for name, ref in first.columns.items()})

    def joined(self, right: FromItem, using: Sequence[UsingColumn] = ()) -> SelectScope:
        """With one more part. Columns under USING are there once, and first."""
        merged = {each.name for shared in using for each in (shared.left, shared.right)}
        star = [*(shared.whole for shared in using), *(ref for ref in self.star if ref.name not in merged)]
        bare = dict(self._bare)
        for name, ref in right.columns.items():
            if ref.name not in merged:
                star.append(ref)
                bare[name] = (*bare.get(name, ()), ref)
        return SelectScope(self._text, [*self.items, right], star, bare | {each.name: (each.whole,) for each in using})

    def has_unqualified(self, name: str) -> bool:
        """Whether a name without an alias is a column here."""
        return name.lower() in self._bare

    def item(self, place: exp.Expression, name: str) -> FromItem:
        """The part of FROM of that name."""
        for each in self.items:
            if each.name.lower() == name.lower():
                return each
        names = [each.name for each in self.items]
        raise self._text.mistake(place, f"{name} is not in FROM", how=candidates_text(name, names))

    def column(self, node: exp.Column) -> Ref:
        """The column that a node refers to."""
        if node.args.get("db") is not None:
            raise self._text.mistake(node, "a column has one name before it at most", how="write alias.column")
        name = node.name
        if not node.table:
            return self.unqualified_column(node, name)
        part = self.item(node, node.table)
        found = part.columns.get(name.lower())
        if found is None:
            names = [short_name(each) for each in part.columns.values()]
            raise self._text.mistake(node, f"unknown column {name!r} of {part.name}", how=candidates_text(name, names))
        return found

    def unqualified_column(self, place: exp.Expression, name: str) -> Ref:
        """The only column of that name in all of FROM."""
        found = self._bare.get(name.lower(), ())
        if len(found) == 1:
            return found[0]
        if found:
            raise self._ambiguous(place, name)
        raise self._text.mistake(place, f"unknown column {name!r}", how=candidates_text(name, self._names()))

    def _ambiguous(self, place: exp.Expression, name: str) -> LanguageError:
        meant = [f"{each.name}.{name}" for each in self.items if name.lower() in each.columns]
        return self._text.mistake(place, f"{name} can mean {' or '.join(meant)}", how=f"write {' or '.join(meant)}")

    def _names(self) -> list[str]:
        """Every column as it can be written: bare where that is enough."""
        names = []
        for each in self.items:
            for name, ref in each.columns.items():
                names.append(
                    short_name(ref) if len(self._bare.get(name, ())) == 1 else f"{each.name}.{short_name(ref)}"
                )
        return list(dict.fromkeys(names))

    def own_time(self, name: str, place: exp.Expression) -> Expr | None:
        """The own time of the rows of a part of FROM."""
        return own_time_expr(self.item(place, name).plan)


def own_time_argument(text: SqlText, node: exp.Expression, scope: SelectScope) -> Expr:
    """event_time(a): the own time of the rows of a part of FROM."""
    of = node.expressions[0]
    if len(node.expressions) > 1 or not isinstance(of, exp.Column) or of.table:
        raise text.mistake(
            node, "event_time takes the name of a part of FROM", how="write event_time() or event_time(a)"
        )
    own = scope.own_time(of.name, of)
    if own is None:
        raise own_time_mistake(text, node, scope.item(of, of.name).plan)
    return own


def own_time_mistake(text: SqlText, node: exp.Expression, plan: Plan) -> Exception:
    """The error for event_time() where there is none."""
    if row_times(plan).own is OwnTime.NONE:
        why = "these rows say what holds, not what happened"
    else:
        why = "their own time is in none of the columns"
    return text.mistake(node, "the rows have no event_time() here", why, "name a column that is a time")


def is_call_of(node: exp.Expression, name: str) -> bool:
    """Whether it is a call of the function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == name


# Names in one statement: what it may read, which names are taken, and whether event time is a timestamp.

MAX_INPUTS = 300
"""Inputs of a query, at most; each use of a WITH counts, since its text is put in its place."""
_MAX_NAMED = 30
_RESERVED_WORDS = ("window",)


class SourceCatalog:
    """The sources that queries may read, by name, case-insensitively."""

    def __init__(self, sources: Mapping[str, Source], others: Sequence[str] = ()) -> None:
        """`others`: names of queries not known yet, which may be suggested when a name is not found."""
        self._sources = dict(sources)
        self._others = others
        self._folded: dict[str, str] | None = None
        self.reading: str | None = None
        """The query that is being read, which cannot mean itself."""

    def find(self, name: str) -> Source | None:
        """The source of that name, if there is one."""
        if (found := self._sources.get(name)) is not None:
            return found
        if self._folded is None:
            self._folded = {each.lower(): each for each in self._sources}
        return self._sources.get(self._folded.get(name.lower(), ""))

    def add(self, source: Source) -> None:
        """Add a source, such as a query that has been read."""
        self._sources[source.name] = source
        if self._folded is not None:
            self._folded[source.name.lower()] = source.name

    @property
    def names(self) -> list[str]:
        return [each for each in dict.fromkeys([*self._sources, *self._others]) if each != self.reading]


def nearest_names(name: str, known: list[str]) -> str:
    """A suggestion of similar names. Of thousands of names only those that begin alike are compared."""
    if len(known) > _MAX_NAMED:
        alike = [each for each in known if each[:2].lower() == name[:2].lower()]
        known = sorted(alike or known, key=lambda each: (abs(len(each) - len(name)), each))[:_MAX_NAMED]
    return candidates_text(name, sorted(known))


@dataclass(frozen=True)
class CommonTable:
    """A query under WITH, and those before it, which it can read."""

    name: str
    query: exp.Expression
    seen: CommonTables


CommonTables = Mapping[str, CommonTable]
"""The queries under WITH that can be read at a place, by their names in lower case."""


@dataclass
class StatementScope:
    """The statement that is being lowered."""

    text: SqlText
    known: SourceCatalog
    query: Callable[[exp.Expression, str, CommonTables], Plan]
    """Lowers a query within the statement; its columns are called by the prefix and their names."""
    samples: SampleClauses = field(default_factory=SampleClauses)
    early: bool = False
    inputs: int = 0
    windows: int = 0
    unions: int = 0
    """The number of windowed groups, and of unions, so far: outer ones first, else in the order of the text."""
    used: set[int] = field(default_factory=set)
    """The queries under WITH that have been read."""
    _taken: set[str] = field(default_factory=set)
    _first: Source | None = None

    def alias(self, wanted: str) -> str:
        """The wanted name for a part of FROM, or the next free one like it; aliases are unique in a plan."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name

    def next_window(self) -> int:
        """The number of one more group with a window."""
        self.windows += 1
        return self.windows

    def next_union(self) -> int:
        """The number of one more union."""
        self.unions += 1
        return self.unions

    def check_alias(self, place: exp.Expression, name: str) -> None:
        """Refuse an alias that is not possible in column names."""
        if name.lower() in _RESERVED_WORDS:
            raise self.text.mistake(
                place,
                f"{name} cannot be a name here",
                f"{name}.start and {name}.end are those of a group's window",
                f"give it another name: `{name}` AS {name}_2",
            )
        self.check_name(place, "table", name)

    def check_alias_word(self, alias: exp.Expression) -> None:
        """Refuse a word that sqlglot takes for an alias and is none: the v3 of s@v3, which is a version elsewhere."""
        if not isinstance(alias, exp.Identifier):
            raise self.text.mistake(alias, "this is not a name", how="write AS and a name")

    def check_name(self, place: exp.Expression, kind: str, name: str) -> None:
        """Refuse a name that some storage could not represent."""
        try:
            check_name(kind, name)
        except UsageError as error:
            raise self.text.mistake(place, error.what, error.why, error.how) from None

    def scan(self, place: exp.Expression, source: Source, alias: str) -> Scan:
        """A scan of a source. All sources of a query must agree in the type of event time."""
        self.count_input(place)
        first = self._first or source
        if first.timed != source.timed:
            timed, plain = (first, source) if first.timed else (source, first)
            raise self.text.mistake(
                place,
                f"{source.name} and {first.name} cannot be read together",
                f"{timed.name} is ordered by a timestamp, {plain.name} by a bigint",
                "order both by the same kind of event time",
            )
        self._first = first
        return Scan(source, alias)

    def count_input(self, place: exp.Expression) -> None:
        """Count one more input."""
        self.inputs += 1
        if self.inputs > MAX_INPUTS:
            raise self.text.mistake(
                place,
                f"the query has more than {MAX_INPUTS} inputs",
                "what WITH names counts wherever it is read, and each side of an outer join two or three times",
                "declare a part of it as a query of its own",
            )

    @property
    def timed(self) -> bool:
        """Whether event time is a time; otherwise it is a plain number."""
        return self._first is None or self._first.timed

    def unknown_name_error(self, place: exp.Expression, name: str, commons: CommonTables) -> LanguageError:
        """The error for an unknown name."""
        names = [*self.known.names, *(each.name for each in commons.values())]
        return self.text.mistake(place, f"unknown stream, relation or query {name!r}", how=nearest_names(name, names))
