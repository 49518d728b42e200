"""All that can be told about a query from its plan: what it does, what it keeps, and where its results come from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from errata.language.cost import Guess, NodeCost, Statistics, cost
from errata.language.explaining.remarks import remarks
from errata.language.lineage import in_words
from errata.language.nodes import scans
from errata.language.patterns import pattern
from errata.language.plan import Plan
from errata.language.rewrite import Step, rewrite
from errata.language.strategy import NOTHING, Choice, choose, result
from errata.language.tree import is_timed, line
from errata.model.columns import ColumnType
from errata.model.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a plan with what was found out about it; the plan's operators stand root first."""

    node: Plan
    depth: int
    pattern: Pattern
    """How its results come and go: the pattern of the edge above it."""
    operator: str
    """The implementation that is chosen for it."""
    state: str
    """What it keeps; empty when it keeps nothing."""
    why: str
    rate: float
    """Results for each second of event time, as estimated."""
    size: float
    """Results that count at the same time, as estimated."""
    cost: float
    """The work for each second of event time, as estimated."""


@dataclass(frozen=True, slots=True)
class Annotated:
    """A plan and what was found out about its operators."""

    plan: Plan
    operators: tuple[Operator, ...]
    result: Choice
    """What keeps the answer."""
    cost: float


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the answer."""

    name: str
    type: ColumnType
    is_key: bool
    hidden: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to know about a query."""

    name: str
    before: Annotated
    after: Annotated
    steps: tuple[Step, ...]
    """What was rewritten, and by which rule, in order."""
    columns: tuple[ResultColumn, ...]
    lineage: tuple[str, ...]
    """Which rows of what it reads make a result, in words."""
    remarks: tuple[str, ...]
    """What is worth knowing besides."""
    reads: tuple[str, ...]
    unknown: tuple[str, ...]
    """What it reads and nothing is known of, so that estimates of it are guesses."""


def explain(plan: Plan, statistics: Statistics | None = None, name: str = "the query") -> Explanation:
    """What there is to know about a plan; with statistics of what it reads, the estimates are better than guesses."""
    known = Guess() if statistics is None else statistics
    rewritten = rewrite(plan, known)
    reads = tuple(dict.fromkeys(scan.source.name for scan in scans(plan)))
    return Explanation(
        name,
        before=_annotated(plan, known),
        after=_annotated(rewritten.plan, known),
        steps=tuple(rewritten.steps),
        columns=_columns(plan),
        lineage=tuple(in_words(rewritten.plan)),
        remarks=remarks(rewritten.plan),
        reads=reads,
        unknown=tuple(each for each in reads if known.rate(each) is None and known.rows(each) is None),
    )


def _annotated(plan: Plan, statistics: Statistics) -> Annotated:
    estimated = cost(plan, statistics)
    operators = tuple(map(_operator, estimated.by_node, _depths(plan, 0)))
    return Annotated(plan, operators, result(plan), estimated.total)


def _operator(about: NodeCost, depth: int) -> Operator:
    node = about.node
    choice = choose(node)
    return Operator(
        node, depth, pattern(node), choice.operator, choice.state, choice.why, about.rate, about.size, about.cost
    )


def _depths(node: Plan, depth: int) -> Iterator[int]:
    """How deep each operator is, in the order of `walk`."""
    yield depth
    for child in node.inputs:
        yield from _depths(child, depth + 1)


def _columns(plan: Plan) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(each.name, each.type, each.name in plan.key, each.hidden) for each in plan.fields)


MEANS = {
    Pattern.MONOTONIC: "results are only ever added",
    Pattern.WEAKEST: "results expire in the order in which they came, each after the same span",
    Pattern.WEAK: "the end of each result is known when it comes, but they do not end in the order in which they came",
    Pattern.KEYED: "a result counts until the next one of its key takes its place",
    Pattern.STRICT: "some results end at moments that nobody can foretell",
}


def to_text(explanation: Explanation, width: int = 100) -> str:
    """The explanation as text for a terminal of a width."""
    after = explanation.after
    sections = [
        ("Answer", _answer(explanation, width)),
        ("Worth knowing", _bullets(explanation.remarks, width)),
        ("As written", _tree(explanation.before, width)),
        ("Rewritten", _steps(explanation, width)),
        ("How it is kept answered", [*_table(after, width), "", *_key_to_table(explanation, width)]),
        ("Why so", _reasons(after, width)),
        ("Where a result comes from", _lineage(explanation, width)),
    ]
    parts = [f"{title}\n{_indented(lines)}" for title, lines in sections if lines]
    return "\n".join([f"{explanation.name} reads {', '.join(explanation.reads)}\n", *parts])


def _indented(lines: list[str]) -> str:
    return "".join(f"  {each}".rstrip() + "\n" for each in lines)


def _wrapped(words: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        words, width - 2, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def _bullets(sentences: tuple[str, ...], width: int) -> list[str]:
    return [line for each in sentences for line in _wrapped(each, width, "- ", "  ")]


def _tree(plan: Annotated, width: int) -> list[str]:
    """The lines of the plan's text; those that are too long go on below."""
    lines = []
    for each in plan.operators:
        indent = "  " * each.depth
        lines += _wrapped(line(each.node), width, indent, f"{indent}    ")
    return lines


def _lineage(explanation: Explanation, width: int) -> list[str]:
    """What is read, and below it what is to be said of it."""
    lines = []
    for sentence in explanation.lineage:
        name, _, said = sentence.partition(": ")
        lines += [name, *(each for part in said.split("; ") for each in _wrapped(part, width, "  - ", "    "))]
    return lines


def _answer(explanation: Explanation, width: int) -> list[str]:
    """The columns, and how results come and go."""
    shown = explanation.columns
    name_width = max(len(each.name) for each in shown)
    type_width = max(len(str(each.type)) for each in shown)
    lines = [
        f"{each.name:{name_width}}  {each.type!s:{type_width}}  {', '.join(_about(each))}".rstrip() for each in shown
    ]
    how = explanation.after.operators[0].pattern
    return [*lines, "", *_wrapped(f"{how.shown}: {MEANS[how]}.", width)]


def _about(column: ResultColumn) -> list[str]:
    return [word for word, is_so in (("key", column.is_key), ("hidden", column.hidden)) if is_so]


def _steps(explanation: Explanation, width: int) -> list[str]:
    """What the rewriting did, and to what plan it came."""
    if not explanation.steps:
        return ["Nothing: no rule makes it better."]
    return [each for step in explanation.steps for each in _wrapped(_step(step), width, "- ", "  ")]


WHAT_RULES_DO = {
    "push_predicates": "conditions go down to where rows come in, so that what they drop is never carried",
    "relation_joins": "joins with relations go below what is strict, where no row is taken back again",
    "simplify_patterns": "what takes rows back goes up, so that fewer operators have to bear it",
    "pull_up_negation": "a negation goes above a join, which is then spared rows that are taken back",
    "place_distinct": "duplicates are dropped where that is cheapest",
    "prune_columns": "columns that nothing needs are not read",
}


def _step(step: Step) -> str:
    name = step.rule.replace("_", " ")
    return f"{name}: {WHAT_RULES_DO[step.rule]}" if step.rule in WHAT_RULES_DO else name


def _table(plan: Annotated, width: int) -> list[str]:
    """The plan that runs, each operator with its pattern and what it is estimated to cost."""
    per = _per(plan)
    heads = ("edge", f"rows/{per}", "held", f"work/{per}")
    rows = [(each.pattern.shown, amount(each.rate), amount(each.size), amount(each.cost)) for each in plan.operators]
    sizes = [max(len(row[at]) for row in [heads, *rows]) for at in range(4)]
    lines = [_cells(heads, sizes) + "operator"]
    # A deep plan in a narrow terminal is indented by less.
    room = width - len(lines[0])
    step = "  " if 4 * max(each.depth for each in plan.operators) < room else " "
    for operator, row in zip(plan.operators, rows, strict=True):
        begin = _cells(row, sizes) + step * operator.depth
        lines += _wrapped(line(operator.node), width, begin, " " * (len(begin) + 4))
    return lines


def _cells(row: Sequence[str], sizes: Sequence[int]) -> str:
    """The pattern to the left, numbers to the right."""
    numbers = [f"{text:>{size}}  " for text, size in zip(row[1:], sizes[1:], strict=True)]
    return f"{row[0]:{sizes[0]}}  {''.join(numbers)}"


def _per(plan: Annotated) -> str:
    return "s" if is_timed(plan.plan) else "unit"


def _key_to_table(explanation: Explanation, width: int) -> list[str]:
    """What the words and the numbers of the table mean."""
    plan = explanation.after
    used = {each.pattern for each in plan.operators}
    per = "second" if is_timed(plan.plan) else "unit"
    said = [f"{each.shown}: {MEANS[each]}" for each in Pattern if each in used]
    said.append(
        f"for each {per} of event time: results (rows) and rows touched (work), {amount(plan.cost)} in all;"
        " held: results that count at a time"
    )
    if explanation.unknown:
        said.append(f"nothing is known yet of {', '.join(explanation.unknown)}: the numbers rest on guesses")
    return [each for sentence in said for each in _wrapped(sentence, width, "", "  ")]


def _reasons(plan: Annotated, width: int) -> list[str]:
    """The operators that keep something, and why they keep it so; what holds for several is said once."""
    said = [(f"{each.operator} keeps {each.state}", each.why) for each in plan.operators if each.state != NOTHING]
    said.append((f"the answer is kept as {plan.result.state}", plan.result.why))
    lines = []
    for what, why in dict.fromkeys(said):
        lines += [*_wrapped(what, width, "- ", "  "), *_wrapped(why, width, "  ", "  ")]
    return lines


def amount(value: float) -> str:
    """A number with three digits that count: 0.0033, 12, 1.2k, 3.5M."""
    for unit, name in ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        if abs(value) < 999.5 * unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"
