"""Whether buckets and overlays agree: each revision masks one row, and each key has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from errata.archive.inspect import masks_of
from errata.archive.keys import key_numbers
from errata.archive.masks import BUCKET, Overlays, read_overlays, sources
from errata.archive.overlay import LIVE, REVISION
from errata.archive.scan import Found, Scan, place_columns, scan_rows
from errata.archive.warehouse import Warehouse
from errata.archive.written import order_values
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.engine.engines import Demand, Engines
from errata.engine.frames import grouped_by, selected
from errata.engine.plans.rows import quoted
from errata.engine.values import fetch
from errata.intake.arrow_types import arrow_schema
from errata.intake.values import as_text
from errata.model.bucket import Bucket
from errata.model.health import SHOWN, Finding, Kind, Patient, Severity
from errata.model.interval import LOWEST
from errata.model.stream import Stream
from errata.model.wholeness import BACKUP

SUSPECTS = 1_000
"""So many hashes that occur twice are looked at by their keys."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Live overlays, read."""

    stream: Stream
    rows: pa.Table
    aged_to: int | None

    @classmethod
    def read(cls, catalog: Catalog, warehouse: Warehouse, standing: Standing, overlays: Sequence[Bucket]) -> Laid:
        """All of these."""
        stream = standing.stream
        return cls(stream, read_overlays(stream, warehouse, sources(catalog, overlays)), standing.aged_to)

    @property
    def overlays(self) -> Overlays:
        return Overlays(self.stream, self.rows)

    def brought(self) -> Counter[int]:
        """By overlay, how many rows it brought, also those that its own commit superseded."""
        return Counter(self.rows.filter(self.rows[LIVE])[BUCKET].to_pylist())

    def left(self) -> Counter[int]:
        """By overlay, how many of these count now."""
        return Counter(self.overlays.surviving(self.aged_to)[BUCKET].to_pylist())

    def findings(self, patient: Patient, hits: pa.Table) -> Iterator[Finding]:
        """Revisions that are there twice, and those that mask no row, or several. `hits` are the rows of base buckets
        that lie where one masks."""
        numbers = self.rows[REVISION].to_numpy()
        single, counts = np.unique(numbers, return_counts=True)
        if len(twice := single[counts > 1]):
            what = f"{_listed(twice)} are there twice"
            why = "each revision was applied once: rows that it brings may be there twice"
            yield _damage(patient, Kind.NUMBERS, what, "overlays", why)
            return
        masks, after = self._left_at_masks(hits)
        for wrong, told in ((after < 0, "no row"), (after > 0, "more than one row")):
            if wrong.any():
                where = f"overlays, {_places(patient, masks.filter(pa.array(wrong)))}"
                why = "scans show what has been corrected, or leave out what has not been"
                yield _damage(
                    patient, Kind.MASKS, f"{_listed(masks[REVISION].to_numpy()[wrong])} mask {told}", where, why
                )

    def _left_at_masks(self, hits: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The masks of places that have not been aged out, and how many rows are left at each place once it has masked
        one: as history went, rows came to the place and were masked, by number."""
        columns, least = place_columns(self.stream), LOWEST if self.aged_to is None else self.aged_to
        masks, brought = masks_of(self.stream, self.rows), self.rows.filter(self.rows[LIVE])
        places = pa.concat_tables([masks.select(columns), brought.select(columns)])
        codes = key_numbers(places)
        own, new = codes[: masks.num_rows], codes[masks.num_rows :]
        numbers = masks[REVISION].to_numpy()
        by_number = np.argsort(numbers)
        at = by_number[np.searchsorted(numbers[by_number], hits["revision"].to_numpy())]
        code = np.concatenate([own, new, own[at]])
        # A row of a base bucket came after the revision of its floor, and what a revision brings after what it masks.
        came = [2 * brought[REVISION].to_numpy() + 1, 2 * hits["floor"].to_numpy() + 1]
        when = np.concatenate([2 * numbers, *came])
        change = np.ones(len(code), dtype=np.int64)
        change[: masks.num_rows] = -1
        sequence = np.lexsort((when, code))
        total = np.cumsum(change[sequence])
        starts = np.diff(code[sequence], prepend=-1) > 0
        before = np.where(starts, total - change[sequence], 0)
        left = np.empty(len(code), dtype=np.int64)
        left[sequence] = total - before[np.maximum.accumulate(np.where(starts, np.arange(len(code)), 0))]
        there = order_values(masks[self.stream.order]) >= least
        return masks.filter(pa.array(there)), left[: masks.num_rows][there]


def double_findings(
    engines: Engines, catalog: Catalog, warehouse: Warehouse, patient: Patient, scan: Scan, opened: Found
) -> Iterator[Finding]:
    """Keys of which more than one row counts."""
    stream = scan.standing.stream
    # A scan looks no further where an overlay is said to have no superseded rows; here that is not believed.
    doubted = replace(opened, overlays=[replace(each, masked=max(each.masked, 1)) for each in opened.overlays])
    found, _ = engines.run(
        Demand.of(opened.all),
        lambda session: _doubles(scan_rows(session, catalog, warehouse, scan, doubted), stream),
    )
    if not found.num_rows:
        return
    texts = zip(*(as_text(found[name]).to_pylist() for name in stream.key), strict=True)
    keys = [", ".join(f"{name}={value}" for name, value in zip(stream.key, row, strict=True)) for row in texts]
    more = f" and {len(keys) - SHOWN:,} more" if len(keys) > SHOWN else ""
    what = f"more than one row counts of {len(keys):,} key{'' if len(keys) == 1 else 's'}"
    why = "corrections name a row by its key, and answers count it twice"
    yield _damage(patient, Kind.DOUBLE, what, "; ".join(keys[:SHOWN]) + more, why)


def _doubles(rows: DataFrame, stream: Stream) -> pa.Table:
    """First by one number for each key, which is little to move; by the keys themselves only where it occurs twice."""
    key = [quoted(name) for name in stream.key]
    hashed = selected(rows, "*", f"xxhash64({', '.join(key)}) AS _hash")
    hashes = fetch(_occurring_twice(hashed, ["_hash"]).limit(SUSPECTS))["_hash"].to_pylist()
    if not hashes:
        return arrow_schema(stream).empty_table()
    some = hashed.filter(f"_hash IN ({', '.join(f'{each}L' for each in hashes)})")
    return fetch(_occurring_twice(some, key).orderBy(*key))


def _occurring_twice(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return grouped_by(rows, columns, ["count(*) AS _count"]).filter("_count > 1")


def _places(patient: Patient, masks: pa.Table) -> str:
    places = order_values(masks[patient.stream.order])
    return patient.span(int(places.min()), int(places.max()))


def _listed(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, np.sort(numbers)[:SHOWN].tolist()))
    return f"revisions {shown}{'' if len(numbers) <= SHOWN else f' and {len(numbers) - SHOWN:,} more'}"


def _damage(patient: Patient, kind: Kind, what: str, where: str, why: str) -> Finding:
    return Finding(patient.name, kind, what, where, why, BACKUP, severity=Severity.DAMAGE)
