"""Assets: each stream and each query is one, and every commit that moves it is an event of it.

Which these are is found in the catalog, by who made the commit, and not told by the job: so it holds wherever the job
ran, and whatever became of its output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from errata.read.corrections import AssetChange

MOVED = AssetAlias(name="errata", group="errata")
"""Under this name tasks tell which assets they have moved."""


def asset(project: str, kind: str, name: str) -> Asset:
    """The asset of a stream or a query (`streams`, `queries`): a DAG of your own can be scheduled on it."""
    uri = f"errata://{quote(project, safe='')}/{kind}/{quote(name, safe='')}"
    return Asset(name=f"{project}.{name}", uri=uri, group="errata")


def tell(outlet_events: Any, project: str, moved: Iterable[AssetChange]) -> None:
    """Make an event of each commit."""
    for each in moved:
        outlet_events[MOVED].add(asset(project, each.kind, each.name), extra=dict(each.told))
