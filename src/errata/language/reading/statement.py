"""One statement on its way to a plan: what it may read, which names are taken, and whether its event time is a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from errata.errors import UsageError, candidates
from errata.language.nodes import Scan
from errata.language.plan import Plan, Source
from errata.language.reading.mistakes import LanguageError, Text
from errata.model.columns import check_name

MOST_INPUTS = 300
"""So many times a query reads something; each reader of a WITH counts, since its text is put in its place."""
_MOST_NAMED = 30
_RESERVED = ("window",)


class Known:
    """What queries may read, found by name; upper and lower case are the same."""

    def __init__(self, sources: Mapping[str, Source], others: Sequence[str] = ()) -> None:
        """`others`: names that are not known yet, and can be meant when one is not found."""
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
        """One more, such as a query that has been read."""
        self._sources[source.name] = source
        if self._folded is not None:
            self._folded[source.name.lower()] = source.name

    @property
    def names(self) -> list[str]:
        return [each for each in dict.fromkeys([*self._sources, *self._others]) if each != self.reading]


def nearest(name: str, known: list[str]) -> str:
    """What may have been meant. Of thousands only names that begin alike are compared."""
    if len(known) > _MOST_NAMED:
        alike = [each for each in known if each[:2].lower() == name[:2].lower()]
        known = sorted(alike or known, key=lambda each: (abs(len(each) - len(name)), each))[:_MOST_NAMED]
    return candidates(name, sorted(known))


@dataclass(frozen=True)
class Common:
    """A query under WITH, and what it can itself see of those before it."""

    name: str
    query: exp.Expression
    seen: Commons


Commons = Mapping[str, Common]
"""The queries under WITH that can be read at a place, by their names in lower case."""


@dataclass
class Statement:
    """The statement that is being lowered."""

    text: Text
    known: Known
    query: Callable[[exp.Expression, str, Commons], Plan]
    """Lowers a query within the statement; its columns are called by the prefix and their names."""
    early: bool = False
    inputs: int = 0
    windows: int = 0
    unions: int = 0
    """How many groups with a window, and unions, there are so far: outer ones first, else as the text has them."""
    used: set[int] = field(default_factory=set)
    """Which of the queries under WITH have been read."""
    _taken: set[str] = field(default_factory=set)
    _first: Source | None = None

    def alias(self, wanted: str) -> str:
        """The wanted name for a part of FROM, or the next free one like it: each is there once in a whole plan."""
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
        """Refuse a name that columns could not be called by."""
        if name.lower() in _RESERVED:
            raise self.text.mistake(
                place,
                f"{name} cannot be a name here",
                f"{name}.start and {name}.end are those of a group's window",
                f"give it another name: `{name}` AS {name}_2",
            )
        self.check_name(place, "table", name)

    def check_word(self, alias: exp.Expression) -> None:
        """Refuse what sqlglot takes for a name and is none: the v3 of s@v3, which elsewhere is a version."""
        if not isinstance(alias, exp.Identifier):
            raise self.text.mistake(alias, "this is not a name", how="write AS and a name")

    def check_name(self, place: exp.Expression, kind: str, name: str) -> None:
        """Refuse a name that not everything that stores it could bear."""
        try:
            check_name(kind, name)
        except UsageError as error:
            raise self.text.mistake(place, error.what, error.why, error.how) from None

    def scan(self, place: exp.Expression, source: Source, alias: str) -> Scan:
        """A reading of a source. All that a query reads must agree in what event time is."""
        self.count(place)
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

    def count(self, place: exp.Expression) -> None:
        """One more input."""
        self.inputs += 1
        if self.inputs > MOST_INPUTS:
            raise self.text.mistake(
                place,
                f"the query has more than {MOST_INPUTS} inputs",
                "what WITH names counts wherever it is read, and each side of an outer join two or three times",
                "declare a part of it as a query of its own",
            )

    @property
    def timed(self) -> bool:
        """Whether event time is a time; otherwise it is a plain number."""
        return self._first is None or self._first.timed

    def unknown(self, place: exp.Expression, name: str, commons: Commons) -> LanguageError:
        """The error for a name that nothing bears."""
        names = [*self.known.names, *(each.name for each in commons.values())]
        return self.text.mistake(place, f"unknown stream, relation or query {name!r}", how=nearest(name, names))
