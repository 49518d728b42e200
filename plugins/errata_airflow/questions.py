"""The questions that triggers and sensors ask of a project. Each is answered with a JSON object if there is
something to report, else with None. Importing this module imports Errata, so DAG files must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from errata.answer.due_corrections import find_due_corrections
from errata.archive.ingest.landing import find_landed
from errata.declare.site import Site
from errata.errors import ErrataError, UsageError
from errata.read.watch import CatalogQuestion, ask_catalog, stream_finality, watch_catalog

__all__ = ["Answer", "arrived", "ask", "asked", "landed", "stable", "watch_catalog"]

Answer = dict[str, Any] | None


def arrived(site: Site, names: Sequence[str]) -> Answer:
    """The corrections that are due, of some queries or of all."""
    found = find_due_corrections(site, names)
    return found.record if found else None


def stable(site: Site, stream: str, until: str) -> Answer:
    """The finality of a stream, if it is final up to a time."""
    found = stream_finality(site, stream)
    if not found.is_final(found.parse_time(until)):
        return None
    return {**found.to_json, "until": until, "fingerprint": f"{stream} {until}"}


def landed(site: Site) -> Answer:
    """The files that have landed and settled."""
    found = find_landed(site)
    return found.to_json if found else None


QUESTIONS: dict[str, Callable[..., Answer]] = {"arrived": arrived, "stable": stable, "landed": landed}


def asked(question: str, arguments: dict[str, Any]) -> CatalogQuestion[Answer]:
    """A question by its name, with its arguments."""
    return partial(QUESTIONS[question], **arguments)


def ask(project: Path, question: str, arguments: dict[str, Any]) -> tuple[Answer, str]:
    """Ask once: the answer, and the error if the catalog did not answer. A question that cannot be meant raises an
    error."""
    try:
        return ask_catalog(project, asked(question, arguments)), ""
    except UsageError:
        raise
    except (ErrataError, OSError) as error:
        return None, str(error)
