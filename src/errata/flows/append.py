"""Taking a batch in, from files to a commit: exactly once, whatever is killed and run again in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pyspark.sql import SparkSession
from upath import UPath

from errata.archive.append import Arranged, arrange
from errata.archive.scan import Scan
from errata.archive.wire import Intent
from errata.catalog import ledger, streams
from errata.catalog.append import AlreadyTakenError, Arrived, BasisMovedError, commit_append
from errata.catalog.streams import Standing
from errata.errors import ErrataError, Refused, UsageError
from errata.flows.landing import clear, waiting
from errata.flows.site import Site
from errata.intake.find import inspect_all, resolve
from errata.model.batch import BadRow, Counts, SourceFile, check_batch_id, content_hash
from errata.model.bucket import INLINE_STREAM_BYTES
from errata.model.interval import HIGHEST, Interval
from errata.spark.failures import spark_failures

TRIES = 8
"""Other writers can come first this often before we give up and say so."""

SHOWN = 5
"""Bad rows that a report quotes."""

HELD = 50_000
"""Bad rows up to this number are in memory when a batch is committed."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be taken in, and how."""

    stream: str
    paths: Sequence[str] = ()
    landed: bool = False
    batch_id: str | None = None
    strict: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What came of a batch."""

    stream: str
    batch_id: str
    commit_id: int | None
    """None when there was nothing to take in."""
    counts: Counts = field(default_factory=Counts)
    files: int = 0
    already: bool = False
    """The ledger had the batch; nothing was changed."""
    stable: int | None = None
    bad: Sequence[BadRow] = ()
    """The first few rows that went to quarantine."""


def append(site: Site, batch: Batch, on_step: OnStep = lambda _: None) -> AppendReport:
    """Take a batch in. The same batch again changes nothing and says so."""
    stream = site.declared(batch.stream)
    standing = streams.standing(site.catalog, batch.stream)
    on_step("looking at the files")
    files = inspect_all(_chosen(site, batch))
    if batch.landed:
        fresh = _not_taken(site, standing, files)
        clear(stream, [file for file in files if file not in fresh])
        files = fresh
    if not files:
        return AppendReport(batch.stream, batch.batch_id or "", None, stable=standing.stable)
    content = content_hash(files)
    batch_id = check_batch_id(batch.batch_id or content)
    report = _taken_before(site, standing, batch_id, content, files)
    if report is None:
        if not batch.again and not batch.landed:
            _refuse_known(site, standing, batch_id, files)
        report = _take_in(site, batch, batch_id, content, files, on_step)
    if batch.landed:
        clear(stream, files)
    return report


def _chosen(site: Site, batch: Batch) -> list[UPath]:
    if batch.landed == bool(batch.paths):
        raise UsageError("name files, or take what has landed with --landed: one of the two")
    if not batch.landed:
        return resolve(batch.paths)
    return waiting(site.project.streams[batch.stream], site.catalog.clock.now())


def _not_taken(site: Site, standing: Standing, files: Sequence[SourceFile]) -> list[SourceFile]:
    known = ledger.earlier(site.catalog, standing.stream_id, [file.sha256 for file in files])
    return [file for file in files if file.sha256 not in known]


def _taken_before(
    site: Site, standing: Standing, batch_id: str, content: str, files: Sequence[SourceFile]
) -> AppendReport | None:
    taken = ledger.taken(site.catalog, standing.stream_id, batch_id)
    if taken is None:
        return None
    if taken.content_hash != content:
        raise Refused(
            f"batch {batch_id} was taken in before, with other content",
            why=f"commit {taken.commit_id} holds what it said then",
            how="give these files a batch id of their own; corrections of rows go in as rows with _op",
        )
    name = standing.stream.name
    return AppendReport(name, batch_id, taken.commit_id, taken.counts, len(files), already=True, stable=standing.stable)


def _refuse_known(site: Site, standing: Standing, batch_id: str, files: Sequence[SourceFile]) -> None:
    known = ledger.earlier(site.catalog, standing.stream_id, [file.sha256 for file in files])
    for file in files:
        if file.sha256 in known:
            raise Refused(
                f"{file.name} has been taken in before",
                why=f"its content came with batch {known[file.sha256]}; batch {batch_id} would bring it again",
                how="leave it out, or insist with --again (rows that are there already are then dropped)",
            )


def _take_in(
    site: Site, batch: Batch, batch_id: str, content: str, files: Sequence[SourceFile], on_step: OnStep
) -> AppendReport:
    session = site.session()
    for attempt in range(TRIES):
        basis = streams.standing(site.catalog, batch.stream)
        on_step(f"reading {len(files):,} file{'s' if len(files) > 1 else ''} and writing buckets")
        with spark_failures():
            intent = _intent(site, basis)
            arranged = arrange(session, site.catalog, intent, files, _known(basis, intent.arrival))
        try:
            if batch.strict and arranged.counts.quarantined:
                raise _strictly(arranged)
            on_step("committing")
            commit_id = _commit(site, session, basis, batch_id, content, files, arranged)
        except BasisMovedError:
            _discard(site, arranged)
            on_step("another writer came first; reading again")
            time.sleep(0.05 * attempt)
        except AlreadyTakenError:
            _discard(site, arranged)
            report = _taken_before(site, basis, batch_id, content, files)
            if report is None:
                raise AssertionError("whoever took the batch in has committed it") from None
            return report
        except ErrataError:
            _discard(site, arranged)
            raise
        else:
            on_step("committed")
            bad = tuple(islice(arranged.faults.rows(), SHOWN))
            arranged.faults.discard()
            after = streams.standing(site.catalog, batch.stream)
            return AppendReport(
                batch.stream, batch_id, commit_id, arranged.counts, len(files), stable=after.stable, bad=bad
            )
    raise ErrataError(
        f"{TRIES} times another writer moved stream {batch.stream} first; nothing was committed",
        how="run it again, or take batches of one stream in one after the other",
    )


def _intent(site: Site, basis: Standing) -> Intent:
    stream, now = basis.stream, site.catalog.clock.now()
    arrival = now if basis.vs_max is None or not stream.ordered_on_arrival else max(now, basis.vs_max)
    newest = now + stream.max_ahead if stream.max_ahead is not None and stream.timed else None
    inline = basis.inline_bytes < INLINE_STREAM_BYTES
    return Intent(stream, site.warehouse, basis.stable, newest, arrival, (), inline)


def _known(basis: Standing, arrival: int) -> Scan | None:
    """Where the archive has rows that a new one may repeat: not behind stable, if equal keys have equal places."""
    stream = basis.stream
    if basis.stable is None:
        return None
    if stream.key_has_order and stream.ordered_on_arrival and basis.vs_max is not None and arrival > basis.vs_max:
        return None  # what arrives now differs in its key from all that has arrived before
    interval = Interval(start=basis.stable) if stream.key_has_order else Interval(end=HIGHEST)
    return Scan(basis, basis.changed_in, interval)


def _commit(
    site: Site,
    session: SparkSession,
    basis: Standing,
    batch_id: str,
    content: str,
    files: Sequence[SourceFile],
    arranged: Arranged,
) -> int:
    arrived = Arrived(
        batch_id,
        content,
        files,
        arranged.splits,
        arranged.counts,
        arranged.buckets,
        _bad_rows(arranged),
        arranged.on_time,
    )
    return commit_append(site.catalog, basis, arrived, site.caused_by("append", session))


def _bad_rows(arranged: Arranged) -> Iterable[BadRow]:
    """The rows for quarantine, read from their files before anything is locked, unless they are too many to hold."""
    rows = arranged.faults.rows()
    return list(rows) if arranged.faults.count <= HELD else rows


def _strictly(arranged: Arranged) -> ErrataError:
    quoted = [f"{row.file}, line {row.line}: {row.reason}" for row in islice(arranged.faults.rows(), SHOWN)]
    more = arranged.counts.quarantined - len(quoted)
    quoted += [f"and {more:,} more"] if more else []
    return Refused(
        f"{arranged.counts.quarantined:,} of {arranged.counts.read:,} rows are bad, and the batch is strict: "
        "nothing was taken in",
        why="\n    ".join(quoted),
        how="mend the rows, or leave --strict out: then they go to quarantine and the rest goes in",
    )


def _discard(site: Site, arranged: Arranged) -> None:
    """Remove what was written and will not be committed; what a kill leaves behind is found by vacuum."""
    arranged.faults.discard()
    for bucket in arranged.buckets:
        if bucket.path is not None:
            site.warehouse.remove(bucket.path)
