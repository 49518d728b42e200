"""What is missing between two words or signs of a query, where sqlglot would read on as if nothing were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

_WORDS = {
    TokenType.SELECT: "SELECT",
    TokenType.DISTINCT: "DISTINCT",
    TokenType.FROM: "FROM",
    TokenType.WHERE: "WHERE",
    TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING",
    TokenType.ON: "ON",
    TokenType.USING: "USING",
    TokenType.WITH: "WITH",
    TokenType.JOIN: "JOIN",
}
"""Words that something follows."""
_ENDS = {
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.JOIN,
    TokenType.ON,
    TokenType.USING,
    TokenType.UNION,
    TokenType.EXCEPT,
    TokenType.INTERSECT,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.SEMICOLON,
    TokenType.R_PAREN,
}
"""What begins something else, or ends what it stands in."""
_GOES_ON = {TokenType.COMMA, TokenType.ALIAS}

Gap = tuple[Token, str]
"""A word or sign, and what is missing beside it."""


def first_gap(tokens: Sequence[Token]) -> Gap | None:
    """The first place at which something is missing."""
    return min(
        (*_beside_commas(tokens), *_beside_stars(tokens), *_after_words(tokens), *_between(tokens)),
        key=_place,
        default=None,
    )


def _place(gap: Gap) -> int:
    return gap[0].start


def _triples(tokens: Sequence[Token]) -> Iterator[tuple[TokenType | None, Token, Token | None]]:
    """Each token, between what is before it and what is after it."""
    for at, token in enumerate(tokens):
        before = tokens[at - 1].token_type if at else None
        yield before, token, tokens[at + 1] if at + 1 < len(tokens) else None


def _beside_commas(tokens: Sequence[Token]) -> Iterator[Gap]:
    for before, token, after in _triples(tokens):
        kind = token.token_type
        if after is None or after.token_type is TokenType.SEMICOLON:
            if kind is TokenType.COMMA:
                yield token, "something is missing behind the comma"
        elif kind is TokenType.COMMA and after.token_type in _ENDS:
            yield after, "something is missing between the comma and this"
        elif after.token_type is TokenType.COMMA and before is not TokenType.DOT:
            if kind is TokenType.COMMA:
                yield after, "something is missing between the two commas"
            elif kind is TokenType.L_PAREN or kind in _WORDS:
                yield after, "something is missing before the comma"


def _beside_stars(tokens: Sequence[Token]) -> Iterator[Gap]:
    """A star behind a name multiplies it; sqlglot drops one that has nothing to multiply it by."""
    for before, token, after in _triples(tokens):
        behind_a_name = token.token_type is TokenType.STAR and before in (TokenType.VAR, TokenType.IDENTIFIER)
        if behind_a_name and (after is None or after.token_type in _ENDS | _GOES_ON):
            yield token, "something is missing behind *"


def _after_words(tokens: Sequence[Token]) -> Iterator[Gap]:
    for before, token, after in _triples(tokens):
        kind = token.token_type
        # What is behind a dot is a column's name, whatever else it means.
        if kind not in _WORDS or before is TokenType.DOT:
            continue
        if after is None or after.token_type in (_ENDS | {TokenType.ALIAS}) - _allowed(before, kind):
            yield token, f"something is missing behind {_WORDS[kind]}"


def _allowed(before: TokenType | None, kind: TokenType) -> set[TokenType]:
    """What may follow all the same: DISTINCT ON, and IS DISTINCT FROM."""
    if kind is not TokenType.DISTINCT:
        return set()
    return {TokenType.ON} if before is TokenType.SELECT else {TokenType.ON, TokenType.FROM}


def _between(tokens: Sequence[Token]) -> Iterator[Gap]:
    """BETWEEN without its AND: the second value would be found all the same."""
    deep, waiting = 0, list[tuple[int, Token]]()
    for token in tokens:
        kind = token.token_type
        deep += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if kind is TokenType.BETWEEN:
            waiting.append((deep, token))
        elif waiting and kind is TokenType.AND and deep == waiting[-1][0]:
            waiting.pop()
        elif waiting and deep < waiting[-1][0]:
            break
    yield from ((token, "BETWEEN is without its AND") for _, token in waiting)
