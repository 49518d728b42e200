"""Feedback: a query that is nothing but a feed skips results that the merged stream has from other feeds already
(logical merge, V-D).

    frontier F          wanted W                      until
    ----+----------------+------------------------------+
        F is answered    results that begin here are left out on purpose; from W on they are computed
        once more

The merged stable point W is what rows need not reach below. As long as the query's streams reach no further, it is not
evaluated at all (`answer.due_evaluation`): in a run, queries that get feedback come after the others that feed the same
stream, the quickest first (`quickest_first`), so that they work only where these leave something to do. The evaluation
that comes then answers the instant F to the end, since rows of it may have come, and continues at W, with a state that
is rebuilt from the rows that it is made of. Of results
that begin at W or later it publishes what it would have published without the skip. The archive says of instants before
W what it says of instants that have been aged out: they are not answered any more, and corrections do not reach them.

Only results whose end is known when they begin are skipped, and only where fewer rows are read than otherwise: a state
of all rows there ever were is rebuilt from all of them."""

from __future__ import annotations

from collections.abc import Sequence

from errata.answer.catalog_view import CatalogView
from errata.answer.inputs import RunInputs
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.route import Route, RouteKind
from errata.language.source_reads import reads_of_step, sources_only_in_state
from errata.model.commit import EvaluationSpan
from errata.model.query import LineageMode, Query

SKIPPING_ROUTES = (RouteKind.APPENDED, RouteKind.GROUPED, RouteKind.ROW_WINDOWS)
"""Routes whose results do not depend on earlier results."""


def why_not_skipping(query: Query, route: Route) -> str | None:
    """Why a query cannot skip results, whatever the merged stream has; None if it can."""
    if route.covering or route.kind not in SKIPPING_ROUTES:
        return "its results may end, or depend on earlier ones, so that none can be left out"
    if query.lineage is LineageMode.STORED:
        return "its lineage is stored, without gaps"
    return None


def step_after_skip(wanted: int, until: int) -> EvaluationSpan:
    """The step that follows a skip. Windows that end at the first instant wanted close in it."""
    return EvaluationSpan(wanted - 1, until)


def skipped_to(
    query: RecordedQuery, plan: Plan, route: Route, basis: ResultArchive, until: int, inputs: RunInputs
) -> int | None:
    """The instant from which on results are computed again; None if nothing is skipped."""
    merged = inputs.view.wanted_from(query.checked.name)
    if merged is None or why_not_skipping(query.checked.query, route) is not None:
        return None
    wanted = min(merged, until)
    if wanted - 1 <= basis.frontier:
        return None
    read = {each.source.name for each in scans_of(plan)}
    aged = {name: inputs.standings[name].aged_to for name in read if name in inputs.standings}
    if sources_only_in_state(plan, route, wanted - 1, aged):
        return None  # what it would be rebuilt from has been aged out
    last, further = EvaluationSpan(basis.frontier, basis.frontier), step_after_skip(wanted, until)
    skipping = _rows(plan, route, last, inputs) + _rows(plan, route, further, inputs, rebuilds=True)
    whole = _rows(plan, route, EvaluationSpan(basis.frontier, until), inputs)
    return wanted if skipping < whole else None


def quickest_first(names: Sequence[str], view: CatalogView) -> list[str]:
    """Queries by the time that each has taken for a row. The one that was evaluated last counts double: what the others
    took may be long ago, and they are tried when it gets slower."""
    known = {name: view.published[name].last for name in names if name in view.published}
    newest = max((each.commit_id for each in known.values()), default=0)

    def cost(name: str) -> float:
        if name not in known:
            return 0.0
        last = known[name]
        spent = last.measures.micros / max(1, last.measures.rows_asked or last.measures.rows_read)
        return spent * 2 if last.commit_id == newest else spent

    return sorted(names, key=cost)


def _rows(plan: Plan, route: Route, step: EvaluationSpan, inputs: RunInputs, *, rebuilds: bool = False) -> int:
    """About how many rows a step reads."""
    parts = reads_of_step(plan, route, step, state_lost=rebuilds and route.keeps_state)
    return sum(inputs.size(name, extent, step.until) for part in parts.values() for name, extent in part.items())
