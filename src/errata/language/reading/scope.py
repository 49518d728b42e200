"""What the names in one SELECT mean: the columns of what stands in its FROM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from errata.errors import candidates
from errata.language.expr import Expr, Ref
from errata.language.plan import Plan
from errata.language.reading.mistakes import LanguageError, Text
from errata.language.times import Own, own_time, timing


@dataclass(frozen=True)
class Item:
    """A part of FROM: its name in the text, and its columns by the names that the text may use, in lower case."""

    name: str
    plan: Plan
    columns: dict[str, Ref]


def item(name: str, alias: str, plan: Plan) -> Item:
    """A part of FROM whose columns the plan calls `alias.column`."""
    begin = len(alias) + 1
    return Item(name, plan, {each.name[begin:].lower(): Ref(each.name, each.type) for each in plan.visible})


def shown(ref: Ref) -> str:
    """The name of a column without that of its part of FROM."""
    return ref.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Shared:
    """A column under USING."""

    name: str
    """In lower case."""
    left: Ref
    right: Ref
    whole: Ref
    """What stands for both."""


class Scope:
    """The parts of FROM so far, what `*` means, and what a bare name can mean."""

    def __init__(
        self, text: Text, items: Sequence[Item], star: Sequence[Ref], bare: dict[str, tuple[Ref, ...]]
    ) -> None:
        self._text = text
        self.items = tuple(items)
        self.star = tuple(star)
        self._bare = bare

    @classmethod
    def of(cls, text: Text, first: Item) -> Scope:
        """The scope of a FROM with one part."""
        return cls(text, [first], list(first.columns.values()), {name: (ref,) for name, ref in first.columns.items()})

    def joined(self, right: Item, using: Sequence[Shared] = ()) -> Scope:
        """With one more part. Columns under USING are there once, and first."""
        merged = {each.name for shared in using for each in (shared.left, shared.right)}
        star = [*(shared.whole for shared in using), *(ref for ref in self.star if ref.name not in merged)]
        bare = dict(self._bare)
        for name, ref in right.columns.items():
            if ref.name not in merged:
                star.append(ref)
                bare[name] = (*bare.get(name, ()), ref)
        return Scope(self._text, [*self.items, right], star, bare | {each.name: (each.whole,) for each in using})

    def has(self, name: str) -> bool:
        """Whether a bare name means a column here."""
        return name.lower() in self._bare

    def item(self, place: exp.Expression, name: str) -> Item:
        """The part of FROM of that name."""
        for each in self.items:
            if each.name.lower() == name.lower():
                return each
        names = [each.name for each in self.items]
        raise self._text.mistake(place, f"{name} is not in FROM", how=candidates(name, names))

    def column(self, node: exp.Column) -> Ref:
        """The column that is meant."""
        if node.args.get("db") is not None:
            raise self._text.mistake(node, "a column has one name before it at most", how="write alias.column")
        name = node.name
        if not node.table:
            return self.bare(node, name)
        part = self.item(node, node.table)
        found = part.columns.get(name.lower())
        if found is None:
            names = [shown(each) for each in part.columns.values()]
            raise self._text.mistake(node, f"unknown column {name!r} of {part.name}", how=candidates(name, names))
        return found

    def bare(self, place: exp.Expression, name: str) -> Ref:
        """The only column of that name in all of FROM."""
        found = self._bare.get(name.lower(), ())
        if len(found) == 1:
            return found[0]
        if found:
            raise self._ambiguous(place, name)
        raise self._text.mistake(place, f"unknown column {name!r}", how=candidates(name, self._names()))

    def _ambiguous(self, place: exp.Expression, name: str) -> LanguageError:
        meant = [f"{each.name}.{name}" for each in self.items if name.lower() in each.columns]
        return self._text.mistake(place, f"{name} can mean {' or '.join(meant)}", how=f"write {' or '.join(meant)}")

    def _names(self) -> list[str]:
        """Every column as it can be written: bare where that is enough."""
        names = []
        for each in self.items:
            for name, ref in each.columns.items():
                names.append(shown(ref) if len(self._bare.get(name, ())) == 1 else f"{each.name}.{shown(ref)}")
        return list(dict.fromkeys(names))

    def own_time(self, name: str, place: exp.Expression) -> Expr | None:
        """The own time of the rows of a part of FROM."""
        return own_time(self.item(place, name).plan)


def own_time_of(text: Text, node: exp.Expression, scope: Scope) -> Expr:
    """event_time(a): the own time of the rows of a part of FROM."""
    of = node.expressions[0]
    if len(node.expressions) > 1 or not isinstance(of, exp.Column) or of.table:
        raise text.mistake(
            node, "event_time takes the name of a part of FROM", how="write event_time() or event_time(a)"
        )
    own = scope.own_time(of.name, of)
    if own is None:
        raise no_own_time(text, node, scope.item(of, of.name).plan)
    return own


def no_own_time(text: Text, node: exp.Expression, plan: Plan) -> Exception:
    """The error for event_time() where there is none."""
    if timing(plan).own is Own.NONE:
        why = "these rows say what holds, not what happened"
    else:
        why = "their own time is in none of the columns"
    return text.mistake(node, "the rows have no event_time() here", why, "name a column that is a time")


def is_call(node: exp.Expression, name: str) -> bool:
    """Whether it is a call of the function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == name
