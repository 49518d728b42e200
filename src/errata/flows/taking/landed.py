"""What lies in the landing folders of streams and can be taken in: files that have settled and are not known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from upath import UPath

from errata.catalog import ledger, streams
from errata.catalog.streams import Standing
from errata.errors import ErrataError
from errata.flows.site import Site
from errata.flows.taking.landing import look
from errata.intake.find import glance, landed
from errata.intake.places import escaped
from errata.model.stream import Then


@dataclass(frozen=True, slots=True)
class Landed:
    """Files that can be taken in, by stream; false where there are none."""

    files: Mapping[str, tuple[tuple[str, int], ...]]
    """Their names and sizes."""

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def told(self) -> dict[str, object]:
        """As JSON can hold it; the fingerprint is another one when other files are there."""
        text = "\n".join(f"{stream} {name} {size}" for stream, some in self.files.items() for name, size in some)
        counts = {stream: len(some) for stream, some in self.files.items()}
        return {"streams": counts, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""}


def landed_files(site: Site) -> Landed:
    """What has landed and has not been taken in."""
    found = ((each.stream.name, _new(site, each)) for each in streams.standings(site.catalog))
    return Landed({name: files for name, files in found if files})


def not_taken(site: Site, of: Standing, files: Iterable[UPath]) -> list[tuple[str, int]]:
    """Of files in a stream's landing folder those that have not been taken in, with their sizes."""
    found = [(escaped(file), *look) for file in files if (look := glance(file)) is not None]
    if of.stream.landing is None or of.stream.landing.then is not Then.KEEP:
        return [(name, size) for name, size, _ in found]
    # Files that stay are told from new ones by name, size and time: to read them all would be no quick look.
    known = ledger.known_files(site.catalog, of.stream_id, [name for name, *_ in found])
    return [
        (name, size)
        for name, size, changed in found
        if (name, size, changed) not in known and (name, size, None) not in known
    ]


def _new(site: Site, of: Standing) -> tuple[tuple[str, int], ...]:
    if of.stream.landing is None:
        return ()
    try:
        if not landed(of.stream.landing):
            return ()  # looked at often, and mostly so: the catalog need not be asked
        return tuple(sorted(not_taken(site, of, look(site, of, of.stream).ready)))
    except ErrataError:
        # Whoever takes in what has landed is told what is wrong with the folder.
        return ((of.stream.landing.path, 0),)
