"""The doctor's check of a query's results: its buckets, its counters, and the order of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from errata.archive.upkeep.bucket_checks import inspect_buckets, inspect_sizes
from errata.archive.upkeep.inspection import ResultInspectionContext
from errata.archive.upkeep.retention import unrecoverable_sources
from errata.catalog import health, queries, streams
from errata.catalog.health import ResultInventory, result_inventory
from errata.catalog.repair import ArchiveRepair, FigureRepair
from errata.catalog.result_archives import read_archive
from errata.declare.query_plans import read_plans, with_inputs
from errata.declare.site import Site
from errata.language.rewrite import rewritten_plan
from errata.language.route import choose_route
from errata.model.bucket import Role
from errata.model.consistency import (
    InspectedResults,
    abandoned_finding,
    count_findings,
    evaluation_findings,
    is_droppable_cache,
    position_findings,
    result_findings,
)
from errata.model.findings import (
    BucketFigures,
    BucketInspection,
    Finding,
    content_loss,
    differing_figures,
    misclassed_finding,
)

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """A check of the results of a query."""

    case: ResultInventory
    answers: InspectedResults
    seen: dict[int, BucketInspection]

    @classmethod
    def inspect(cls, site: Site, stream_id: int, kept_from: int, bar: ProgressBar, *, deep: bool) -> ResultCheck:
        """Inspect all buckets: whole if `deep`, else their sizes."""
        case = result_inventory(site.catalog, stream_id, kept_from)
        if deep:
            context = ResultInspectionContext(case.shape, site.warehouse)
            with bar(f"reading the results of {case.name}", len(case.buckets)) as on_done:
                seen = inspect_buckets(site.session, site.catalog, context, case.buckets, on_done).seen
        else:
            seen = inspect_sizes(site.warehouse, case.buckets, health.inline_sizes(site.catalog, stream_id))
        whole = sum(seen[each.bucket_id].whole(each) for each in case.live)
        unmade = _lost_state_sources(site, case, seen)
        return cls(case, InspectedResults(case.name, case.shape.timed, not case.dropped, unmade, whole), seen)

    @property
    def basis(self) -> ResultInventory:
        """The state of the archive that a repair is based on."""
        return self.case

    def findings(self) -> Iterator[Finding]:
        """All that is wrong."""
        case, answers = self.case, self.answers
        for bucket in case.buckets:
            yield from result_findings(answers, bucket, self.seen[bucket.bucket_id])
            if bucket.bucket_id in case.misclassed:
                yield misclassed_finding(answers, bucket)
        if case.dropped:
            return
        yield from count_findings(answers, "inline_bytes", case.inline_bytes, self._inline_bytes)
        yield from count_findings(answers, "rows", case.now.rows, self._rows)
        yield from position_findings(answers, case.now, case.positions, newest=case.newest, rows=False)
        yield from evaluation_findings(answers, case.advances, case.now.stable)
        yield from abandoned_finding(answers, case.names)

    def repair(self) -> ArchiveRepair:
        """The repair of figures that the catalog has wrong, and of a state that can be computed again."""
        figures = {}
        for bucket in self.case.buckets:
            told = self.seen[bucket.bucket_id]
            if differing_figures(bucket, told) or bucket.bucket_id in self.case.misclassed:
                right = (
                    told.figures
                    if told.figures is not None and told.whole(bucket)
                    else BucketFigures.from_bucket(bucket)
                )
                size = bucket.size if told.size is None or not told.whole(bucket) else told.size
                figures[bucket.bucket_id] = FigureRepair(bucket.role, right, size)
        if self.case.dropped:
            return ArchiveRepair(figures=figures)
        forget = [each for each in self.case.live if is_droppable_cache(self.answers, each, self.seen[each.bucket_id])]
        # Inline buckets that go are no longer counted.
        inline = self._inline_bytes - sum(each.size for each in forget if each.inline)
        return ArchiveRepair(
            self._rows if self._rows != self.case.now.rows else None,
            inline if inline != self.case.inline_bytes else None,
            figures=figures,
            forget=forget,
            end=self.case.name not in self.case.names,
        )

    @property
    def _rows(self) -> int:
        """How many results are final."""
        return sum(self._count(each.bucket_id, each.rows) for each in self.case.live if each.role is Role.BASE)

    def _count(self, bucket_id: int, noted: int) -> int:
        figures = self.seen[bucket_id].figures
        return noted if figures is None else figures.rows

    @property
    def _inline_bytes(self) -> int:
        return sum(each.size for each in self.case.live if each.inline)


def _lost_state_sources(site: Site, case: ResultInventory, seen: dict[int, BucketInspection]) -> Sequence[str]:
    """If the state is damaged: the sources from which it cannot be computed again."""
    broken = [
        each for each in case.live if each.role is Role.STATE and content_loss(each, seen[each.bucket_id]) is not None
    ]
    known = queries.recorded_queries(site.catalog)
    there = known.get(case.name)
    of = read_archive(site.catalog, case.name)
    if not broken or there is None or of is None or there.query_id != case.query_id:
        return ()
    standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    names = with_inputs([case.name], {name: each.checked.reads for name, each in known.items()})
    texts = {name: known[name].checked.query for name in names}
    plan = rewritten_plan(read_plans({name: each.stream for name, each in standings.items()}, texts, names)[case.name])
    return unrecoverable_sources(site.catalog, plan, choose_route(plan), of)
