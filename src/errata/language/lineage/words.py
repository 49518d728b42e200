"""Lineage in words, for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from errata.language.expr import Lit, Value, literal
from errata.language.lineage.equalities import Values, exact
from errata.language.lineage.reach import Axis, Region, Span, axis, plus
from errata.language.lineage.replays import Change, backward, replay
from errata.language.lineage.width import distances, too_wide
from errata.language.nodes import Scan, scans
from errata.language.plan import Plan, SourceKind, fact
from errata.model.instants import format_duration
from errata.model.interval import HIGHEST, LOWEST, Interval

_ANY = "\N{REPLACEMENT CHARACTER} "
"""Begins what stands for the value of a column, whatever it is."""


def in_words(plan: Plan) -> list[str]:
    """For each scan: what rows make an output, what a change touches, what has to be read for it; and what is wide."""
    wide = {each.scan: each for each in too_wide(plan)}
    lines = []
    for place, scan in enumerate(scans(plan)):
        parts = [_made_of(plan, place), _touches(plan, place), *_replays(plan, place)]
        if place in wide:
            advice = "; stored lineage tells it for each output" if wide[place].stored_helps else ""
            parts.append(f"there is no bound on how old these rows can be: {wide[place].why}{advice}")
        lines.append(f"{scan.source.name} ({scan.alias}): {'; '.join(parts)}")
    return lines


def _made_of(plan: Plan, place: int) -> str:
    scan = scans(plan)[place]
    output = "an output at t" if axis(plan) is Axis.START else "the answer at t"
    when = _ago(distances(plan)[place], _amounts(scan))
    return f"{output} is made from {_rows(scan)} {when}{_alike(plan, place)}"


def _touches(plan: Plan, place: int) -> str:
    scan = scans(plan)[place]
    what = "outputs" if axis(plan) is Axis.START else "answers"
    valid = "of what is valid at s" if scan.source.kind.is_relation else "at s"
    return f"a change {valid} touches {what} {_around(distances(plan)[place], _amounts(scan))}"


def _rows(scan: Scan) -> str:
    name = scan.source.name
    if scan.source.kind.is_relation:
        return f"versions of {name} valid"
    if scan.source.kind is SourceKind.STREAM:
        return f"{name} rows"
    return f"{name} results" if axis(scan) is Axis.START else f"{name} results that hold"


def _amounts(scan: Scan) -> Callable[[int], str]:
    return format_duration if scan.source.timed else str


def _ago(span: Span, amount: Callable[[int], str]) -> str:
    """At which times before t."""
    if span.high == HIGHEST:
        return f"of any time up to {_later(-span.low, 't', amount)}"
    if span == Span(0, 0):
        return "at t"
    if span.low == 1:
        return f"in the {amount(span.high)} before t"
    if span.low == 0 and _rounder(span.high + 1, span.high, amount):
        return f"in the {amount(span.high + 1)} up to t"
    return f"in {_interval(-span, 't', amount)}"


def _around(span: Span, amount: Callable[[int], str]) -> str:
    """At which times around s."""
    if span == Span(0, 0):
        return "at s"
    if span.high == HIGHEST:
        return "of any time" if span.low == LOWEST else f"from {_later(span.low, 's', amount)} on"
    return f"in {_interval(span, 's', amount)}"


def _interval(span: Span, moment: str, amount: Callable[[int], str]) -> str:
    """The interval of all times so much later than a moment, with bounds that are round if they can be."""
    if span.low == LOWEST or _rounder(span.low - 1, span.low, amount):
        begin = f"({_later(plus(span.low, -1), moment, amount)}"
    else:
        begin = f"[{_later(span.low, moment, amount)}"
    if _rounder(span.high + 1, span.high, amount):
        return f"{begin}, {_later(span.high + 1, moment, amount)})"
    return f"{begin}, {_later(span.high, moment, amount)}]"


def _rounder(one: int, other: int, amount: Callable[[int], str]) -> bool:
    """Whether people would rather read the one than the other."""
    return one == 0 or (other != 0 and _length(amount(abs(one))) < _length(amount(abs(other))))


def _length(text: str) -> int:
    return len(text.rstrip("0"))


def _later(by: int, moment: str, amount: Callable[[int], str]) -> str:
    if by == LOWEST:
        return "any time"
    if by == 0:
        return moment
    return f"{moment} {'-' if by < 0 else '+'} {amount(abs(by))}"


def _alike(plan: Plan, place: int) -> str:
    """Which columns of the rows are told by columns of the output."""
    scan = scans(plan)[place]
    same, told = [], []
    for column in plan.visible:
        if not exact(column.type):
            continue
        for name in _held(_reads_of_columns(plan)[column.name].get(place), _ANY):
            shown = scan.of_source(name)
            if shown == column.name:
                same.append(shown)
            else:
                told.append(f"whose {shown} is its {column.name}")
    parts = [f"with the same {_listed(same)}"] if same else []
    parts += [*told, *_constant(scan, _always(plan, place))]
    return f" {' and '.join(parts)}" if parts else ""


@fact
def _reads_of_columns(plan: Plan) -> Mapping[str, Mapping[int, Region]]:
    """By visible column: what has to be read for outputs that have a certain value there."""
    exactly = [each.name for each in plan.visible if exact(each.type)]
    return {name: backward(plan, Region(axis(plan), values={name: _ANY})) for name in exactly}


def _held(region: Region | None, value: Value) -> list[str]:
    return [] if region is None else [name for name, each in region.values.items() if each == value]


def _always(plan: Plan, place: int) -> Values:
    """The constants that all rows have which make any output."""
    region = _whole_reads(plan).get(place)
    return {} if region is None else region.values


@fact
def _whole_reads(plan: Plan) -> Mapping[int, Region]:
    return backward(plan, Region(axis(plan)))


def _constant(scan: Scan, values: Values) -> list[str]:
    shown = {scan.of_source(name): literal(Lit(value, scan.types[name])) for name, value in values.items()}
    return [f"whose {name} is {'NULL' if text.startswith('CAST(NULL') else text}" for name, text in shown.items()]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _replays(plan: Plan, place: int) -> list[str]:
    """What else has to be read after a change."""
    read, distance = scans(plan), distances(plan)
    scan = read[place]
    values: Values = {
        **{name: f"{_ANY}{scan.of_source(name)}" for name in scan.types},
        **_always(plan, place),
    }
    found = replay(plan, Change(place, Interval(0, 1), 1, values))
    if found is None:
        return []
    parts = []
    for other, region in sorted(found.reads.items()):
        if other == place and set(scan.key) <= set(region.values):
            continue
        between = -distance[other] + distance[place]
        parts.append(f"{_rows(read[other])} {_around(between, _amounts(scan))}{_replayed(read[other], region)}")
    return [f"to replay it takes {_listed(parts)}"] if parts else []


def _replayed(scan: Scan, region: Region) -> str:
    told = {name: value for name, value in region.values.items() if isinstance(value, str) and value.startswith(_ANY)}
    pairs = {scan.of_source(name): str(value).removeprefix(_ANY) for name, value in told.items()}
    same = [name for name, theirs in pairs.items() if name == theirs]
    parts = [f"with the same {_listed(same)}"] if same else []
    parts += [f"whose {name} is its {theirs}" for name, theirs in pairs.items() if name != theirs]
    parts += _constant(scan, {name: value for name, value in region.values.items() if name not in told})
    return f" {' and '.join(parts)}" if parts else ""
