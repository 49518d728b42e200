"""OpenLineage events of a job: its inputs and outputs. Used only if the provider is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.common.compat.openlineage.facet import Dataset, OutputDataset, OutputStatisticsOutputDatasetFacet
from airflow.providers.openlineage.extractors import OperatorLineage

if TYPE_CHECKING:
    from errata.read.corrections import AssetChange


def lineage(project: str, moved: Iterable[AssetChange]) -> OperatorLineage[Any, Any]:
    """The streams and queries that a job's commits changed, with row counts, the inputs of these queries and the feeds
    of these streams."""
    found = list(moved)
    namespace = f"errata://{quote(project, safe='')}"
    rows: dict[str, int] = {}
    for each in found:
        if each.kind == "feeds":  # it is read; the stream that it is merged into names it
            continue
        name = f"{each.kind}/{each.name}"
        rows[name] = rows.get(name, 0) + each.rows
    outputs = [
        OutputDataset(
            namespace=namespace,
            name=name,
            outputFacets={"outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=count)},
        )
        for name, count in rows.items()
    ]
    read = dict.fromkeys(name for each in found for name in each.reads)
    return OperatorLineage(inputs=[Dataset(namespace=namespace, name=name) for name in read], outputs=outputs)
