"""The Airflow plugin: the page in the navigation, links from tasks to it, and a timetable. Every process of Airflow
imports this module, so it does nothing on import, unless ERRATA_PRELOAD asks it to load what tasks need."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from errata_airflow import beside, settings
from errata_airflow.links import MOUNT, ROUTE, ReportLink, base
from errata_airflow.page import LazyPage
from errata_airflow.timetable import OnDemand

PAGE = {"app": LazyPage(), "url_prefix": MOUNT, "name": "Errata"}

VIEW = {
    "name": "Errata",
    "href": f"{base()}{MOUNT}/",
    "icon": f"{base()}{MOUNT}/static/errata.svg",
    "url_route": ROUTE,
    "destination": "nav",
    "nav_top_level": True,
}

APPS, VIEWS, LINKS, TIMETABLES = [PAGE], [VIEW], [ReportLink()], [OnDemand]


class ErrataPlugin(AirflowPlugin):
    """Registers Errata's page, links and timetable."""

    name = "errata"
    fastapi_apps = APPS
    external_views = VIEWS
    operator_extra_links = LINKS
    timetables = TIMETABLES

    @classmethod
    def on_load(cls, *_: Any, **__: Any) -> None:
        """Load what tasks need, in processes that workers are forked from."""
        if settings.preloads():
            beside.load()
