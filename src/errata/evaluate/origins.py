"""What a row is called: by the stream that it is a row of if there is one, else by the key of its node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import pyarrow as pa

from errata.engine.plans.rows import VS
from errata.language.expr import Expr, refs
from errata.language.nodes import (
    BRANCH,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
    scans,
)
from errata.language.plan import Plan, PlanError, SourceKind
from errata.model.columns import ColumnType, Kind
from errata.model.instants import format_instant

_NULL = "NULL"
_LONGEST = 100
_DOTTED = re.compile(r"[A-Za-z]\w*\.([A-Za-z]\w*)", re.ASCII)
_BRANCHS = re.compile(rf"{BRANCH}(?:_\d+)*(\.|$)")
"""Before the names of a union's hidden columns."""
_NUMBERED = re.compile(r"(window_(?:start|end|no))_\d+")
_KINDS = {SourceKind.STREAM: "stream", SourceKind.QUERY: "query"}


@dataclass(frozen=True, slots=True)
class Named:
    """A row as a person is told of it."""

    row: Mapping[str, str]
    values: Mapping[str, str]
    vs: int | None
    source: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """A scan that rows come from one by one, and what its columns are called further up."""

    scan: Scan
    columns: Mapping[str, str]


def named(plan: Plan, row: pa.Table, expr: Expr | None = None) -> Named:
    """What a row of a node is called, a table of one row. Of a join's, the side that the expression reads."""
    texts = {each.name: text(row, each.name, each.type) for each in plan.fields}
    read = {name: texts[name] for name in sorted(refs(expr))} if expr is not None else {}
    vs = row.column(VS)[0].as_py()
    found = origin(plan, frozenset(read), texts) if read else None
    if found is None or not set(found.scan.key) <= found.columns.keys():
        return Named(_shown({name: texts[name] for name in plan.key}), read, vs)
    source = found.scan.source
    key = {found.scan.of_source(name): texts[found.columns[name]] for name in found.scan.key}
    order = None if source.order is None else found.columns.get(found.scan.column(source.order))
    if order is not None and source.order is not None:
        key.setdefault(source.order, texts[order])
        vs = row.column(order).cast(pa.int64())[0].as_py()
    elif len(scans(plan)) > 1:
        vs = None
    return Named(_shown(key), read, vs, source.name, _KINDS.get(source.kind, "relation"))


def text(row: pa.Table, name: str, kind: ColumnType) -> str:
    """A value of a row, as text."""
    value = row.column(name)[0]
    if not value.is_valid:
        return _NULL
    if kind.kind is Kind.TIMESTAMP:
        return moment(value.cast(pa.int64()).as_py())
    shown = str(value.cast(pa.string()).as_py())
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


def moment(micros: int) -> str:
    """An instant as text, also one that no calendar has."""
    try:
        return format_instant(micros)
    except OverflowError:
        return f"{micros} microseconds"


def _shown(key: Mapping[str, str]) -> dict[str, str]:
    """Columns without what is hidden in their names. A union's rows have NULL in the key columns of other branches."""
    told = {
        _NUMBERED.sub(r"\1", _BRANCHS.sub("", name)): value
        for name, value in key.items()
        if not _BRANCHS.match(name) or value != _NULL
    }
    told.pop("", None)
    short = [_last(name) for name in told]
    return dict(zip(short, told.values(), strict=True)) if len(set(short)) == len(short) else told


def _last(name: str) -> str:
    found = _DOTTED.fullmatch(name)
    return found[1] if found else name


def origin(plan: Plan, read: frozenset[str], texts: Mapping[str, str]) -> Origin | None:
    """The scan that a row comes from, as far as the columns go that are read of it; None if it was made of several
    rows. The row's values tell which branch of a union it is from."""
    return _origin(plan, read, texts)


@singledispatch
def _origin(plan: Plan, _read: frozenset[str], _texts: Mapping[str, str]) -> Origin | None:
    raise PlanError(f"where rows of {type(plan).__name__} come from is not known")


@_origin.register(Distinct)
@_origin.register(Intersect)
@_origin.register(Group)
def _(_plan: Plan, _read: frozenset[str], _texts: Mapping[str, str]) -> Origin | None:
    # A row of these is made of rows that no one of them stands for.
    return None


@_origin.register
def _(plan: Scan, _read: frozenset[str], _texts: Mapping[str, str]) -> Origin | None:
    return Origin(plan, {name: name for name in plan.types})


@_origin.register(Sliding)
@_origin.register(SlidingRows)
@_origin.register(Filter)
def _(plan: Sliding | SlidingRows | Filter, read: frozenset[str], texts: Mapping[str, str]) -> Origin | None:
    return _origin(plan.input, read, texts)


@_origin.register
def _(plan: Negation, read: frozenset[str], texts: Mapping[str, str]) -> Origin | None:
    return _origin(plan.left, read, texts)


@_origin.register
def _(plan: Project, read: frozenset[str], texts: Mapping[str, str]) -> Origin | None:
    below = {name for each in plan.outputs if each.name in read for name in refs(each.expr)}
    above = {**{name: name for name in plan.carried}, **plan.kept}
    told = {name: texts[higher] for name, higher in above.items() if higher in texts}
    return _renamed(_origin(plan.input, frozenset(below | (read & set(plan.carried))), told), above)


@_origin.register(Join)
@_origin.register(RelationJoin)
def _(plan: Join | RelationJoin, read: frozenset[str], texts: Mapping[str, str]) -> Origin | None:
    side = next((each for each in plan.inputs if read and read <= each.types.keys()), None)
    return None if side is None else _origin(side, read, texts)


@_origin.register
def _(plan: Union, read: frozenset[str], texts: Mapping[str, str]) -> Origin | None:
    number = texts.get(plan.branch_column, "")
    if not number.isdigit():
        return None
    branch = plan.branches[int(number)]
    above = {mine.name: theirs.name for mine, theirs in zip(branch.visible, plan.visible, strict=True)}
    if plan.key_positions is None:
        above = {**{name: plan.key_column(int(number), name) for name in branch.key}, **above}
    below = frozenset(name for name, higher in above.items() if higher in read)
    told = {name: texts[higher] for name, higher in above.items() if higher in texts}
    return _renamed(_origin(branch, below, told), above)


def _renamed(below: Origin | None, above: Mapping[str, str]) -> Origin | None:
    if below is None:
        return None
    return Origin(below.scan, {name: above[mine] for name, mine in below.columns.items() if mine in above})
