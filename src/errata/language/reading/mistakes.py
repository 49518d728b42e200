"""Mistakes in a query: what is wrong, at which place of the text, why, and how to write it instead."""

from __future__ import annotations

import re

from sqlglot import exp

from errata.errors import UsageError

_WIDEST = 160
Place = exp.Expr | int | tuple[int, int]
"""A node, an offset into the text, or the offsets of a first character and of the one after the last."""


class LanguageError(UsageError):
    """A query that cannot be read, or does not mean what Errata could answer."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        how: str | None = None,
        line: int = 1,
        column: int = 1,
        excerpt: str = "",
    ) -> None:
        super().__init__(what, where=where, why=why, how=how)
        self.line = line
        self.column = column
        self.excerpt = excerpt

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        lines += [self.excerpt] if self.excerpt else []
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  how to mend: {self.how}"] if self.how else []
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.what, self.where, self.why, self.how, self.line, self.column, self.excerpt))


def _rebuild(
    what: str, where: str | None, why: str | None, how: str | None, line: int, column: int, excerpt: str
) -> LanguageError:
    return LanguageError(what, where=where, why=why, how=how, line=line, column=column, excerpt=excerpt)


class Text:
    """The text of a query, and where it stands: a file's name, or a query's."""

    def __init__(self, sql: str, name: str) -> None:
        self.sql = sql
        self.name = name

    def mistake(self, place: Place, what: str, why: str | None = None, how: str | None = None) -> LanguageError:
        """The error that shows the place: of a node, of its nearest part, or else of what it is a part of."""
        start, end = self._span(place)
        before = self.sql[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
        return LanguageError(
            what,
            where=f"{self.name}:{line}:{column}",
            why=why,
            how=how,
            line=line,
            column=column,
            excerpt=self._excerpt(start, end),
        )

    def _span(self, place: Place) -> tuple[int, int]:
        match place:
            case int():
                start, end = place, place + 1
            case tuple():
                start, end = place
            case _:
                start, end = span(self.sql, place)
        start = max(0, min(start, len(self.sql)))
        return start, max(start + 1, end)

    def _excerpt(self, start: int, end: int) -> str:
        """The line, with carets under the place; of a very long line the part around the place."""
        begin = self.sql.rfind("\n", 0, start) + 1
        finish = self.sql.find("\n", start)
        finish = len(self.sql) if finish < 0 else finish
        if finish - begin > _WIDEST:
            begin = max(begin, start - _WIDEST // 2)
            finish = min(finish, begin + _WIDEST)
        line = "".join(each if each.isprintable() else " " for each in self.sql[begin:finish])
        carets = "^" * max(1, min(end, finish) - start)
        return f"    {line}\n    {' ' * (start - begin)}{carets}" if line.strip() else ""


def span(sql: str, node: exp.Expr) -> tuple[int, int]:
    """Where a node stands: from its first token that knows its place to its last; else between its neighbours."""
    places = _places(node)
    if places:
        return places[0][0], max(end for _, end in places)
    parent, begin, finish = node.parent, 0, len(sql)
    while parent is not None:
        # The text's order is that of the starts; which of them come before the node is told by the tree's order.
        before, after = _around(parent, node)
        if before or after:
            begin = max((end for _, end in before), default=0)
            finish = min((start for start, _ in after if start >= begin), default=len(sql))
            break
        parent = parent.parent
    word = _WORDS.get(node.key) or node.name or node.key
    found = re.compile(re.escape(word), re.IGNORECASE).search(sql, begin, finish)
    return found.span() if found is not None else _trimmed(sql, begin, finish)


_WORDS = {"star": "*", "parameter": "@"}


def _places(node: exp.Expr) -> list[tuple[int, int]]:
    return sorted((each.meta["start"], each.meta["end"] + 1) for each in node.walk() if "start" in each.meta)


def _around(parent: exp.Expr, node: exp.Expr) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The places of what comes before the node under the parent, and of what comes after."""
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    found = False
    for each in parent.walk(bfs=False):
        if each is node:
            found = True
        elif "start" in each.meta:
            (after if found else before).append((each.meta["start"], each.meta["end"] + 1))
    return before, after


def _trimmed(sql: str, begin: int, finish: int) -> tuple[int, int]:
    inside = sql[begin:finish]
    skipped = len(inside) - len(inside.lstrip(" \t\r\n,("))
    return begin + skipped, max(begin + skipped + 1, begin + len(inside.rstrip()))
