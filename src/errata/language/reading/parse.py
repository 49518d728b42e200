"""SQL text to a tree of sqlglot's, one statement that reads; and nothing in such a tree may be passed over in silence.

The grammar is Spark's, with one difference that saves much guessing: no function is known to the parser, so each call
is an `exp.Anonymous` (its `name` as written, its `expressions`; `count(DISTINCT x)` has an `exp.Distinct` among them),
and sqlglot rewrites none. Only CAST, TRY_CAST and EXTRACT, which have a grammar of their own, are nodes of their own.
A number with a suffix is an `exp.Literal` with the suffix in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from errata.language.reading.gaps import first_gap
from errata.language.reading.mistakes import LanguageError, Text
from errata.language.reading.refused import REFUSED, TOO_DEEP

MAX_LENGTH = 1_000_000
MAX_TOKENS = 100_000
MAX_NESTING = 30
"""So many brackets within brackets; what reads a tree calls itself for each."""

_MISSING = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]*\.(\w+)'>")
_EXPECTED = re.compile(r"(?:Expecting|Expected) (\)|\(|[A-Z]+)(?: after \w+)?")
_PLAIN = {
    "invalid expression / unexpected token": "this is not expected here",
    "expected table name": "the name of a stream or query is missing beside this",
    "expected cte to have alias": "the name of a query under WITH is missing before this",
}
_FIRST = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}
_OPEN = {TokenType.L_PAREN, TokenType.CASE, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.END, TokenType.R_BRACKET, TokenType.R_BRACE}


class _Dialect(Spark):
    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True


_unsigned: Callable[[Parser], exp.Expr | None] = SparkParser.UNARY_PARSERS[TokenType.PLUS]


def _with_plus(parser: Parser) -> exp.Expression:
    """sqlglot drops a plus before a value, whatever the value is."""
    value = _unsigned(parser)
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
    # Without those that reach into JSON: about a wrong path sqlglot would talk to stderr.
    COLUMN_OPERATORS: ClassVar = {
        kind: SparkParser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)
    }
    UNARY_PARSERS: ClassVar = {**SparkParser.UNARY_PARSERS, TokenType.PLUS: _with_plus}


_DIALECT = _Dialect()


def parse(text: Text) -> exp.Query:
    """The tree of the one statement that the text is: a SELECT, a set operation, or either after WITH."""
    tokens = _tokens(text)
    parser = _Parser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
    try:
        trees = [each for each in parser.parse(tokens, text.sql) if each is not None]
    except ParseError as error:
        raise _unparsed(text, error) from None
    except RecursionError:
        raise text.mistake(0, *TOO_DEEP) from None
    except Exception as error:  # of whatever kind: sqlglot stumbles over some texts that are none of SQL
        raise text.mistake(0, "this cannot be read as SQL", why=f"the parser gave up: {error!r}"[:300]) from error
    return _statement(text, trees)


def _statement(text: Text, trees: list[exp.Expr]) -> exp.Query:
    if len(trees) > 1:
        raise text.mistake(
            trees[1], "a query is one statement", how="keep one SELECT, and give others names of their own"
        )
    if not trees or not isinstance(trees[0], exp.Query):
        raise text.mistake(0, "a query begins with SELECT or WITH")
    return trees[0]


def _tokens(text: Text) -> list[Token]:
    sql = text.sql
    if len(sql) > MAX_LENGTH:
        raise text.mistake(0, f"the text has {len(sql):,} characters", why=f"a query has {MAX_LENGTH:,} at most")
    try:
        sql.encode()
        tokens = _DIALECT.tokenize(sql)
    except UnicodeEncodeError as error:
        raise text.mistake(error.start, "half of a character cannot be stored as text") from None
    except TokenError:
        raise text.mistake(_unended(sql), "a quote or comment that is opened here is not closed") from None
    except Exception as error:
        raise text.mistake(0, "this cannot be read as SQL", why=f"the parser gave up: {error!r}"[:300]) from error
    _check_tokens(text, tokens)
    return _mended(sql, tokens)


def _check_tokens(text: Text, tokens: list[Token]) -> None:
    if not tokens:
        raise text.mistake(0, "there is no query in the text", how="a query begins with SELECT or WITH")
    if tokens[0].token_type not in _FIRST:
        raise _at(text, tokens[0], "a query begins with SELECT or WITH", "it reads, and changes nothing")
    if len(tokens) > MAX_TOKENS:
        raise _at(text, tokens[MAX_TOKENS], f"a query has {MAX_TOKENS:,} words and signs at most")
    deep = 0
    for token in tokens:
        kind = token.token_type
        deep += (kind in _OPEN) - (kind in _CLOSE)
        if deep > MAX_NESTING:
            raise _at(text, token, *TOO_DEEP)
        if kind is TokenType.HINT:
            raise _at(text, token, *REFUSED["hint"])
    if (gap := first_gap(tokens)) is not None:
        raise _at(text, *gap)


def _at(text: Text, token: Token, what: str, why: str | None = None, how: str | None = None) -> LanguageError:
    return text.mistake((token.start, token.end + 1), what, why, how)


def _mended(sql: str, tokens: list[Token]) -> list[Token]:
    """5L comes as three tokens at one place, like 5::bigint, and 'it''s' as two texts; here each is one again."""
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


def _unparsed(text: Text, error: ParseError) -> LanguageError:
    told = error.errors[0] if error.errors else {}
    line, column, marked = told.get("line"), told.get("col"), str(told.get("highlight") or "")
    what = _told(str(told.get("description") or ""))
    if not line or not column:
        return text.mistake(0, what)
    # sqlglot's column is that of the last character of a token.
    begin = sum(len(each) + 1 for each in text.sql.split("\n")[: line - 1])
    end = begin + column
    return text.mistake((max(0, end - max(1, len(marked))), end), what)


def _told(description: str) -> str:
    """sqlglot's words, without its classes."""
    if _MISSING.match(description) is not None:
        return "a value is missing before this"
    words = description.split(" but got <", maxsplit=1)[0].rstrip(". ")
    if (word := _EXPECTED.fullmatch(words)) is not None:
        return (
            f"a {word[1]} is missing before this" if word[1] in "()" else f"the word {word[1]} is missing beside this"
        )
    return _PLAIN.get(words.lower()) or f"this is not SQL here: {words.lower() or 'it cannot be parsed'}"


def _unended(sql: str) -> int:
    """Where what is not ended begins, as far as can be told: at the last quote or comment that opens."""
    return max(0, *(sql.rfind(mark) for mark in ("'", '"', "`", "/*")))


def only_known(text: Text, node: exp.Expression, allowed: Collection[str]) -> None:
    """Refuse whatever else the node has than the named parts: nothing that is written may be ignored."""
    for name, value in node.args.items():
        if value and name not in allowed:
            raise refusal(text, node, name, value)


def refusal(text: Text, node: exp.Expression, name: str, value: object) -> LanguageError:
    """The error for a part of a node that is not understood."""
    part = value[0] if isinstance(value, list) else value
    place = part if isinstance(part, exp.Expr) else node
    key = name.rstrip("_")
    if isinstance(node, exp.Join) and node.kind.upper() in ("SEMI", "ANTI"):
        key = f"{node.kind.lower()} join"
    known = REFUSED.get(f"{_denied(node)}{node.key}.{key}") or REFUSED.get(key)
    if known is None and isinstance(part, exp.Expr):
        known = REFUSED.get(part.key)
    return text.mistake(place, *(known or (f"{key.replace('_', ' ').upper()} is not part of the language here",)))


def _denied(node: exp.Expr) -> str:
    """What the key of a refusal begins with: "not " for the node under a NOT."""
    above = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    return "not " if isinstance(above, exp.Not) and isinstance(node, exp.In | exp.Exists) else ""


def unknown_node(text: Text, node: exp.Expression) -> LanguageError:
    """The error for a construct that the language has not."""
    known = REFUSED.get(_denied(node) + node.key) or REFUSED.get(node.key)
    if known is not None:
        return text.mistake(node, *known)
    return text.mistake(node, f"{node.key.upper()} is not part of the language", "Errata answers a part of Spark's SQL")
