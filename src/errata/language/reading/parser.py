"""SQL text to one statement as a tree of sqlglot; nothing in the text may be ignored silently.

The grammar is Spark's, with one difference that saves guessing: the parser knows no function, so each call is an
`exp.Anonymous` (its `name` as written, its `expressions`; `count(DISTINCT x)` has an `exp.Distinct` among them), and
sqlglot rewrites none. Only CAST, TRY_CAST and EXTRACT, which have a grammar of their own, are nodes of their own. A
number with a suffix is an `exp.Literal` with the suffix in its text.

sqlglot reads on where something is missing between two tokens, as after a comma. The first part finds such gaps in the
tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from errata.language.reading.mistakes import REFUSED_SYNTAX, TOO_DEEP, LanguageError, SqlText

_KEYWORDS = {
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
"""Words that must be followed by something."""
_CLAUSE_STARTS = {
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
"""Tokens that begin another clause, or end the one that they stand in."""
_CONTINUATIONS = {TokenType.COMMA, TokenType.ALIAS}

TokenGap = tuple[Token, str]
"""A token, and what is missing beside it."""


def first_gap(tokens: Sequence[Token]) -> TokenGap | None:
    """The first place at which something is missing."""
    return min(
        (*_gaps_at_commas(tokens), *_gaps_at_stars(tokens), *_gaps_after_keywords(tokens), *_gaps_in_between(tokens)),
        key=_gap_position,
        default=None,
    )


def _gap_position(gap: TokenGap) -> int:
    return gap[0].start


def _token_triples(tokens: Sequence[Token]) -> Iterator[tuple[TokenType | None, Token, Token | None]]:
    """Each token, with the kind of the one before it and the one after it."""
    for at, token in enumerate(tokens):
        before = tokens[at - 1].token_type if at else None
        yield before, token, tokens[at + 1] if at + 1 < len(tokens) else None


def _gaps_at_commas(tokens: Sequence[Token]) -> Iterator[TokenGap]:
    for before, token, after in _token_triples(tokens):
        kind = token.token_type
        if after is None or after.token_type is TokenType.SEMICOLON:
            if kind is TokenType.COMMA:
                yield token, "something is missing behind the comma"
        elif kind is TokenType.COMMA and after.token_type in _CLAUSE_STARTS:
            yield after, "something is missing between the comma and this"
        elif after.token_type is TokenType.COMMA and before is not TokenType.DOT:
            if kind is TokenType.COMMA:
                yield after, "something is missing between the two commas"
            elif kind is TokenType.L_PAREN or kind in _KEYWORDS:
                yield after, "something is missing before the comma"


def _gaps_at_stars(tokens: Sequence[Token]) -> Iterator[TokenGap]:
    """Stars after a name without a right operand: sqlglot drops them."""
    for before, token, after in _token_triples(tokens):
        behind_a_name = token.token_type is TokenType.STAR and before in (TokenType.VAR, TokenType.IDENTIFIER)
        if behind_a_name and (after is None or after.token_type in _CLAUSE_STARTS | _CONTINUATIONS):
            yield token, "something is missing behind *"


def _gaps_after_keywords(tokens: Sequence[Token]) -> Iterator[TokenGap]:
    for before, token, after in _token_triples(tokens):
        kind = token.token_type
        # A word after a dot is the name of a column, whatever else it means.
        if kind not in _KEYWORDS or before is TokenType.DOT:
            continue
        if after is None or after.token_type in (_CLAUSE_STARTS | {TokenType.ALIAS}) - _may_follow(before, kind):
            yield token, f"something is missing behind {_KEYWORDS[kind]}"


def _may_follow(before: TokenType | None, kind: TokenType) -> set[TokenType]:
    """Tokens that may follow nevertheless: DISTINCT ON, and IS DISTINCT FROM."""
    if kind is not TokenType.DISTINCT:
        return set()
    return {TokenType.ON} if before is TokenType.SELECT else {TokenType.ON, TokenType.FROM}


def _gaps_in_between(tokens: Sequence[Token]) -> Iterator[TokenGap]:
    """BETWEEN without its AND: sqlglot would find the second value without it."""
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


# Parsing.

MAX_LENGTH = 1_000_000
MAX_TOKENS = 100_000
MAX_NESTING = 30
"""Nested brackets, at most: code that reads a tree calls itself for each."""

_MISSING_KEYWORD = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]*\.(\w+)'>")
_EXPECTED_TOKEN = re.compile(r"(?:Expecting|Expected) (\)|\(|[A-Z]+)(?: after \w+)?")
_PLAIN_WORDS = {
    "invalid expression / unexpected token": "this is not expected here",
    "expected table name": "the name of a stream or query is missing beside this",
    "expected cte to have alias": "the name of a query under WITH is missing before this",
}
_FIRST_TOKENS = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}
_OPENING_TOKENS = {TokenType.L_PAREN, TokenType.CASE, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING_TOKENS = {TokenType.R_PAREN, TokenType.END, TokenType.R_BRACKET, TokenType.R_BRACE}


class _Dialect(Spark):
    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True


_parse_unary_plus: Callable[[Parser], exp.Expr | None] = SparkParser.UNARY_PARSERS[TokenType.PLUS]


def _with_plus(parser: Parser) -> exp.Expression:
    """sqlglot drops a plus before a value, whatever the value is."""
    value = _parse_unary_plus(parser)
    if value is None:
        parser.raise_error("a value is missing before this")
    return exp.Anonymous(this="positive", expressions=[value])


class _Parser(SparkParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")}
    # IF is a function like others here, and + before a value is not dropped.
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
    NO_PAREN_FUNCTIONS: ClassVar = {
        kind: partial(exp.Anonymous, this=kind.name.lower()) for kind in SparkParser.NO_PAREN_FUNCTIONS
    }
    # Without the operators that reach into JSON: sqlglot would write to stderr about a wrong path.
    COLUMN_OPERATORS: ClassVar = {
        kind: SparkParser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)
    }
    UNARY_PARSERS: ClassVar = {**SparkParser.UNARY_PARSERS, TokenType.PLUS: _with_plus}


_DIALECT = _Dialect()


def parse_sql(text: SqlText) -> exp.Query:
    """The tree of the text's one statement: a SELECT, a set operation, or either after WITH."""
    return parse_tokens(text, tokenize(text))


def parse_tokens(text: SqlText, tokens: Sequence[Token]) -> exp.Query:
    """The tree of the statement that these tokens of the text are."""
    if (gap := first_gap(tokens)) is not None:
        raise _mistake_at(text, *gap)
    parser = _Parser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
    try:
        trees = [each for each in parser.parse(list(tokens), text.sql) if each is not None]
    except ParseError as error:
        raise _parse_mistake(text, error) from None
    except RecursionError:
        raise text.mistake(0, *TOO_DEEP) from None
    except Exception as error:  # of whatever kind: sqlglot stumbles over some texts that are none of SQL
        raise text.mistake(0, "this cannot be read as SQL", why=f"the parser gave up: {error!r}"[:300]) from error
    return _single_statement(text, trees)


def _single_statement(text: SqlText, trees: list[exp.Expr]) -> exp.Query:
    if len(trees) > 1:
        raise text.mistake(
            trees[1], "a query is one statement", how="keep one SELECT, and give others names of their own"
        )
    if not trees or not isinstance(trees[0], exp.Query):
        raise text.mistake(0, "a query begins with SELECT or WITH")
    return trees[0]


def tokenize(text: SqlText) -> list[Token]:
    """The words and signs of the text, within the limits of a query."""
    sql = text.sql
    if len(sql) > MAX_LENGTH:
        raise text.mistake(0, f"the text has {len(sql):,} characters", why=f"a query has {MAX_LENGTH:,} at most")
    try:
        sql.encode()
        tokens = _DIALECT.tokenize(sql)
    except UnicodeEncodeError as error:
        raise text.mistake(error.start, "half of a character cannot be stored as text") from None
    except TokenError:
        raise text.mistake(_unterminated_start(sql), "a quote or comment that is opened here is not closed") from None
    except Exception as error:
        raise text.mistake(0, "this cannot be read as SQL", why=f"the parser gave up: {error!r}"[:300]) from error
    _check_tokens(text, tokens)
    return _mend_tokens(sql, tokens)


def _check_tokens(text: SqlText, tokens: list[Token]) -> None:
    if not tokens:
        raise text.mistake(0, "there is no query in the text", how="a query begins with SELECT or WITH")
    if tokens[0].token_type not in _FIRST_TOKENS:
        raise _mistake_at(text, tokens[0], "a query begins with SELECT or WITH", "it reads, and changes nothing")
    if len(tokens) > MAX_TOKENS:
        raise _mistake_at(text, tokens[MAX_TOKENS], f"a query has {MAX_TOKENS:,} words and signs at most")
    deep = 0
    for token in tokens:
        kind = token.token_type
        deep += (kind in _OPENING_TOKENS) - (kind in _CLOSING_TOKENS)
        if deep > MAX_NESTING:
            raise _mistake_at(text, token, *TOO_DEEP)
        if kind is TokenType.HINT:
            raise _mistake_at(text, token, *REFUSED_SYNTAX["hint"])


def _mistake_at(
    text: SqlText, token: Token, what: str, why: str | None = None, how: str | None = None
) -> LanguageError:
    return text.mistake((token.start, token.end + 1), what, why, how)


def _mend_tokens(sql: str, tokens: list[Token]) -> list[Token]:
    """Joins tokens that sqlglot splits: 5L comes as three tokens, like 5::bigint, and 'it''s' as two texts."""
    mended: list[Token] = []
    for token in tokens:
        last = mended[-1] if mended else None
        if last is not None and last.token_type is TokenType.WINDOW and token.token_type is TokenType.L_PAREN:
            # GROUP BY window(...) calls a function; the WINDOW clause has a name before its bracket.
            last.token_type = TokenType.VAR
        if last is None or last.token_type is not token.token_type or token.token_type is not TokenType.STRING:
            if last is not None and last.token_type is TokenType.NUMBER and token.start == last.start:
                last.text += "" if token.token_type is TokenType.DCOLON else token.text.upper()
            else:
                mended.append(token)
        else:
            # A quote that is doubled stands for itself; texts with a space between are one text.
            doubled = token.start == last.end + 1 and sql[token.start] == sql[last.end]
            last.text += (sql[token.start] if doubled else "") + token.text
            last.end = token.end
    return mended


def _parse_mistake(text: SqlText, error: ParseError) -> LanguageError:
    told = error.errors[0] if error.errors else {}
    line, column, marked = told.get("line"), told.get("col"), str(told.get("highlight") or "")
    what = _plain_description(str(told.get("description") or ""))
    if not line or not column:
        return text.mistake(0, what)
    # sqlglot's column is that of the last character of a token.
    begin = sum(len(each) + 1 for each in text.sql.split("\n")[: line - 1])
    end = begin + column
    return text.mistake((max(0, end - max(1, len(marked))), end), what)


def _plain_description(description: str) -> str:
    """sqlglot's description of an error, without the names of its classes."""
    if _MISSING_KEYWORD.match(description) is not None:
        return "a value is missing before this"
    words = description.split(" but got <", maxsplit=1)[0].rstrip(". ")
    if (word := _EXPECTED_TOKEN.fullmatch(words)) is not None:
        return (
            f"a {word[1]} is missing before this" if word[1] in "()" else f"the word {word[1]} is missing beside this"
        )
    return _PLAIN_WORDS.get(words.lower()) or f"this is not SQL here: {words.lower() or 'it cannot be parsed'}"


def _unterminated_start(sql: str) -> int:
    """The start of an unterminated text or comment, as far as it can be determined: the last quote or comment that
    opens."""
    return max(0, *(sql.rfind(mark) for mark in ("'", '"', "`", "/*")))


def refuse_unknown_parts(text: SqlText, node: exp.Expression, allowed: Collection[str]) -> None:
    """Refuse any part of a node other than the allowed ones: nothing that is written may be ignored."""
    for name, value in node.args.items():
        if value and name not in allowed:
            raise refusal(text, node, name, value)


def refusal(text: SqlText, node: exp.Expression, name: str, value: object) -> LanguageError:
    """The error for a part of a node that is not understood."""
    part = value[0] if isinstance(value, list) else value
    place = part if isinstance(part, exp.Expr) else node
    key = name.rstrip("_")
    if isinstance(node, exp.Join) and node.kind.upper() in ("SEMI", "ANTI"):
        key = f"{node.kind.lower()} join"
    known = REFUSED_SYNTAX.get(f"{_negation_prefix(node)}{node.key}.{key}") or REFUSED_SYNTAX.get(key)
    if known is None and isinstance(part, exp.Expr):
        known = REFUSED_SYNTAX.get(part.key)
    return text.mistake(place, *(known or (f"{key.replace('_', ' ').upper()} is not part of the language here",)))


def _negation_prefix(node: exp.Expr) -> str:
    """The prefix of a refusal's key: "not " for a node under a NOT."""
    above = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    return "not " if isinstance(above, exp.Not) and isinstance(node, exp.In | exp.Exists) else ""


def unknown_construct(text: SqlText, node: exp.Expression) -> LanguageError:
    """The error for a construct that the language does not have."""
    known = REFUSED_SYNTAX.get(_negation_prefix(node) + node.key) or REFUSED_SYNTAX.get(node.key)
    if known is not None:
        return text.mistake(node, *known)
    return text.mistake(node, f"{node.key.upper()} is not part of the language", "Errata answers a part of Spark's SQL")
