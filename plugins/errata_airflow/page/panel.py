"""What a panel is, and the list of them: each module in `panels/` has a PANEL, and a new one needs nothing else."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from errata.declare.site import Site
from errata.errors import UsageError
from errata_airflow.page import panels


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address of a page asks for."""

    said: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """A word of the address; None where it is not there, or empty."""
        return self.said.get(name) or None

    def needed(self, name: str) -> str:
        """A word without which there is nothing to show."""
        if (found := self.text(name)) is None:
            raise UsageError(f"the address lacks {name}", how=f"add {name}=… to it, or begin at the overview")
        return found

    def number(self, name: str) -> int | None:
        """A whole number of the address."""
        if (found := self.text(name)) is None:
            return None
        if not found.isdecimal() or len(found) > 18:
            raise UsageError(f"{name}={found} is no whole number", how="follow a link of the page")
        return int(found)


Data = Callable[[Site, Asked], object]


@dataclass(frozen=True, slots=True)
class Page:
    """One page: how its data is had, and the template that shows it as `data`."""

    path: str
    """Behind the page's root, as FastAPI writes paths."""
    title: str
    plain: str
    """What is seen here, in one sentence."""
    data: Data
    template: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A page with a place in the row of tabs, and pages that its links lead to."""

    place: int
    """Where it stands in the row."""
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
