"""A registered text is read: parsed, checked, and turned into a plan whose every part is a value.

    SELECT a.sym, b.price FROM a, b WHERE a.price > 5 AND a.sym = b.sym BEGIN (NOW - '10 minutes') END (NOW)
           items (`items`)   FROM (`scope`)  factors, relations (`factors`)  windows (`windows`)

What is not understood is refused, with its place in the text. The rules of constants are in `constants`; equal
conditions are brought to one form in `conditions`, and `statement` prints the text without its constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from errata.language.reading.mistakes import TOO_DEEP, LanguageError, SqlText
from errata.language.reading.parser import parse_tokens, refuse_unknown_parts, tokenize
from errata.language.reading.samples import refuse_samples
from errata.language.registered.factors import ConditionReader
from errata.language.registered.items import read_items
from errata.language.registered.scope import FromReader, SourceScope
from errata.language.registered.statement import with_statement
from errata.language.registered.trees import KnownTrees
from errata.language.registered.windows import WrittenWindow, read_window, split_windows
from errata.model.registered import RegisteredPlan, RegisteredSource, RegisteredWindow
from errata.model.stream import Stream

_SELECT_PARTS = {"expressions", "from_", "joins", "where", "distinct"}
_GROUP_ADVICE = "declare the query under queries:, where groups are kept up to date"
_REFUSED_PARTS = {
    "group": (
        "GROUP BY is not part of registered queries",
        "an aggregate is over all rows of the answer; groups would be as many answers",
        _GROUP_ADVICE,
    ),
    "having": ("HAVING is not part of registered queries", "it is a condition on groups", _GROUP_ADVICE),
    "with_": (
        "WITH is not part of registered queries",
        "they select, project and join the rows of streams",
        "declare the query under queries:",
    ),
}

_TREES = KnownTrees()


def read_registered(
    text: str, streams: Mapping[str, Stream], *, where: str = "query", queries: Collection[str] = ()
) -> RegisteredPlan:
    """The plan of a registered text over declared streams; raises `LanguageError` for any other text.

    `where`: what messages call the text. `queries`: names of declared queries, which cannot be read here.
    """
    sql = SqlText(text, where)
    try:
        with _TREES.lock:
            try:
                return _read(sql, streams, queries, _TREES.parse)
            except LanguageError:
                pass  # its places may be those of another text
        return _read(sql, streams, queries, parse_tokens)
    except RecursionError:
        raise sql.mistake(0, *TOO_DEEP) from None


def _read(
    text: SqlText,
    streams: Mapping[str, Stream],
    queries: Collection[str],
    parse: Callable[[SqlText, Sequence[Token]], exp.Query],
) -> RegisteredPlan:
    tokens, written = split_windows(text, refuse_samples(text, tokenize(text), "registered queries"))
    select = _select(text, parse(text, tokens))
    scope, conditions = FromReader(text, streams, queries).read(select)
    where = select.args.get("where")
    if where is not None:
        refuse_unknown_parts(text, where, {"this"})
        conditions.append(where.this)
    reader = ConditionReader(text, scope)
    reader.read(conditions)
    items = read_items(text, scope, select.expressions)
    distinct = select.args.get("distinct")
    if distinct is not None:
        refuse_unknown_parts(text, distinct, ())
        if any(each.function is not None for each in items):
            raise text.mistake(distinct, "aggregates give one row", how="leave out DISTINCT")
    plan = RegisteredPlan(
        sources=tuple(RegisteredSource(each.stream.name, each.alias) for each in scope.sources),
        conjunctions=reader.conjunctions,
        relations=reader.relations,
        windows=_windows(text, scope, written),
        items=items,
        distinct=distinct is not None,
        statement="",
        parameters=(),
    )
    return with_statement(plan)


def _select(text: SqlText, tree: exp.Query) -> exp.Select:
    """The one SELECT that a registered text is."""
    if isinstance(tree, exp.SetOperation):
        raise text.mistake(
            tree,
            f"{tree.key.upper()} is not part of registered queries",
            "they select, project and join the rows of streams",
            "register both sides, or declare the query under queries:",
        )
    if not isinstance(tree, exp.Select):
        raise text.mistake(tree, "a registered query is one SELECT, without brackets around it")
    for name, refusal in _REFUSED_PARTS.items():
        if tree.args.get(name) is not None:
            raise text.mistake(tree.args[name], *refusal)
    refuse_unknown_parts(text, tree, _SELECT_PARTS)
    return tree


def _windows(text: SqlText, scope: SourceScope, written: Sequence[WrittenWindow]) -> tuple[RegisteredWindow, ...]:
    """The window of each source."""
    found: dict[int, RegisteredWindow] = {}
    for each in written:
        window = read_window(text, each, timed=scope.timed)
        if each.name is None:
            return (window,) * len(scope.sources)
        place = each.name.start, each.name.end + 1
        at = scope.source(place, each.name.text)
        if at in found:
            raise text.mistake(place, f"{each.name.text} has two windows", how="leave one of them out")
        found[at] = window
    for at, source in enumerate(scope.sources):
        if at not in found:
            raise text.mistake(
                written[-1].place,
                f"{source.alias} has no window",
                "every source of a registered query has one",
                f"add , FOR {source.alias} BEGIN (NOW - '10 minutes') END (NOW)",
            )
    return tuple(found[at] for at in range(len(scope.sources)))
