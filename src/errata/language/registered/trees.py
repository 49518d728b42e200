"""Trees of texts that differ in their constants alone: one is parsed, the others have their constants put into it.

Texts are registered by the thousand, mostly by programs, and parsing is the dearest part of reading one. The shape of a
text is its tokens without numbers and strings. The tree of a shape is kept with its literals in the order of the text;
for the next text of the shape each literal gets that text's value and place. A tree is kept only where each constant
stands behind a sign that makes it a value and nothing else to the parser, and is one literal in the tree.

Names in a kept tree have the places of the text that was parsed. So a text that turns out to have a mistake is parsed
by itself, and the message has its own places. A tree is lent to one reader at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from errata.language.reading.mistakes import SqlText
from errata.language.reading.parser import parse_tokens

MAX_SHAPES = 256
"""Shapes whose trees are kept."""

MAX_TOKENS = 1_000
"""Tokens of a text up to which its tree is kept."""

_CONSTANTS = (TokenType.NUMBER, TokenType.STRING)
_BEFORE_VALUES = {
    TokenType.LT,
    TokenType.LTE,
    TokenType.EQ,
    TokenType.GTE,
    TokenType.GT,
    TokenType.BETWEEN,
    TokenType.AND,
    TokenType.L_PAREN,
    TokenType.COMMA,
    TokenType.PLUS,
    TokenType.DASH,
}
"""Signs and words behind which a number or string is a value, whatever it says."""

Shape = tuple[tuple[TokenType, str | None], ...]


class KnownTrees:
    """Trees by the shape of the text. Whoever reads one holds `lock` meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._trees: OrderedDict[Shape, tuple[exp.Query, list[exp.Literal]]] = OrderedDict()

    def parse(self, text: SqlText, tokens: Sequence[Token]) -> exp.Query:
        """The tree of the tokens, as `parse_tokens` gives it, but for the places of names."""
        shape = _shape_of(tokens)
        if shape is None:
            return parse_tokens(text, tokens)
        constants = [each for each in tokens if each.token_type in _CONSTANTS]
        if (known := self._trees.get(shape)) is not None:
            self._trees.move_to_end(shape)
            tree, literals = known
            for literal, token in zip(literals, constants, strict=True):
                literal.set("this", token.text)
                literal.meta.update(start=token.start, end=token.end)
            return tree
        tree = parse_tokens(text, tokens)
        found = _literals(tree, constants)
        if found is not None:
            self._trees[shape] = tree, found
            if len(self._trees) > MAX_SHAPES:
                self._trees.popitem(last=False)
        return tree


def _shape_of(tokens: Sequence[Token]) -> Shape | None:
    """The tokens without constants; None where a constant may be more than a value."""
    if len(tokens) > MAX_TOKENS:
        return None
    shape: list[tuple[TokenType, str | None]] = []
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if kind in _CONSTANTS:
            if before not in _BEFORE_VALUES:
                return None
            shape.append((kind, None))
        else:
            shape.append((kind, token.text))
        before = kind
    return tuple(shape)


def _literals(tree: exp.Query, constants: Sequence[Token]) -> list[exp.Literal] | None:
    """The literal of each constant; None unless each has one of its own."""
    by_place = {each.meta["start"]: each for each in tree.find_all(exp.Literal) if "start" in each.meta}
    if len(by_place) != len(constants) or len(list(tree.find_all(exp.Literal))) != len(constants):
        return None
    found = [by_place.get(token.start) for token in constants]
    same = [
        literal
        for literal, token in zip(found, constants, strict=True)
        if literal is not None
        and literal.this == token.text
        and literal.is_string == (token.token_type is TokenType.STRING)
    ]
    return same if len(same) == len(constants) else None
