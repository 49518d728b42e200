"""Expressions of SQL to expressions of a plan, with every type checked and nothing left to guess."""

from __future__ import annotations

from sqlglot import exp

from errata.language.expr import Expr
from errata.language.reading.calls import call
from errata.language.reading.operators import OPERATORS
from errata.language.reading.parse import unknown_node
from errata.language.reading.reader import Reader, coerced

__all__ = ["Expressions", "coerced"]


class Expressions(Reader):
    """Reads the expressions of one place in a query. `resolve` finds columns, or says that there is none; `special` is
    asked first about each node, and gives None for what it does not know: aggregates, columns of windows.

    `lower` reads an expression, `condition` one that must be a boolean, `together` several that must be of one type,
    and `perhaps` one that may be a NULL without a type: None.
    """

    def handle(self, node: exp.Expression) -> Expr:
        """What a node means, by its kind."""
        if isinstance(node, exp.Anonymous):
            return call(self, node)
        handler = OPERATORS.get(type(node))
        if handler is None:
            raise unknown_node(self.text, node)
        return handler(self, node)
