"""Windows of very much history, replayed stretch by stretch: where one ends and the next begins, and which rows make
the windows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from errata.archive.results import beginning
from errata.archive.scan import place
from errata.engine.plans.rows import quoted
from errata.evaluate.reads import Reach, reaches
from errata.flows.answering import parts
from errata.flows.answering.inputs import Inputs, Read
from errata.language.lineage import Axis, Region
from errata.language.plan import Plan
from errata.model.bucket import Bucket
from errata.model.interval import HIGHEST, LOWEST, Interval


def stretches(opened: Sequence[Bucket], rows: int, regions: Sequence[Region], until: int) -> list[Interval]:
    """Where the windows of some regions end, in intervals each of which takes about so many of the rows as a step does;
    one, if there are no more of them."""
    start = min((each.interval.start for each in regions), default=LOWEST)
    end = max((each.interval.end for each in regions), default=HIGHEST)
    if rows <= parts.STEP_ROWS:
        return [Interval(start, end)]
    held = parts.Held.of(opened)
    last = min(end - 1, until)
    found, low = [], max(start, held.lowest)

    def so_far(at: int) -> int:
        return round(held.within(Interval(low, at + 1)))

    while (cut := parts.cut_at(so_far, low, last, parts.STEP_ROWS)) is not None:
        found.append(cut)
        low = cut
    return [Interval(one, other) for one, other in zip([start, *found], [*found, end], strict=True)]


def within(regions: Sequence[Region], stretch: Interval) -> list[Region]:
    """Regions as far as they lie in a stretch."""
    some = (
        replace(
            each,
            interval=Interval(max(each.interval.start, stretch.start), min(each.interval.end, stretch.end)),
        )
        for each in regions
    )
    return [each for each in some if not each.interval.empty]


def rows_behind(plan: Plan, read: Mapping[str, Read], stretch: Interval, inputs: Inputs) -> dict[str, Read]:
    """Of what has been read the rows that make results which begin in a stretch."""
    asked = reaches(plan, Axis.START, stretch)
    return {name: _narrowed(name, each, asked[name], inputs) for name, each in read.items()}


def _narrowed(name: str, read: Read, reach: Reach, inputs: Inputs) -> Read:
    interval = reach.interval
    if reach.axis is Axis.INSTANT or interval.empty:
        return read  # more than is needed does no harm
    if name not in inputs.standings:
        return replace(read, frame=beginning(read.frame, interval))
    stream = inputs.standings[name].stream
    if stream.relation is not None:
        return read
    order, frame = quoted(stream.order), read.frame
    if interval.end < HIGHEST:
        frame = frame.where(f"{order} < {place(stream, interval.end)}")
    if interval.start > LOWEST:
        frame = frame.where(f"{order} >= {place(stream, interval.start)}")
    return replace(read, frame=frame)
