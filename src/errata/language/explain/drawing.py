"""An explained plan as SVG: inputs at the bottom, the answer at the top, its update pattern at each edge.

It follows figures 1, 6 and 8 of Golab and Özsu (2005). The SVG is self-contained. Text is measured with the widest of
the fonts that may replace the wanted one, so that nothing overlaps with any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from errata.language.explain.drawing_layout import (
    SMALL,
    OperatorBlock,
    PlacedBlock,
    operator_block,
    place_blocks,
    text_width,
)
from errata.language.explain.explanation import ExplainedPlan, Explanation
from errata.model.results import UpdatePattern

PAPER, INK, PALE, RULE = "#ffffff", "#1f2328", "#57606a", "#8c959f"
LEAF, RELATION = "#f3f6fa", "#f8f3e6"
SANS_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SERIF_FONT = "'Times New Roman', Times, 'Liberation Serif', 'DejaVu Serif', serif"
MARGIN, BETWEEN, HEAD, DROP, FAN = 28.0, 64.0, 42.0, 32.0, 20.0
PILL_WIDTH, PILL_HEIGHT = 42.0, 17.0
FINE_PRINT = f'font-size="{SMALL:g}" font-style="italic" fill="{PALE}"'


@dataclass(frozen=True, slots=True)
class EdgeStyle:
    """The style of a pattern's edges: distinguished by colour, by line, and by the name on them."""

    colour: str
    line: str
    means: str


EDGE_STYLES = {
    "MON": EdgeStyle("#2d6a4a", 'stroke-width="1.3"', "results are only added"),
    "WKS": EdgeStyle("#1f5fa8", 'stroke-width="2"', "results expire in the order in which they came"),
    "WK": EdgeStyle(
        "#8f5300", 'stroke-width="1.6" stroke-dasharray="7 3"', "results expire at known times, in another order"
    ),
    "STR": EdgeStyle(
        "#b3261e", 'stroke-width="2" stroke-dasharray="2 3"', "some results end at times nobody can foretell"
    ),
}
KEYED_NOTE = ", or when the next of their key comes"


@dataclass(frozen=True, slots=True)
class DrawnPlan:
    """One plan, laid out."""

    name: str
    heading: str
    answer: str
    """The state that keeps the answer."""
    nodes: tuple[PlacedBlock, ...]
    width: float
    height: float

    @property
    def looks(self) -> list[tuple[object, ...]]:
        """All visible parts of the plan, without the titles, which say more."""
        return [(each.pattern, each.depth, replace(each.block, title="")) for each in self.nodes]


def to_svg(explanation: Explanation) -> str:
    """The plan after rewriting, and beside it the one before if that looks different, as a self-contained SVG."""
    panels = [_lay_out(explanation.after, explanation.name, "")]
    written = _lay_out(explanation.before, explanation.name, "as written")
    if written.looks != panels[0].looks:
        panels = [written, _lay_out(explanation.after, explanation.name, "rewritten")]
    patterns = [each.pattern for panel in panels for each in panel.nodes]
    tallest = max(each.height for each in panels)
    legend, legend_width, legend_height = _legend_svg(patterns, MARGIN + tallest + 22)
    wide = sum(each.width for each in panels) + BETWEEN * (len(panels) - 1)
    width = max(wide, legend_width) + 2 * MARGIN
    parts: list[str] = []
    left = (width - wide) / 2
    for panel in panels:
        parts += _panel_svg(panel, left, MARGIN)
        left += panel.width + BETWEEN
    height = MARGIN + tallest + 22 + legend_height + MARGIN / 2
    return "\n".join([*_svg_head(explanation, width, height), *parts, *legend, "</g>", "</svg>", ""])


def _svg_head(explanation: Explanation, width: float, height: float) -> list[str]:
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(f'The plan of {explanation.name}')}</title>",
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        f'<g font-family="{SANS_FONT}" font-size="12" fill="{INK}" stroke-linecap="butt">',
    ]


def _lay_out(plan: ExplainedPlan, name: str, heading: str) -> DrawnPlan:
    blocks = [operator_block(each) for each in plan.operators]
    answer = f"answer: {plan.result.state}"
    widest = max(blocks[0].width, 1.1 * text_width(name, 15), text_width(answer, SMALL))
    blocks[0] = replace(blocks[0], width=widest)
    nodes, width, height = place_blocks(plan.operators, blocks, gap=DROP + FAN)
    return DrawnPlan(name, heading, answer, nodes, width, height + HEAD + DROP + (22 if heading else 0))


def _panel_svg(panel: DrawnPlan, left: float, top: float) -> Iterator[str]:
    """The parts of a panel; edges first, so that nothing of them lies over a text."""
    root = panel.nodes[0]
    if panel.heading:
        yield _text_svg(left + root.x, top + 10, panel.heading, f'font-style="italic" fill="{PALE}"')
        top += 22
    yield _text_svg(left + root.x, top + 14, panel.name, 'font-size="15" font-weight="bold"')
    yield _text_svg(left + root.x, top + 29, panel.answer, FINE_PRINT)
    yield f'<g transform="translate({left:g} {top + HEAD + DROP:g})">'
    yield from _edge_svg(root, -DROP - 6, root.x, -DROP)
    for node in panel.nodes[1:]:
        if node.parent is not None:
            above = panel.nodes[node.parent]
            yield from _edge_svg(node, above.y + above.block.height, above.x, node.y - DROP - FAN)
    for node in panel.nodes:
        yield from _node_svg(node)
    yield "</g>"


def _edge_svg(node: PlacedBlock, start: float, across: float, band: float) -> Iterator[str]:
    """From the operator above down to this one: along the row of the upper, slanting between the rows, and down again;
    the pattern stands on the last piece, where no other edge passes."""
    shown = node.pattern.shown
    look = EDGE_STYLES[shown]
    bend = node.y - DROP
    down = f"M{across:.1f} {start:.1f}V{band:.1f}L{node.x:.1f} {bend:.1f}V{node.y - 2:.1f}"
    yield f'<path d="{down}" fill="none" stroke="{look.colour}" {look.line}/>'
    middle = (band + node.y) / 2 if across == node.x else bend + (DROP - 2) / 2
    yield from _pill_svg(shown, node.x, middle)


def _pill_svg(shown: str, x: float, y: float) -> Iterator[str]:
    look = EDGE_STYLES[shown]
    box = f'x="{x - PILL_WIDTH / 2:.1f}" y="{y - PILL_HEIGHT / 2:.1f}" width="{PILL_WIDTH:g}" height="{PILL_HEIGHT:g}"'
    yield f'<rect {box} rx="{PILL_HEIGHT / 2:g}" fill="{PAPER}" stroke="{look.colour}"/>'
    yield _text_svg(x, y + 3.9, shown, f'font-size="11" font-weight="bold" fill="{look.colour}"')


def _node_svg(node: PlacedBlock) -> Iterator[str]:
    block = node.block
    yield f"<g><title>{escape(block.title)}</title>"
    y = node.y
    if block.leaf is not None:
        yield from _leaf_svg(block, node.x, y)
    else:
        yield from _symbol_svg(block.symbol, block.mark, node.x, y + 11)
        y += 26
    for number, line in enumerate(block.lines):
        yield _text_svg(node.x, y + 15 * number + 11, line)
    y += 15 * len(block.lines)
    for number, line in enumerate(block.small):
        yield _text_svg(node.x, y + 13 * number + 11, line, FINE_PRINT)
    yield "</g>"


def _leaf_svg(block: OperatorBlock, x: float, y: float) -> Iterator[str]:
    """The box of a source: rounded for streams and queries, with corners for relations, which are tables."""
    is_table = "relation" in block.symbol
    wide, name = block.width, block.leaf or ""
    box = f'x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="42"'
    yield f'<rect {box} rx="{0 if is_table else 9}" fill="{RELATION if is_table else LEAF}" stroke="{RULE}"/>'
    yield _text_svg(x, y + 17, name, 'font-size="13" font-weight="bold"')
    yield _text_svg(x, y + 32, block.symbol, f'font-size="10.5" fill="{PALE}"')


SYMBOL_PATHS = {
    "join": "M-10 -7V7L10 -7V7Z",
    "cross": "M-6.5 -6.5L6.5 6.5M-6.5 6.5L6.5 -6.5",
    "union": "M-7 -8V1A7 7 0 0 0 7 1V-8",
    "intersect": "M-7 8V-1A7 7 0 0 1 7 -1V8",
    "minus": "M-8 0H8",
}
"""Signs that are drawn as paths, since not every font has them."""


def _symbol_svg(symbol: str, mark: str, x: float, y: float) -> Iterator[str]:
    if symbol in SYMBOL_PATHS:
        drawn = f'd="{SYMBOL_PATHS[symbol]}" fill="none" stroke="{INK}" stroke-width="1.7" stroke-linejoin="round"'
        yield f'<path transform="translate({x:.1f} {y:.1f})" {drawn}/>'
    else:
        yield _text_svg(x, y + 7, symbol, f'font-family="{SERIF_FONT}" font-size="24" font-style="italic"')
    if mark:
        yield _text_svg(x + 11, y - 3, mark, f'font-family="{SERIF_FONT}" font-size="12"', anchor="start")


def _legend_svg(patterns: list[UpdatePattern], top: float) -> tuple[list[str], float, float]:
    """The legend of the patterns on the edges; with its width and height."""
    parts: list[str] = []
    used = [name for name in EDGE_STYLES if any(each.shown == name for each in patterns)]
    widest = 0.0
    for number, name in enumerate(used):
        y = top + 21 * number + 9
        look = EDGE_STYLES[name]
        means = look.means + (KEYED_NOTE if name == "WK" and UpdatePattern.KEYED in patterns else "")
        line = f'd="M{MARGIN:g} {y:g}h{PILL_WIDTH + 32:g}" stroke="{look.colour}"'
        parts += [f"<path {line} {look.line}/>", *_pill_svg(name, MARGIN + PILL_WIDTH / 2 + 16, y)]
        parts.append(_text_svg(MARGIN + PILL_WIDTH + 44, y + 4, means, f'font-size="11" fill="{PALE}"', anchor="start"))
        widest = max(widest, PILL_WIDTH + 44 + text_width(means, 11))
    return parts, widest, 21.0 * len(used)


def _text_svg(x: float, y: float, words: str, how: str = "", *, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {how}>{escape(words)}</text>'
