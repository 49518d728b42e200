"""What has to be true when all is quiet: streams hold what their sources hold, every query publishes the answer over
it, its changes fold to that answer, archives are whole, and nobody holds a lease."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan
from errata.archive.upkeep.doctor import run_doctor
from errata.catalog import commits, leases, streams
from errata.declare.site import Site, open_site
from errata.model.findings import FindingKind
from errata.model.results import VE, VS
from errata.read.changes import ChangelogReader
from fixtures import answers as reading
from fixtures.duck import answers, same
from fixtures.projects import Written
from fixtures.runs import Answering

LAST, EARLIER = 40, 20
"""So many of the last instants are compared, and so many at random of those before."""


class Follower:
    """Who reads the changes of all queries as they come, from the beginning on."""

    def __init__(self, queries: Sequence[str]) -> None:
        self._readers = {name: reading.Reader() for name in queries}
        self._told: dict[str, int] = {}

    def take(self, site: Site) -> Mapping[str, reading.Reader]:
        """Take in what has changed since the last time."""
        for name, reader in self._readers.items():
            feed = ChangelogReader(site, name, self._told.get(name))
            reader.take(reading.told(feed))
            assert feed.read_up_to is not None
            self._told[name] = feed.read_up_to
        return self._readers


def check(
    project: Path,
    texts: Mapping[str, str],
    rows: Mapping[str, list[dict[str, Any]]],
    follower: Follower,
    chance: random.Random,
) -> int:
    """Compare everything; the number of answers that were compared."""
    with open_site(project) as site:
        _check_streams(site, rows)
        readers = follower.take(site)
        return _check_answers(site, texts, rows, readers, chance)


def _check_streams(site: Site, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    commit = commits.newest_commit(site.catalog)
    for standing in streams.stream_states(site.catalog, commit):
        name = standing.stream.name
        assert standing.applied == standing.revisions, f"{name}: corrections are pending"
        found = (
            scan_rows(site.session(), site.catalog, site.warehouse, ArchiveScan(standing, commit)).toArrow().to_pylist()
        )
        key = standing.stream.key
        mine = {tuple(row[each] for each in key): row for row in found}
        right = {tuple(row[each] for each in key): row for row in rows[name]}
        assert len(mine) == len(found), f"{name}: a key is there twice"
        differ = sorted(each for each in mine.keys() | right.keys() if not _agree(mine.get(each), right.get(each)))
        assert not differ, (
            f"{name}: {len(differ)} rows differ, the first {mine.get(differ[0])} for {right.get(differ[0])}"
        )


def _agree(mine: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> bool:
    """Whether a row is there as its source holds it, if it does."""
    if mine is None or right is None:
        return mine is right
    return all(mine[name] == value for name, value in right.items())


def _check_answers(
    site: Site,
    texts: Mapping[str, str],
    rows: Mapping[str, list[dict[str, Any]]],
    readers: Mapping[str, reading.Reader],
    chance: random.Random,
) -> int:
    there, compared = Answering(Written(site.project.root), site, texts, served={}), 0
    for name, plan in there.plans().items():
        of = there.of(name)
        first = max(1, of.last.begins)
        recent = max(first, of.frontier - LAST + 1)
        instants = [*chance.sample(range(first, recent), min(EARLIER, recent - first)), *range(recent, of.frontier + 1)]
        right = answers(plan, [rows], instants)
        published = there.rows(name)
        for at in instants:
            wanted = right.get((0, at), [])
            standing = [row for row in published if row[VS] <= at < row[VE]]
            mine = [tuple(row[each] for each in of.shape.names) for row in standing]
            assert same(mine, wanted), f"{name} at {at}: published is {mine}, right is {wanted}"
            shown, held = (_shown(each, of.shape.visible) for each in (standing, readers[name].at(at)))
            assert held == shown, f"{name} at {at}: its changes fold to {held}, published is {shown}"
            compared += 1
    return compared


def _shown(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[dict[str, Any]]:
    """What a reader is shown of some rows."""
    columns = sorted(names)
    return sorted(({each: row[each] for each in columns} for row in rows), key=repr)


def check_left(project: Path) -> None:
    """The doctor finds nothing, and nobody holds a lease."""
    with open_site(project) as site:
        found = [each for examined in run_doctor(site) for each in examined.findings]
        # Readers that were killed leave pins, and one may just have expired; all that had before are gone.
        findings = [f"{each.where}: {each.what}" for each in found if each.kind is not FindingKind.PIN]
        assert not findings, f"the doctor finds {findings}"
        assert len(found) <= 1, f"expired pins are left: {found}"
        held = leases.living_lease_names(site.catalog)
        assert not held, f"leases are left: {held}"
