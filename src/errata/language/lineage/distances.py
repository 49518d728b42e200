"""Distances in time between outputs and the rows that make them, over all operators; where they are unbounded; and
lineage in words.

A scan's offsets are the sums of its edges' offsets (`extents.input_offsets`). An unbounded one means that a replay
reads the whole past of that input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from errata.language.expr import Lit, literal_sql
from errata.language.lineage.constants import is_exact
from errata.language.lineage.extents import (
    SAME_TIME,
    OffsetRange,
    bounded_sum,
    extent_axis,
    input_offsets,
    is_row_by_row,
    lifetime_range,
)
from errata.language.lineage.replays import InputChange, backward, path_to_scan, replay_scope
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    Union,
    scans_of,
)
from errata.language.plan import Plan, PlanError, SourceKind, cached_fact
from errata.model.extent import ColumnValues, Extent, ExtentAxis, Value, rows_starting_in
from errata.model.time import HIGHEST, LOWEST, Interval, format_duration


def scan_offsets(plan: Plan) -> tuple[OffsetRange, ...]:
    """For each scan: the offsets from a row to the outputs that are made of it, each taken at its place in time."""
    return tuple(each.place for each in _node_offsets(plan))


@dataclass(frozen=True, slots=True)
class _ScanOffset:
    """The offsets from a row of a scan to the rows of a node that are made of it."""

    place: OffsetRange
    during: OffsetRange
    """The offsets from that row's place to the instants at which they count, if they are whole rows."""


@cached_fact
def _node_offsets(plan: Plan) -> tuple[_ScanOffset, ...]:
    if not plan.inputs:
        return (_live_offset(plan, SAME_TIME, OffsetRange()),)
    return tuple(
        _offset_above(plan, child, edge, below)
        for child, edge in zip(plan.inputs, input_offsets(plan), strict=True)
        for below in _node_offsets(child)
    )


def _offset_above(plan: Plan, child: Plan, edge: OffsetRange, below: _ScanOffset) -> _ScanOffset:
    place = edge + below.place
    if extent_axis(child) is ExtentAxis.INSTANT:
        return _live_offset(plan, place, OffsetRange())
    if extent_axis(plan) is ExtentAxis.INSTANT:
        return _ScanOffset(place & below.during, OffsetRange())
    return _live_offset(plan, place, below.during if is_row_by_row(plan) else OffsetRange())


def _live_offset(plan: Plan, place: OffsetRange, during: OffsetRange) -> _ScanOffset:
    return (
        _ScanOffset(place, during & (lifetime_range(plan) + place))
        if extent_axis(plan) is ExtentAxis.START
        else _ScanOffset(place, OffsetRange())
    )


@dataclass(frozen=True, slots=True)
class UnboundedInput:
    """An input of which an output may need rows of any age."""

    scan: int
    """Its place in `scans_of(plan)`."""
    source: str
    why: str
    stored_helps: bool
    """Whether the rows that one output was made of lie closer together than the plan can tell."""


def unbounded_inputs(plan: Plan) -> tuple[UnboundedInput, ...]:
    """The inputs whose rows may be of any age when they make an output, so that a replay reads all of their past."""
    found = []
    for place, (scan, distance) in enumerate(zip(scans_of(plan), scan_offsets(plan), strict=True)):
        if distance.high == HIGHEST:
            nodes = [node for node, at in path_to_scan(plan, place) if input_offsets(node)[at].high == HIGHEST]
            helps = not any(_reads_all_history(node) for node in nodes)
            found.append(UnboundedInput(place, scan.source.name, _unbounded_reason(nodes[0]), helps))
    return tuple(found)


def should_store_lineage(plan: Plan) -> bool:
    """Whether storing lineage with each output (the first and last vs of its rows) would narrow replays."""
    return any(each.stored_helps for each in unbounded_inputs(plan))


def _reads_all_history(node: Plan) -> bool:
    """Whether its rows are made of all earlier rows, and not only of rows whose age the plan cannot bound."""
    match node:
        case Group(window=window):
            return window is None
        case Distinct() | Intersect() | Negation():
            return True
        case Scan() | Sliding() | SlidingRows() | Filter() | Projection() | Join() | RelationJoin() | Union():
            return False
    raise PlanError(f"of which rows a row of {type(node).__name__} is made is not known")


def _unbounded_reason(node: Plan) -> str:
    match node:
        case SlidingRows(rows=rows):
            return f"how far back a window of {_row_count(rows)} reaches depends on the data"
        case Group(window=RowWindow(size=size)):
            return f"which rows make a window of {_row_count(size)} depends on all that came before"
        case Join() if extent_axis(node) is ExtentAxis.START:
            return "nothing bounds how long after a row its partner in a join can come"
        case Group():
            return "rows that never expire stay in their group"
    return "rows that never expire count at all times to come"


def _row_count(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


# Lineage in words, for people.

_ANY_CONSTANT = "\N{REPLACEMENT CHARACTER} "
"""Begins a marker that stands for the value of a column."""


def lineage_sentences(plan: Plan) -> list[str]:
    """For each scan: which rows make an output, what a change touches, and what has to be read for it; then what is
    unbounded."""
    wide = {each.scan: each for each in unbounded_inputs(plan)}
    lines = []
    for place, scan in enumerate(scans_of(plan)):
        parts = [_made_of_words(plan, place), _touched_words(plan, place), *_replay_words(plan, place)]
        if place in wide:
            advice = "; stored lineage tells it for each output" if wide[place].stored_helps else ""
            parts.append(f"there is no bound on how old these rows can be: {wide[place].why}{advice}")
        lines.append(f"{scan.source.name} ({scan.alias}): {'; '.join(parts)}")
    return lines


def _made_of_words(plan: Plan, place: int) -> str:
    scan = scans_of(plan)[place]
    output = "an output at t" if extent_axis(plan) is ExtentAxis.START else "the answer at t"
    when = _words_before(scan_offsets(plan)[place], _amount_words(scan))
    return f"{output} is made from {_rows_words(scan)} {when}{_shared_columns(plan, place)}"


def _touched_words(plan: Plan, place: int) -> str:
    scan = scans_of(plan)[place]
    what = "outputs" if extent_axis(plan) is ExtentAxis.START else "answers"
    valid = "of what is valid at s" if scan.source.kind.is_relation else "at s"
    return f"a change {valid} touches {what} {_words_around(scan_offsets(plan)[place], _amount_words(scan))}"


def _rows_words(scan: Scan) -> str:
    name = scan.source.name
    if scan.source.kind.is_relation:
        return f"versions of {name} valid"
    if scan.source.kind is SourceKind.STREAM:
        return f"{name} rows"
    return f"{name} results" if extent_axis(scan) is ExtentAxis.START else f"{name} results that hold"


def _amount_words(scan: Scan) -> Callable[[int], str]:
    return format_duration if scan.source.timed else str


def _words_before(span: OffsetRange, amount: Callable[[int], str]) -> str:
    """The times before t."""
    if span.high == HIGHEST:
        return f"of any time up to {_moment_words(-span.low, 't', amount)}"
    if span == OffsetRange(0, 0):
        return "at t"
    if span.low == 1:
        return f"in the {amount(span.high)} before t"
    if span.low == 0 and _is_rounder(span.high + 1, span.high, amount):
        return f"in the {amount(span.high + 1)} up to t"
    return f"in {_interval_words(-span, 't', amount)}"


def _words_around(span: OffsetRange, amount: Callable[[int], str]) -> str:
    """The times around s."""
    if span == OffsetRange(0, 0):
        return "at s"
    if span.high == HIGHEST:
        return "of any time" if span.low == LOWEST else f"from {_moment_words(span.low, 's', amount)} on"
    return f"in {_interval_words(span, 's', amount)}"


def _interval_words(span: OffsetRange, moment: str, amount: Callable[[int], str]) -> str:
    """The interval of the times at such an offset from a moment, with round bounds where possible."""
    if span.low == LOWEST or _is_rounder(span.low - 1, span.low, amount):
        begin = f"({_moment_words(bounded_sum(span.low, -1), moment, amount)}"
    else:
        begin = f"[{_moment_words(span.low, moment, amount)}"
    if _is_rounder(span.high + 1, span.high, amount):
        return f"{begin}, {_moment_words(span.high + 1, moment, amount)})"
    return f"{begin}, {_moment_words(span.high, moment, amount)}]"


def _is_rounder(one: int, other: int, amount: Callable[[int], str]) -> bool:
    """Whether the one is easier to read than the other."""
    return one == 0 or (other != 0 and _text_length(amount(abs(one))) < _text_length(amount(abs(other))))


def _text_length(text: str) -> int:
    return len(text.rstrip("0"))


def _moment_words(by: int, moment: str, amount: Callable[[int], str]) -> str:
    if by == LOWEST:
        return "any time"
    if by == 0:
        return moment
    return f"{moment} {'-' if by < 0 else '+'} {amount(abs(by))}"


def _shared_columns(plan: Plan, place: int) -> str:
    """The columns of the rows that are determined by columns of the output."""
    scan = scans_of(plan)[place]
    same, told = [], []
    for column in plan.visible:
        if not is_exact(column.type):
            continue
        for name in _has_marker(_reads_by_column(plan)[column.name].get(place), _ANY_CONSTANT):
            shown = scan.of_source(name)
            if shown == column.name:
                same.append(shown)
            else:
                told.append(f"whose {shown} is its {column.name}")
    parts = [f"with the same {_listed_names(same)}"] if same else []
    parts += [*told, *_constant_words(scan, _fixed_constants(plan, place))]
    return f" {' and '.join(parts)}" if parts else ""


@cached_fact
def _reads_by_column(plan: Plan) -> Mapping[str, Mapping[int, Extent]]:
    """By visible column: the rows to read for outputs that have a given value there."""
    exactly = [each.name for each in plan.visible if is_exact(each.type)]
    return {name: backward(plan, Extent(extent_axis(plan), values={name: _ANY_CONSTANT})) for name in exactly}


def _has_marker(extent: Extent | None, value: Value) -> list[str]:
    return [] if extent is None else [name for name, each in extent.values.items() if each == value]


def _fixed_constants(plan: Plan, place: int) -> ColumnValues:
    """The constants of all rows that can make an output."""
    extent = _reads_of_all(plan).get(place)
    return {} if extent is None else extent.values


@cached_fact
def _reads_of_all(plan: Plan) -> Mapping[int, Extent]:
    return backward(plan, Extent(extent_axis(plan)))


def _constant_words(scan: Scan, values: ColumnValues) -> list[str]:
    shown = {scan.of_source(name): literal_sql(Lit(value, scan.types[name])) for name, value in values.items()}
    return [f"whose {name} is {'NULL' if text.startswith('CAST(NULL') else text}" for name, text in shown.items()]


def _listed_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _replay_words(plan: Plan, place: int) -> list[str]:
    """The other rows to read after a change."""
    read, distance = scans_of(plan), scan_offsets(plan)
    scan = read[place]
    values: ColumnValues = {
        **{name: f"{_ANY_CONSTANT}{scan.of_source(name)}" for name in scan.types},
        **_fixed_constants(plan, place),
    }
    found = replay_scope(plan, InputChange(place, rows_starting_in(Interval(0, 1), values, last_end=1)))
    if found is None:
        return []
    parts = []
    for other, extent in sorted(found.reads.items()):
        if other == place and set(scan.key) <= set(extent.values):
            continue
        between = -distance[other] + distance[place]
        parts.append(
            f"{_rows_words(read[other])} "
            f"{_words_around(between, _amount_words(scan))}{_replayed_words(read[other], extent)}"
        )
    return [f"to replay it takes {_listed_names(parts)}"] if parts else []


def _replayed_words(scan: Scan, extent: Extent) -> str:
    told = {
        name: value
        for name, value in extent.values.items()
        if isinstance(value, str) and value.startswith(_ANY_CONSTANT)
    }
    pairs = {scan.of_source(name): str(value).removeprefix(_ANY_CONSTANT) for name, value in told.items()}
    same = [name for name, theirs in pairs.items() if name == theirs]
    parts = [f"with the same {_listed_names(same)}"] if same else []
    parts += [f"whose {name} is its {theirs}" for name, theirs in pairs.items() if name != theirs]
    parts += _constant_words(scan, {name: value for name, value in extent.values.items() if name not in told})
    return f" {' and '.join(parts)}" if parts else ""
