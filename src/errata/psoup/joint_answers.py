"""The answers of many joins at once (PSoup, section 5.4): queries that relate the same streams in the same way share
one join.

    rows of query 1 ┐                                  ┌ combinations of query 1 ─► its answer
    rows of query 2 ┼─► rows of any ─► one join ─► bits ┼ combinations of query 2 ─► its answer
    rows of query 3 ┘                                  └ …

Each query's rows are selected by its own conjunctions and windows, from the same matches as ever; then the rows that
any of them has are joined once (`composites.join_for_queries`), unless they have so little in common that each is
better joined alone. A row is known by its bucket and its position there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import pyarrow as pa

from errata.catalog.match_segments import BucketKey
from errata.model.registered import AnswerRoute, RegisteredPlan, RegisteredQuery, Relation
from errata.psoup.composites import join_for_queries
from errata.psoup.invoke import StrategyAnswer, combined_rows
from errata.psoup.joins import Combinations, in_order, join_rows
from errata.psoup.kept_rows import KeptRows, RangeContent
from errata.psoup.row_sets import RowSet
from errata.psoup.selection import PartRange, Selector, SourceRead

AT_ONCE = 1_024
"""Queries whose joins are made as one: a combination has a bit for each."""

JointKey = tuple[tuple[str, ...], tuple[Relation, ...]]


def joint_groups(queries: Sequence[RegisteredQuery]) -> Iterator[list[int]]:
    """The places of queries whose joins can be made as one; of those that stand alone each by itself."""
    groups: dict[JointKey, list[int]] = defaultdict(list)
    for place, query in enumerate(queries):
        groups[joint_key(query.plan)].append(place)
    for places in groups.values():
        for start in range(0, len(places), AT_ONCE):
            yield places[start : start + AT_ONCE]


def joint_key(plan: RegisteredPlan) -> JointKey:
    """What joins have in common that are made as one: the streams, and how they are related."""
    return tuple(each.stream for each in plan.sources), plan.relations


def joint_answers(
    selector: Selector, plans: Sequence[RegisteredPlan], reads: Sequence[Sequence[SourceRead]]
) -> list[StrategyAnswer]:
    """The answers of joins with one `joint_key` over snapshots of one commit."""
    selected = []
    for place in range(len(plans[0].sources)):
        own = [each[place] for each in reads]
        selected.append(_selected(own, [selector.ranges(each.snapshot, each.wanted, each.window) for each in own]))
    route, joined = AnswerRoute.WINDOW, _joined_alone(plans[0], selected)
    if _is_shared(selected):
        route, joined = AnswerRoute.JOINT, _joined_as_one(plans[0], selected)
    found = []
    for query, places in enumerate(joined):
        kept = [rows[query] for rows in selected]
        together = [each.rows.take(pa.array(at)) for each, at in zip(kept, places, strict=True)]
        streams = [each.snapshot.state.stream for each in reads[query]]
        rows = combined_rows(plans[query], streams, together, len(places[0]))
        windows = tuple(each.window.interval for each in reads[query])
        found.append(StrategyAnswer(rows, sum(map(len, kept)), windows, route))
    return found


def _is_shared(selected: Sequence[Sequence[KeptRows]]) -> bool:
    """Whether the rows that any query has make no more pairs than those of each query by themselves: else most pairs
    of the one join would be nobody's."""
    own = sum(prod(map(len, query)) for query in zip(*selected, strict=True))
    return prod(len(np.unique(np.concatenate([each.numbers for each in rows]))) for rows in selected) <= own


def _joined_alone(plan: RegisteredPlan, selected: Sequence[Sequence[KeptRows]]) -> Iterator[Combinations]:
    """For each query the places of its combinations among its rows, by a join of its own."""
    for kept in zip(*selected, strict=True):
        yield join_rows([each.rows for each in kept], plan.relations)


def _joined_as_one(plan: RegisteredPlan, selected: Sequence[Sequence[KeptRows]]) -> Iterator[Combinations]:
    """The same by one join for all."""
    united = [_union(rows, _related_columns(plan, at)) for at, rows in enumerate(selected)]
    tables, unions = zip(*united, strict=True)
    sets = [
        [RowSet.of_mask(np.isin(union, each.numbers)) for each, union in zip(kept, unions, strict=True)]
        for kept in zip(*selected, strict=True)
    ]
    joined = join_for_queries(tables, plan.relations, sets)
    for kept, combinations in zip(zip(*selected, strict=True), joined, strict=True):
        places = tuple(each.places(union[rows]) for each, union, rows in zip(kept, unions, combinations, strict=True))
        yield in_order(places, [len(each) for each in kept])


def _selected(reads: Sequence[SourceRead], ranges: Sequence[Sequence[PartRange]]) -> list[KeptRows]:
    """The rows of each query, numbered alike."""
    buckets = dict.fromkeys(part.bucket for own in ranges for part in own)
    numbered: dict[BucketKey, int] = {bucket: number for number, bucket in enumerate(buckets)}
    found = []
    for read, own in zip(reads, ranges, strict=True):
        schema = read.snapshot.schema_of(read.wanted.columns)
        _, change = RangeContent(numbers=numbered).after(own, schema)
        found.append(KeptRows.none(read.snapshot.state.stream.key, schema).after(change))
    return found


def _union(selected: Sequence[KeptRows], names: Sequence[str]) -> tuple[pa.Table, np.ndarray]:
    """The columns of the rows that any query has, each once, and their numbers."""
    numbers, first = np.unique(np.concatenate([each.numbers for each in selected]), return_index=True)
    together = pa.concat_tables([each.rows.select(names or each.rows.column_names[:1]) for each in selected])
    return together.take(pa.array(first)), numbers


def _related_columns(plan: RegisteredPlan, source: int) -> list[str]:
    sides = [(each.left_source, each.left) for each in plan.relations]
    sides += [(each.right_source, each.right) for each in plan.relations]
    return list(dict.fromkeys(name for at, name in sides if at == source))
