"""Panels of the page, and how they are found: each module in `panels/` defines a PANEL. A new panel is a module
there and a template; nothing else is registered."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from errata.declare.site import Site
from errata.errors import UsageError
from errata_airflow.page import panels


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parameters of a request, from its path and query string."""

    parameters: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """A parameter; None if it is absent or empty."""
        return self.parameters.get(name) or None

    def needed(self, name: str) -> str:
        """A required parameter; an error if it is absent."""
        if (found := self.text(name)) is None:
            raise UsageError(f"the address lacks {name}", how=f"add {name}=… to it, or begin at the overview")
        return found

    def number(self, name: str) -> int | None:
        """A parameter that is a whole number."""
        if (found := self.text(name)) is None:
            return None
        if not found.isdecimal() or len(found) > 18:
            raise UsageError(f"{name}={found} is no whole number", how="follow a link of the page")
        return int(found)


Data = Callable[[Site, PageRequest], object]


@dataclass(frozen=True, slots=True)
class Page:
    """One page: a function that reads its data, and the template that shows it as `data`."""

    path: str
    """The path below the page's root, with FastAPI's placeholders."""
    title: str
    plain: str
    """What the page shows, in one sentence."""
    data: Data
    template: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A page with a tab, and the pages that it links to."""

    place: int
    """The tab's position, as a sort key."""
    page: Page
    more: tuple[Page, ...] = field(default=())

    @property
    def slug(self) -> str:
        return self.page.path


def all_panels() -> list[Panel]:
    """The panels in the order of their tabs."""
    names = [each.name for each in pkgutil.iter_modules(panels.__path__)]
    found: list[Panel] = [import_module(f"{panels.__name__}.{name}").PANEL for name in names]
    return sorted(found, key=lambda each: each.place)
