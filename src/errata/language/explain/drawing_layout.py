"""The place of each operator of a drawn plan, and its label.

Subtrees are laid out bottom up and placed as close beside each other as their outlines allow; an operator stands above
the middle of its inputs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

from errata.language.explain.explanation import ExplainedOperator
from errata.language.expr import OR, Call, Expr, Ref, conjuncts
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.outer_joins import OuterJoin
from errata.language.patterns import NO_STATE
from errata.language.plan import Plan, PlanError
from errata.language.plan_text import aggregate_text, expr_text, has_timestamps, operator_text, span_text, window_text
from errata.model.results import UpdatePattern

LETTERS, LINES, NARROWEST, ASIDE, SMALL = 34, 6, 72.0, 26.0, 10.5


@dataclass(frozen=True, slots=True)
class OperatorBlock:
    """The content of one place: a sign of the algebra with its argument, or the box of a source."""

    title: str
    symbol: str
    """A letter, the name of a drawn sign, or for a leaf the kind of the source."""
    mark: str
    """The superscript of the sign."""
    leaf: str | None
    lines: tuple[str, ...]
    small: tuple[str, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block at its place: the middle of its upper edge."""

    block: OperatorBlock
    pattern: UpdatePattern
    parent: int | None
    depth: int
    x: float
    y: float


_NARROW, _WIDE = frozenset("ijlI.,:;'|![]()/ "), frozenset("mwMW@%—…")


def text_width(words: str, size: float) -> float:
    """A width that the words do not exceed in any sans-serif font that is common (DejaVu Sans and Verdana are wide)."""
    return size * sum(
        0.40 if each in _NARROW else 1.0 if each in _WIDE else 0.68 if each < "a" else 0.635 for each in words
    )


def operator_block(operator: ExplainedOperator) -> OperatorBlock:
    """The label of an operator in a drawing."""
    node = operator.node
    symbol, items = _node_label(node)
    lines, leaf = _item_lines(items), None
    if isinstance(node, Scan):
        leaf, lines = lines[0], []
    small = [] if operator.state == NO_STATE else _item_lines(operator.state.replace("; ", ";\n").split("\n"), 40)
    widths = [text_width(each, 12) for each in lines] + [text_width(each, SMALL) for each in small] + [NARROWEST]
    if leaf is not None:
        widths += [1.1 * text_width(leaf, 13) + 24, text_width(symbol, SMALL) + 24]
    height = (26 if leaf is None else 42) + 15 * len(lines) + 13 * len(small) + 2
    return OperatorBlock(
        operator_text(node),
        symbol,
        _implementation_mark(operator),
        leaf,
        tuple(lines),
        tuple(small),
        max(widths),
        height,
    )


def _implementation_mark(operator: ExplainedOperator) -> str:
    """The mark of an implementation among others with the same sign."""
    if isinstance(operator.node, RelationJoin):
        return "R" if operator.node.retroactive else "NRR"
    return "*" if operator.operator.startswith("δ*") else ""


def _item_lines(items: Sequence[str], letters: int = LETTERS) -> list[str]:
    """Items in short lines, an item whole where it can be; of many lines the first, since the title has them all."""
    lines: list[str] = []
    for item in items:
        parts = textwrap.wrap(item, letters, break_on_hyphens=False)
        if lines and parts and len(lines[-1]) + 1 + len(parts[0]) <= letters:
            lines[-1] += f" {parts.pop(0)}"
        lines += parts
    return lines if len(lines) <= LINES else [*lines[: LINES - 1], "…"]


def _item_list(items: Iterable[str], between: str = ",") -> list[str]:
    listed = list(items)
    return [f"{each}{between}" for each in listed[:-1]] + listed[-1:]


@singledispatch
def _node_label(node: Plan) -> tuple[str, Sequence[str]]:
    """The sign, and the parts of its argument."""
    raise PlanError(f"{type(node).__name__} has no sign")


@_node_label.register
def _(node: Scan) -> tuple[str, Sequence[str]]:
    source = node.source
    kind = f"{source.kind.value} relation" if source.kind.is_relation else source.kind.value
    return kind + ("" if node.alias == source.name else f" as {node.alias}"), [source.name]


@_node_label.register
def _(node: Sliding) -> tuple[str, Sequence[str]]:
    return "ω", [span_text(node.span, timed=has_timestamps(node))]


@_node_label.register
def _(node: SlidingRows) -> tuple[str, Sequence[str]]:
    return "ω", [f"{node.rows} row{'' if node.rows == 1 else 's'}"]


@_node_label.register
def _(node: Filter) -> tuple[str, Sequence[str]]:
    return "σ", _condition_parts(node.predicate)


@_node_label.register
def _(node: Projection) -> tuple[str, Sequence[str]]:
    return "π", _item_list(map(_output_text, node.outputs))


@_node_label.register
def _(node: Join) -> tuple[str, Sequence[str]]:
    return ("cross", []) if node.condition is None else ("join", _condition_parts(node.condition))


@_node_label.register
def _(node: RelationJoin) -> tuple[str, Sequence[str]]:
    return "join", _condition_parts(node.condition)


@_node_label.register
def _(_node: Union) -> tuple[str, Sequence[str]]:
    return "union", []


@_node_label.register
def _(node: OuterJoin) -> tuple[str, Sequence[str]]:
    return f"{node.side} outer join", ["union"]


@_node_label.register
def _(_node: Distinct) -> tuple[str, Sequence[str]]:
    return "δ", []


@_node_label.register
def _(_node: Intersect) -> tuple[str, Sequence[str]]:
    return "intersect", []


@_node_label.register
def _(node: Negation) -> tuple[str, Sequence[str]]:
    rank = [] if node.rank is None else [f"youngest by {', '.join(node.rank)}"]
    return "minus", [*_item_list(f"{left} = {right}" for left, right in node.columns), *rank]


@_node_label.register
def _(node: Group) -> tuple[str, Sequence[str]]:
    window = window_text(node)
    by = _item_list([*map(expr_text, node.by), *([] if window is None else [window])])
    found = _item_list(map(aggregate_text, node.aggregates))
    return "γ", [*by[:-1], f"{by[-1]};", *found] if by and found else [*by, *found]


def _condition_parts(condition: Expr | None) -> list[str]:
    """The parts of a condition; each is text that binds as strongly as it must."""
    parts = conjuncts(condition)
    if len(parts) < 2:
        return [expr_text(each) for each in parts]
    # A part that binds less than AND needs its brackets.
    bracketed = [
        f"({expr_text(each)})" if isinstance(each, Call) and each.name == OR else expr_text(each) for each in parts
    ]
    return _item_list(bracketed, " AND")


def _output_text(output: Output) -> str:
    """A column that keeps its name is not named twice."""
    expr = output.expr
    same = isinstance(expr, Ref) and expr.name.rpartition(".")[2] == output.name.rpartition(".")[2]
    return expr_text(expr) if same else f"{output.name} = {expr_text(expr)}"


def place_blocks(
    operators: Sequence[ExplainedOperator], blocks: Sequence[OperatorBlock], gap: float
) -> tuple[tuple[PlacedBlock, ...], float, float]:
    """Every operator at its place, the root first; with the width and the height of the whole.

    Subtrees stand beside each other as closely as their outlines allow, an operator above the middle of its inputs.
    """
    children: list[list[int]] = [[] for _ in operators]
    parents: list[int | None] = [None] * len(operators)
    way: list[int] = []
    for number, operator in enumerate(operators):
        del way[operator.depth :]
        if way:
            parents[number] = way[-1]
            children[way[-1]].append(number)
        way.append(number)
    places = _block_centers(blocks, children)
    rows = _row_tops(operators, blocks, gap)
    placed = tuple(
        PlacedBlock(block, operator.pattern, parents[at], operator.depth, places[at], rows[operator.depth])
        for at, (operator, block) in enumerate(zip(operators, blocks, strict=True))
    )
    left = min(each.x - each.block.width / 2 for each in placed)
    moved = tuple(replace(each, x=each.x - left) for each in placed)
    right = max(each.x + each.block.width / 2 for each in moved)
    return moved, right, max(each.y + each.block.height for each in moved)


def _row_tops(operators: Sequence[ExplainedOperator], blocks: Sequence[OperatorBlock], gap: float) -> list[float]:
    """The top of each row: all operators of one depth begin at one height."""
    tallest = [0.0] * (1 + max(each.depth for each in operators))
    for operator, block in zip(operators, blocks, strict=True):
        tallest[operator.depth] = max(tallest[operator.depth], block.height)
    rows = [0.0]
    for height in tallest[:-1]:
        rows.append(rows[-1] + height + gap)
    return rows


Outline = list[tuple[float, float]]
"""The left and the right edge of each row of a subtree, relative to its root."""


def _block_centers(blocks: Sequence[OperatorBlock], children: Sequence[Sequence[int]]) -> list[float]:
    """The middle of each block. Inputs come after what reads them, so that the last are laid out first."""
    offsets = [0.0] * len(blocks)
    outlines: list[Outline] = [[] for _ in blocks]
    for number in reversed(range(len(blocks))):
        half = blocks[number].width / 2
        merged: Outline = []
        for child in children[number]:
            offsets[child] = max(
                (done[1] + ASIDE - new[0] for done, new in zip(merged, outlines[child], strict=False)), default=0.0
            )
            moved = [(left + offsets[child], right + offsets[child]) for left, right in outlines[child]]
            both = [(done[0], new[1]) for done, new in zip(merged, moved, strict=False)]
            merged = both + merged[len(both) :] + moved[len(both) :]
        if children[number]:
            middle = (offsets[children[number][0]] + offsets[children[number][-1]]) / 2
            for child in children[number]:
                offsets[child] -= middle
            merged = [(left - middle, right - middle) for left, right in merged]
        outlines[number] = [(-half, half), *merged]
    places = [0.0] * len(blocks)
    for number in range(len(blocks)):
        for child in children[number]:
            places[child] = places[number] + offsets[child]
    return places
