"""What `errata explain` says of a summary: how it is kept, and which of its columns a correction rebuilds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from errata.declare.project import Project
from errata.language.explain.explanation import Explanation
from errata.language.nodes import scans_of
from errata.language.summaries import ExactMeasure, SketchMeasure, SummaryForm, summary_forms
from errata.model.reduction import SummaryTrigger


def declared_forms(project: Project) -> dict[str, SummaryForm]:
    """The summaries of a project's streams, by name."""
    return {form.name: form for stream in project.streams.values() for form in summary_forms(stream)}


def summary_section(explanation: Explanation, forms: Mapping[str, SummaryForm]) -> str:
    """The summaries that a plan reads, as a section of its explanation; empty if it reads none."""
    read = dict.fromkeys(scan.source.name for scan in scans_of(explanation.before.plan))
    return "".join(_summary_text(forms[name]) for name in read if name in forms)


def _summary_text(form: SummaryForm) -> str:
    stream, declared = form.stream, form.declaration
    by = f" by {', '.join(declared.group)}" if declared.group else ""
    when = "with every append" if declared.when is SummaryTrigger.APPEND else "by vacuum, once it has been read"
    lines = [
        f"windows of {stream.span_text(declared.window)}{by} of stream {stream.name}; parts of buckets are kept {when}",
        f"{_names(form.exact)}: parts add up. A correction has its windows computed again from their rows, on reading",
    ]
    if form.sketches:
        lines += [
            f"{_names(form.sketches)}: sketches, kept by vacuum. They do not subtract: a correction rebuilds those of",
            "  its windows from rows, on reading; once compaction has worked it in, vacuum rebuilds the bucket's",
        ]
    if form.approximations:
        kinds = ", ".join(f"{each.kind.value}({each.column.name})" for each in form.approximations)
        lines.append(f"{kinds}: for errata sweep --estimate alone. A correction is subtracted, and rebuilds nothing")
    return "".join([f"\nWhat a correction does to summary {form.name}\n", *(f"  {line}\n" for line in lines)])


def _names(measures: Iterable[ExactMeasure | SketchMeasure]) -> str:
    return ", ".join(each.name for each in measures)
