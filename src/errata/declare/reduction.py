"""What of an archive is kept at reduced resolution, as `reduce:` below a stream declares it.

reduce:
  copies: [50%, 10%]                                   # written with the rows
  on_read: {drop_above: 50%, purge_after: 30 days}     # follow what readers ask for; `on_read: true` for defaults
  summaries:
    hourly: {window: 1 hour, group: [symbol], select: {n: count(*), total: sum(price)}, when: append}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from errata.declare.section import YamlSection
from errata.errors import UsageError, unknown_name_error
from errata.model.columns import check_name
from errata.model.reduction import (
    FULL_RATE,
    NO_REDUCTION,
    OnReadCopies,
    ReducedArchives,
    SummaryDeclaration,
    SummaryTrigger,
    parse_rate,
)
from errata.model.stream import Stream

MAX_COPIES = 16
"""Copies of each bucket at most: every one is written with every append."""

ParseSpan = Callable[[str], int]
"""Reads a span of the stream's order field."""

_SUMMARY_EXAMPLE = "hourly: {window: 1 hour, select: {n: count(*)}}"


def read_reduction(section: YamlSection | None, columns: Collection[str], parse_span: ParseSpan) -> ReducedArchives:
    """The declared reduction of a stream with these columns; mistakes are noted."""
    if section is None:
        return NO_REDUCTION
    copies = _read_copies(section)
    on_read = _read_on_read(section.section("on_read", "use"), parse_span)
    summaries = _read_summaries(section.section("summaries"), columns, parse_span)
    section.finish()
    return ReducedArchives(copies, on_read, summaries)


def _read_copies(section: YamlSection) -> tuple[float, ...]:
    """The rates of copies, the greatest first."""
    rates: list[float] = []
    for text, there in section.texts("copies"):
        try:
            rate = parse_rate(text)
        except UsageError as error:
            section.problems.add(there, error)
            continue
        if rate >= FULL_RATE:
            how = "declare copies below 100%, or leave them out"
            section.problems.add(there, UsageError("a copy at 100% would be the archive itself", how=how))
        elif rate in rates:
            section.problems.add(there, UsageError(f"copies names {text} twice", how="name it once"))
        rates.append(rate)
    if len(rates) > MAX_COPIES:
        what, why = (
            f"{len(rates)} copies are declared, and {MAX_COPIES} are the most",
            "each is written with every append",
        )
        how = "keep those that many readers need; a reader takes the next finer one"
        section.mistake("copies", UsageError(what, why=why, how=how))
    return tuple(sorted(rates, reverse=True))


def _read_on_read(section: YamlSection | None, parse_span: ParseSpan) -> OnReadCopies | None:
    """Either a word, or the options."""
    if section is None:
        return None
    use = section.read("use", _parse_switch)
    above = section.read("drop_above", parse_rate)
    after = section.read("purge_after", parse_span)
    section.finish()
    if use is False:
        return None
    return OnReadCopies(OnReadCopies().drop_above if above is None else above, after)


def _parse_switch(text: str) -> bool:
    if text not in ("true", "false"):
        how = "write on_read: true, or options such as on_read: {drop_above: 50%, purge_after: 30 days}"
        raise UsageError(f"{text!r} does not say whether copies follow the readers", how=how)
    return text == "true"


def _read_summaries(
    section: YamlSection | None, columns: Collection[str], parse_span: ParseSpan
) -> tuple[SummaryDeclaration, ...]:
    if section is None:
        return ()
    read = []
    for name in section.names():
        below = section.section(name)
        if below is not None and (found := _read_summary(name, below, columns, parse_span)) is not None:
            read.append(found)
    return tuple(read)


def _read_summary(
    name: str, section: YamlSection, columns: Collection[str], parse_span: ParseSpan
) -> SummaryDeclaration | None:
    before = len(section.problems)
    if section.required("window", f"say how long its windows are: {_SUMMARY_EXAMPLE}") is None:
        window = None
    else:
        window = section.read("window", parse_span)
        if window == 0:
            section.mistake("window", UsageError("a window is more than zero", how=f"write it like {_SUMMARY_EXAMPLE}"))
    group = []
    for column, there in section.texts("group"):
        if column not in columns:
            section.problems.add(there, unknown_name_error("column in group", column, columns))
        group.append(column)
    aggregates = _read_aggregates(section)
    when = section.choice("when", SummaryTrigger) or SummaryTrigger.APPEND
    section.finish()
    if window is None or len(section.problems) > before:
        return None
    return SummaryDeclaration(name, window, tuple(dict.fromkeys(group)), aggregates, when)


def _read_aggregates(section: YamlSection) -> Mapping[str, str]:
    selected = section.section("select")
    if selected is None or not selected.names():
        how = f"name what it computes: {_SUMMARY_EXAMPLE}"
        section.mistake("select", UsageError("a summary computes something", how=how))
        return {}
    aggregates: dict[str, str] = {}
    for name in selected.names():
        text = selected.required(name, f"write an aggregate: {name}: count(*)")
        try:
            check_name("column", name)
        except UsageError as error:
            selected.mistake(name, error)
        if text is not None:
            aggregates[name] = text
    return aggregates


@dataclass(frozen=True, slots=True)
class SummaryPlace:
    """A summary that could be read, and where it is declared."""

    section: YamlSection
    """That of the stream's summaries."""
    of: str
    """The name of the stream."""
    summary: SummaryDeclaration
    stream: Stream | None
    """What it is planned over; None if the columns of the stream have mistakes, so that it cannot be planned."""

    @property
    def name(self) -> str:
        return self.summary.name

    def check(self) -> None:
        """Note what the summary cannot keep."""
        # sqlglot takes long to import, and most projects declare no summary.
        from errata.language.summaries import read_summary  # noqa: PLC0415

        if self.stream is None:
            return
        try:
            read_summary(self.stream, self.summary, f"summary {self.name}")
        except UsageError as error:
            self.section.mistake(self.name, error)


def summary_places(
    section: YamlSection, name: str, reduced: ReducedArchives, stream: Stream | None
) -> list[SummaryPlace]:
    """The summaries of a stream with their places; `section` is that of the stream."""
    below = section.section("reduce")
    within = None if below is None else below.section("summaries")
    return [] if within is None else [SummaryPlace(within, name, each, stream) for each in reduced.summaries]
