"""All that is known of a query from its plan, collected (`explain_plan`) and printed as text (`explanation_text`): what
it does, what state it keeps, and which rows its results come from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from errata.language.cost import DefaultStatistics, NodeCost, Statistics, plan_cost
from errata.language.explain.remarks import plan_remarks
from errata.language.lineage import lineage_sentences
from errata.language.nodes import scans_of
from errata.language.patterns import NO_STATE, OperatorChoice, choose_operator, result_choice, update_pattern
from errata.language.plan import Plan
from errata.language.plan_text import has_timestamps, operator_text
from errata.language.rewrite import RewriteStep, rewrite_plan
from errata.model.columns import ColumnType
from errata.model.results import UpdatePattern


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """One operator of a plan with its facts. The operators of a plan are listed root first."""

    node: Plan
    depth: int
    pattern: UpdatePattern
    """The update pattern of the edge above it."""
    operator: str
    """The implementation chosen for it."""
    state: str
    """The state that it keeps; empty for none."""
    why: str
    rate: float
    """Estimated results per second of event time."""
    size: float
    """Estimated results that count at one time."""
    cost: float
    """Estimated rows touched per second of event time."""


@dataclass(frozen=True, slots=True)
class ExplainedPlan:
    """A plan and the facts about its operators."""

    plan: Plan
    operators: tuple[ExplainedOperator, ...]
    result: OperatorChoice
    """The state that keeps the answer."""
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
    """All that is known about a query."""

    name: str
    before: ExplainedPlan
    after: ExplainedPlan
    steps: tuple[RewriteStep, ...]
    """The steps of rewriting, in order."""
    columns: tuple[ResultColumn, ...]
    lineage: tuple[str, ...]
    """Lineage in words: which rows of the inputs make a result."""
    remarks: tuple[str, ...]
    """Warnings and hints."""
    reads: tuple[str, ...]
    unknown: tuple[str, ...]
    """Sources without statistics, whose estimates are guesses."""


def explain_plan(plan: Plan, statistics: Statistics | None = None, name: str = "the query") -> Explanation:
    """Explain a plan. With statistics of its sources, the estimates are better than guesses."""
    known = DefaultStatistics() if statistics is None else statistics
    rewritten = rewrite_plan(plan, known)
    reads = tuple(dict.fromkeys(scan.source.name for scan in scans_of(plan)))
    return Explanation(
        name,
        before=_explained_plan(plan, known),
        after=_explained_plan(rewritten.plan, known),
        steps=tuple(rewritten.steps),
        columns=_result_columns(plan),
        lineage=tuple(lineage_sentences(rewritten.plan)),
        remarks=plan_remarks(rewritten.plan),
        reads=reads,
        unknown=tuple(each for each in reads if known.rate(each) is None and known.rows(each) is None),
    )


def _explained_plan(plan: Plan, statistics: Statistics) -> ExplainedPlan:
    estimated = plan_cost(plan, statistics)
    operators = tuple(map(_explained_operator, estimated.by_node, _operator_depths(plan, 0)))
    return ExplainedPlan(plan, operators, result_choice(plan), estimated.total)


def _explained_operator(about: NodeCost, depth: int) -> ExplainedOperator:
    node = about.node
    choice = choose_operator(node)
    return ExplainedOperator(
        node, depth, update_pattern(node), choice.operator, choice.state, choice.why, about.rate, about.size, about.cost
    )


def _operator_depths(node: Plan, depth: int) -> Iterator[int]:
    """The depth of each operator, in the order of `walk_plan`."""
    yield depth
    for child in node.inputs:
        yield from _operator_depths(child, depth + 1)


def _result_columns(plan: Plan) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(each.name, each.type, each.name in plan.key, each.hidden) for each in plan.fields)


PATTERN_MEANINGS = {
    UpdatePattern.MONOTONIC: "results are only ever added",
    UpdatePattern.WEAKEST: "results expire in the order in which they came, each after the same span",
    UpdatePattern.WEAK: "the end of each result is known when it comes, but they do not end in the order "
    "in which they came",
    UpdatePattern.KEYED: "a result counts until the next one of its key takes its place",
    UpdatePattern.STRICT: "some results end at moments that nobody can foretell",
}


def explanation_text(explanation: Explanation, width: int = 100) -> str:
    """The explanation as text for a terminal of a width."""
    after = explanation.after
    sections = [
        ("Answer", _answer_lines(explanation, width)),
        ("Worth knowing", _bullet_lines(explanation.remarks, width)),
        ("As written", _tree_lines(explanation.before, width)),
        ("Rewritten", _rewrite_lines(explanation, width)),
        ("How it is kept answered", [*_operator_table(after, width), "", *_table_legend(explanation, width)]),
        ("Why so", _state_reasons(after, width)),
        ("Where a result comes from", _lineage_lines(explanation, width)),
    ]
    parts = [f"{title}\n{_indent_lines(lines)}" for title, lines in sections if lines]
    return "\n".join([f"{explanation.name} reads {', '.join(explanation.reads)}\n", *parts])


def _indent_lines(lines: list[str]) -> str:
    return "".join(f"  {each}".rstrip() + "\n" for each in lines)


def _wrap_words(words: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        words, width - 2, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def _bullet_lines(sentences: tuple[str, ...], width: int) -> list[str]:
    return [line for each in sentences for line in _wrap_words(each, width, "- ", "  ")]


def _tree_lines(plan: ExplainedPlan, width: int) -> list[str]:
    """The lines of the plan's text; long ones are continued below."""
    lines = []
    for each in plan.operators:
        indent = "  " * each.depth
        lines += _wrap_words(operator_text(each.node), width, indent, f"{indent}    ")
    return lines


def _lineage_lines(explanation: Explanation, width: int) -> list[str]:
    """Each source, and below it its lineage."""
    lines = []
    for sentence in explanation.lineage:
        name, _, said = sentence.partition(": ")
        lines += [name, *(each for part in said.split("; ") for each in _wrap_words(part, width, "  - ", "    "))]
    return lines


def _answer_lines(explanation: Explanation, width: int) -> list[str]:
    """The columns, and how results come and go."""
    shown = explanation.columns
    name_width = max(len(each.name) for each in shown)
    type_width = max(len(str(each.type)) for each in shown)
    lines = [
        f"{each.name:{name_width}}  {each.type!s:{type_width}}  {', '.join(_column_words(each))}".rstrip()
        for each in shown
    ]
    how = explanation.after.operators[0].pattern
    return [*lines, "", *_wrap_words(f"{how.shown}: {PATTERN_MEANINGS[how]}.", width)]


def _column_words(column: ResultColumn) -> list[str]:
    return [word for word, is_so in (("key", column.is_key), ("hidden", column.hidden)) if is_so]


def _rewrite_lines(explanation: Explanation, width: int) -> list[str]:
    """The steps of rewriting, and the resulting plan."""
    if not explanation.steps:
        return ["Nothing: no rule makes it better."]
    return [each for step in explanation.steps for each in _wrap_words(_rewrite_words(step), width, "- ", "  ")]


RULE_WORDS = {
    "push_predicates": "conditions go down to where rows come in, so that what they drop is never carried",
    "relation_joins": "joins with relations go below what is strict, where no row is taken back again",
    "simplify_patterns": "what takes rows back goes up, so that fewer operators have to bear it",
    "pull_up_negation": "a negation goes above a join, which is then spared rows that are taken back",
    "place_distinct": "duplicates are dropped where that is cheapest",
    "prune_columns": "columns that nothing needs are not read",
}


def _rewrite_words(step: RewriteStep) -> str:
    name = step.rule.replace("_", " ")
    return f"{name}: {RULE_WORDS[step.rule]}" if step.rule in RULE_WORDS else name


def _operator_table(plan: ExplainedPlan, width: int) -> list[str]:
    """The plan that runs, each operator with its pattern and its estimates."""
    per = _rate_unit(plan)
    heads = ("edge", f"rows/{per}", "held", f"work/{per}")
    rows = [
        (each.pattern.shown, short_number(each.rate), short_number(each.size), short_number(each.cost))
        for each in plan.operators
    ]
    sizes = [max(len(row[at]) for row in [heads, *rows]) for at in range(4)]
    lines = [_table_row(heads, sizes) + "operator"]
    # A deep plan in a narrow terminal is indented by less.
    room = width - len(lines[0])
    step = "  " if 4 * max(each.depth for each in plan.operators) < room else " "
    for operator, row in zip(plan.operators, rows, strict=True):
        begin = _table_row(row, sizes) + step * operator.depth
        lines += _wrap_words(operator_text(operator.node), width, begin, " " * (len(begin) + 4))
    return lines


def _table_row(row: Sequence[str], sizes: Sequence[int]) -> str:
    """The pattern to the left, numbers to the right."""
    numbers = [f"{text:>{size}}  " for text, size in zip(row[1:], sizes[1:], strict=True)]
    return f"{row[0]:{sizes[0]}}  {''.join(numbers)}"


def _rate_unit(plan: ExplainedPlan) -> str:
    return "s" if has_timestamps(plan.plan) else "unit"


def _table_legend(explanation: Explanation, width: int) -> list[str]:
    """The legend of the table."""
    plan = explanation.after
    used = {each.pattern for each in plan.operators}
    per = "second" if has_timestamps(plan.plan) else "unit"
    said = [f"{each.shown}: {PATTERN_MEANINGS[each]}" for each in UpdatePattern if each in used]
    said.append(
        f"for each {per} of event time: results (rows) and rows touched (work), {short_number(plan.cost)} in all;"
        " held: results that count at a time"
    )
    if explanation.unknown:
        said.append(f"nothing is known yet of {', '.join(explanation.unknown)}: the numbers rest on guesses")
    return [each for sentence in said for each in _wrap_words(sentence, width, "", "  ")]


def _state_reasons(plan: ExplainedPlan, width: int) -> list[str]:
    """The operators with state, and the reasons for its kind; a reason common to several is given once."""
    said = [(f"{each.operator} keeps {each.state}", each.why) for each in plan.operators if each.state != NO_STATE]
    said.append((f"the answer is kept as {plan.result.state}", plan.result.why))
    lines = []
    for what, why in dict.fromkeys(said):
        lines += [*_wrap_words(what, width, "- ", "  "), *_wrap_words(why, width, "  ", "  ")]
    return lines


def short_number(value: float) -> str:
    """A number with three significant digits at most: 0.0033, 12, 1.2k, 3.5M."""
    for unit, name in ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        if abs(value) < 999.5 * unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"
