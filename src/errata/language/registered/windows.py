"""The window clause, which stands behind the rest of a registered text and is no SQL: it is cut off and read here.

    clause = window | FOR alias window {, FOR alias window}
    window = BEGIN ( begin ) END ( bound )
    begin  = bound | NOW - n ROWS
    bound  = time | NOW | NOW - span

A time is a timestamp, or a whole number where the order field is a bigint; a span is a duration or a whole number. The
clause is found among the tokens of the text, so the same words within a quote or a comment are no window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from errata.errors import UsageError
from errata.language.expr import TIMESTAMP, Lit
from errata.language.reading.inputs import lower_whole_number
from errata.language.reading.literals import is_calendar_interval, is_interval, lower_interval
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import parse_tokens
from errata.language.registered.constants import read_constant, time_constant
from errata.model.registered import Bound, RegisteredWindow
from errata.model.time import parse_duration

EXAMPLE = "BEGIN (NOW - '10 minutes') END (NOW)"
_GRAMMAR = f"write {EXAMPLE}, or FOR alias {EXAMPLE}, FOR …, with one for each source"
_NOW = "NOW"


@dataclass(frozen=True)
class WrittenWindow:
    """A window in the text: the name of the source that it is for, if one is written, and the tokens of its bounds."""

    name: Token | None
    begin: Sequence[Token]
    end: Sequence[Token]
    place: tuple[int, int]


def split_windows(text: SqlText, tokens: Sequence[Token]) -> tuple[Sequence[Token], list[WrittenWindow]]:
    """The tokens before the window clause, and the windows in it."""
    kept = list(tokens)
    while kept and kept[-1].token_type is TokenType.SEMICOLON:
        kept.pop()
    at = _clause_start(kept)
    if at is None:
        raise text.mistake(
            max(0, len(text.sql.rstrip()) - 1),
            "a registered query ends with its window, and there is none",
            "matching rows are gathered for good: the window says which of them are in the answer when it is asked for",
            f"add {EXAMPLE} at the end",
        )
    return kept[:at], _WindowClause(text, kept, at).read()


def _clause_start(tokens: Sequence[Token]) -> int | None:
    """The place of the first BEGIN with a bracket behind it, outside of brackets; of the FOR before it, if any."""
    deep = 0
    for at, token in enumerate(tokens):
        deep += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if deep or not _is_begin(tokens, at):
            continue
        return at - 2 if at > 2 and _is_word(tokens[at - 2], "FOR") else at
    return None


def _is_begin(tokens: Sequence[Token], at: int) -> bool:
    opened = at + 1 < len(tokens) and tokens[at + 1].token_type is TokenType.L_PAREN
    return opened and _is_word(tokens[at], "BEGIN") and (not at or tokens[at - 1].token_type is not TokenType.DOT)


def _is_word(token: Token, word: str) -> bool:
    """Whether a token is this word, and no text or name in quotes."""
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() == word


class _WindowClause:
    """Reads the clause from its first token on."""

    def __init__(self, text: SqlText, tokens: Sequence[Token], at: int) -> None:
        self.text = text
        self.tokens = tokens
        self.at = at

    def read(self) -> list[WrittenWindow]:
        named = _is_word(self.tokens[self.at], "FOR")
        found = [self._window(named=named)]
        while self.at < len(self.tokens) and self.tokens[self.at].token_type is TokenType.COMMA:
            self.at += 1
            found.append(self._window(named=True))
        if self.at < len(self.tokens):
            raise self._mistake("the window is the end of a registered query, and this stands behind it")
        return found

    def _window(self, *, named: bool) -> WrittenWindow:
        start, name = self._place(), None
        if named:
            self._word("FOR")
            name = self._next("the name of a source")
        self._word("BEGIN")
        begin = self._bracketed()
        self._word("END")
        return WrittenWindow(name, begin, self._bracketed(), (start, self.tokens[self.at - 1].end + 1))

    def _bracketed(self) -> Sequence[Token]:
        """The tokens within the brackets that open here."""
        opening = self._next("(")
        if opening.token_type is not TokenType.L_PAREN:
            self.at -= 1
            raise self._mistake("( is missing before this")
        deep, start = 1, self.at
        while deep:
            kind = self._next(")").token_type
            deep += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if self.at - 1 == start:
            raise self.text.mistake((opening.start, opening.end + 2), "a bound of the window is missing", how=_GRAMMAR)
        return self.tokens[start : self.at - 1]

    def _word(self, word: str) -> None:
        if not _is_word(self._next(word), word):
            self.at -= 1
            raise self._mistake(f"the word {word} is missing before this")

    def _next(self, wanted: str) -> Token:
        if self.at >= len(self.tokens):
            end = self.tokens[-1].end
            raise self.text.mistake((end, end + 1), f"the window is not complete: {wanted} is missing", how=_GRAMMAR)
        self.at += 1
        return self.tokens[self.at - 1]

    def _place(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].start

    def _mistake(self, what: str) -> LanguageError:
        token = self.tokens[self.at]
        return self.text.mistake((token.start, token.end + 1), what, how=_GRAMMAR)


# Bounds.


def read_window(text: SqlText, written: WrittenWindow, *, timed: bool) -> RegisteredWindow:
    """The window that is written. `timed`: the order field is a timestamp, and else a bigint."""
    end = _read_bound(text, written.end, timed=timed)
    rows = _row_count(text, written.begin)
    if rows is not None:
        return RegisteredWindow(end=end, rows=rows)
    begin = _read_bound(text, written.begin, timed=timed)
    if begin.relative and not end.relative:
        raise text.mistake(
            written.place,
            "the window begins at a distance from NOW, and ends at a fixed time",
            "it would shrink to nothing as time goes by",
            f"let it end with NOW, as in {EXAMPLE}, or begin at a fixed time",
        )
    if begin.relative == end.relative and (begin.value <= end.value if begin.relative else begin.value >= end.value):
        raise text.mistake(
            written.place,
            "the window is empty",
            "it ends where it begins, or before: the begin is in the window and the end is not",
            f"write {EXAMPLE}",
        )
    return RegisteredWindow(begin=begin, end=end)


def _row_count(text: SqlText, tokens: Sequence[Token]) -> int | None:
    """The n of `NOW - n ROWS`; None for another bound."""
    if not any(_is_word(tokens[-1], each) for each in ("ROWS", "ROW")):
        return None
    span = (tokens[0].start, tokens[-1].end + 1)
    shape = len(tokens) == 4 and _is_word(tokens[0], _NOW) and tokens[1].token_type is TokenType.DASH
    if not shape or tokens[2].token_type is not TokenType.NUMBER:
        raise text.mistake(span, "a window that counts rows begins with NOW - n ROWS", how="write NOW - 1000 ROWS")
    return lower_whole_number(text, _literal(tokens[2]), "a number of rows")


def _literal(token: Token) -> exp.Literal:
    """The literal that a number or string is."""
    literal = exp.Literal(this=token.text, is_string=token.token_type is TokenType.STRING)
    literal.meta.update(start=token.start, end=token.end)
    return literal


def _read_bound(text: SqlText, tokens: Sequence[Token], *, timed: bool) -> Bound:
    if any(_is_word(tokens[-1], each) for each in ("ROWS", "ROW")):
        raise text.mistake(
            (tokens[0].start, tokens[-1].end + 1),
            "only the begin of a window counts rows",
            "it holds the youngest rows before its end",
            "write BEGIN (NOW - 1000 ROWS) END (NOW)",
        )
    # As most windows are written; a tree takes a third of a text's time.
    if len(tokens) == 1 and _is_word(tokens[0], _NOW):
        return Bound(relative=True, value=0)
    distant = len(tokens) == 3 and _is_word(tokens[0], _NOW) and tokens[1].token_type is TokenType.DASH
    if distant and tokens[2].token_type in (TokenType.STRING, TokenType.NUMBER):
        return Bound(relative=True, value=_read_span(text, _literal(tokens[2]), timed=timed))
    node = _bound_tree(text, tokens)
    while isinstance(node, exp.Paren):
        node = node.this
    if _is_now(node):
        return Bound(relative=True, value=0)
    if isinstance(node, exp.Sub) and _is_now(node.this):
        return Bound(relative=True, value=_read_span(text, node.expression, timed=timed))
    if any(_is_now(each) for each in node.walk()):
        raise text.mistake(
            node,
            "this is not a bound of a window",
            "a bound is a time, NOW, or a distance before NOW: what is later than NOW has not happened",
            f"write {EXAMPLE}",
        )
    return Bound(relative=False, value=_read_time(text, node, timed=timed))


def _bound_tree(text: SqlText, tokens: Sequence[Token]) -> exp.Expression:
    """The tree of the expression that some tokens are."""
    first = tokens[0]
    select = Token(TokenType.SELECT, "SELECT", first.line, first.col, first.start, first.start)
    tree = parse_tokens(text, [select, *tokens])
    rest = [name for name, value in tree.args.items() if value and name != "expressions"]
    if rest or len(tree.expressions) != 1:
        raise text.mistake((first.start, tokens[-1].end + 1), "this is not a bound of a window", how=_GRAMMAR)
    node: exp.Expression = tree.expressions[0]
    return node


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table and node.name.upper() == _NOW and not node.this.quoted


def _read_span(text: SqlText, node: exp.Expression, *, timed: bool) -> int:
    """The distance from NOW, in microseconds or in units of a bigint order field."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not timed:
        if is_interval(node) or not isinstance(node, exp.Literal) or node.is_string:
            raise text.mistake(
                node,
                "a distance from NOW is a whole number here",
                "the order field of the source is a bigint",
                "write NOW - 1000, in units of the order field",
            )
        return lower_whole_number(text, node, "a distance from NOW")
    if is_interval(node):
        span = lower_interval(text, node)
        if span <= 0:
            raise text.mistake(node, "a distance from NOW is more than nothing", how="write NOW - '10 minutes'")
        return span
    return _read_duration(text, node)


def _read_duration(text: SqlText, node: exp.Expression) -> int:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise text.mistake(
            node,
            "a distance from NOW is a duration here",
            "the order field of the source is a timestamp",
            "write NOW - '10 minutes', or NOW - INTERVAL '10' MINUTE",
        )
    try:
        span = parse_duration(node.this)
    except UsageError as error:
        why = "months and years differ in length" if is_calendar_interval(node.this) else error.why
        raise text.mistake(node, error.what, why, error.how) from None
    if span <= 0:
        raise text.mistake(node, "a distance from NOW is more than nothing", how="write NOW - '10 minutes'")
    return span


def _read_time(text: SqlText, node: exp.Expression, *, timed: bool) -> int:
    given: Lit = read_constant(text, node)
    if timed:
        value = time_constant(text, node, given)
        if value is None:
            raise text.mistake(
                node,
                "a bound of the window is a time here",
                "the order field of the source is a timestamp",
                "write '2026-11-18 02:00:00', NOW, or NOW - '10 minutes'",
            )
        return value
    if not isinstance(given.value, int) or isinstance(given.value, bool) or given.type == TIMESTAMP:
        raise text.mistake(
            node,
            "a bound of the window is a whole number here",
            "the order field of the source is a bigint",
            "write 1000, NOW, or NOW - 1000",
        )
    return given.value
