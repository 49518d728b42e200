"""Assets of Airflow: each stream, each query and each feed of a merged stream is one, and each commit that changes it,
or takes something of the feed in, is an event.

The commits of a task are found in the catalog, which records who made them, and not in the job's output. So events are
complete wherever the job ran and however it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from errata.read.corrections import AssetChange

MOVED = AssetAlias(name="errata", group="errata")
"""The alias under which tasks emit events of assets."""


def asset(project: str, kind: str, name: str) -> Asset:
    """The asset of a stream, query or feed (`streams`, `queries`, `feeds`), on which other DAGs can be scheduled."""
    uri = f"errata://{quote(project, safe='')}/{kind}/{quote(name, safe='')}"
    return Asset(name=f"{project}.{name}", uri=uri, group="errata")


def emit_asset_events(outlet_events: Any, project: str, moved: Iterable[AssetChange]) -> None:
    """Emit an event for each commit."""
    for each in moved:
        outlet_events[MOVED].add(asset(project, each.kind, each.name), extra=dict(each.to_json))
