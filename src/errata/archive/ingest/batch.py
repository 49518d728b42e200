"""Ingest: a batch from its files to its commit, exactly once, whatever is killed and repeated in between.

    inspect files -> name the delivery -> write buckets, invisible -> commit -> clear landed files

The ledger knows every delivery that was ingested, so the same batch again changes nothing. If another writer commits
first, the batch is read and written again on the new state, and the buckets written before are discarded. What a kill
leaves behind is removed by vacuum; landed files that were committed but not cleared are cleared by the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from errata.archive.ingest.batch_writer import WrittenBatch, prepare_batch, write_batch
from errata.archive.ingest.landing import (
    DeliveryCheck,
    NamedDelivery,
    any_missing,
    changed_content_error,
    check_delivered,
    clear_files,
    hold_files,
    inspect_ready_files,
    name_delivery,
    name_delivery_as,
)
from errata.archive.scan_plan import ArchiveScan
from errata.archive.schemas import AppendContext
from errata.catalog import ledger, streams
from errata.catalog.ledger import LedgerBatch
from errata.catalog.quarantine import QuarantineConflict, QuarantineFile
from errata.catalog.stream_commits import AppendCommit, commit_append
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, BatchConflict, FilesConflict, give_up, optimistic
from errata.declare.site import Site, pinned_stream
from errata.errors import BadFileError, ErrataError, RefusedError, UsageError
from errata.intake.files import inspect_files, is_unchanged, resolve_paths
from errata.intake.layout import FileLayout, read_layout
from errata.model.batch import BadRow, BatchCounts, Delivery, Op, QuarantineRetry, SourceFile
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Layout
from errata.model.stream import Stream
from errata.model.time import EVERYTHING, HIGHEST, Interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN_ROWS = 5
"""Bad rows that a report quotes."""

MAX_HELD_ROWS = 50_000
"""Bad rows up to which a batch holds them in memory at its commit; more are read again while they are written."""

ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """What to ingest, and how."""

    stream: str
    paths: Sequence[str] = ()
    landed: bool = False
    batch_id: str | None = None
    strict: bool = False
    again: bool = False
    default_op: Op = Op.INSERT
    """The operation of rows that do not give one; in files of revisions, a replacement."""
    retried: QuarantineRetry | None = None
    """The rows of quarantine that the batch is made of; its commit settles them."""
    retried_files: frozenset[str] = frozenset()
    """Ingest only these of the landed files, which are held in quarantine."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The outcome of a batch."""

    stream: str
    batch_id: str
    commit_id: int | None
    """None if there was nothing to ingest."""
    counts: BatchCounts = field(default_factory=BatchCounts)
    files: int = 0
    already_ingested: bool = False
    """The ledger had the batch already; nothing was changed."""
    stable: int | None = None
    bad: Sequence[BadRow] = ()
    """The first few rows that went to quarantine."""
    held_files: Sequence[QuarantineFile] = ()
    """Landed files of which nothing could be ingested."""
    skipped_files: Sequence[Delivery] = ()
    """Named files that earlier batches had delivered."""
    repeated: Sequence[Delivery] = ()
    """Files of earlier batches with the content of one of these."""
    clearing_error: ErrataError | None = None
    """Why files whose rows are committed could not be cleared from the landing folder."""

    @property
    def incomplete(self) -> bool:
        """Whether something of it went to quarantine."""
        return bool(self.held_files) or (bool(self.counts.quarantined) and not self.already_ingested)


def ingest_batch(site: Site, batch: IngestRequest, on_step: ProgressCallback = lambda _: None) -> IngestReport:
    """Ingest a batch. The same delivery again changes nothing, and the report says so."""
    _check_request(batch)
    stream = site.declared(batch.stream)
    aside: list[QuarantineFile] = []

    def attempt(_: int) -> IngestReport:
        while True:
            on_step("looking at the files")
            standing = streams.stream_state(site.catalog, batch.stream)
            looked = _inspect_batch(site, batch, standing)
            aside.extend(looked.set_aside)
            try:
                named = looked.named
                report = looked.report if named is None else _write_and_commit(site, batch, named, on_step)
            except ErrataError as error:
                if bad := _hold_bad_files(site, batch, standing, looked, error):
                    aside.extend(bad)
                    continue  # the other files can be ingested, and no other writer has come first
                if batch.landed and any_missing(looked.files):
                    raise FilesConflict from error  # another run has even cleared them away
                raise
            whole = replace(report, held_files=aside, skipped_files=looked.left_out)
            return _finish_batch(site, stream, looked, whole, on_step)

    # Another run has just taken some of the files: look again at what is left.
    return optimistic(attempt, _give_up(batch), on=FilesConflict)


@dataclass(frozen=True, slots=True)
class _BatchInspection:
    """The files of a batch, inspected."""

    report: IngestReport
    """The report if nothing is to be ingested."""
    named: NamedDelivery | None = None
    """The delivery to ingest, if any."""
    set_aside: Sequence[QuarantineFile] = ()
    left_out: Sequence[Delivery] = ()
    to_clear: Sequence[SourceFile] = ()
    """Landed files that were ingested before."""
    landed: bool = False

    @property
    def files(self) -> Sequence[SourceFile]:
        return () if self.named is None else self.named.files


def _inspect_batch(site: Site, batch: IngestRequest, standing: StreamState) -> _BatchInspection:
    """Find which files there are, and which of them are new."""
    nothing = IngestReport(batch.stream, batch.batch_id or "", None, stable=standing.stable)
    if batch.landed:
        stream = site.project.streams[batch.stream]
        op = batch.default_op
        files, aside = inspect_ready_files(site, standing, stream, batch.retried_files, op)
        if aside and batch.strict:
            raise _strict_error(aside)
        found = check_delivered(site, standing, files, landed=True)
        new = name_delivery(site, standing, found, landed=True) if found.new else None
        return _BatchInspection(nothing, new, aside, (), [file for file, _ in found.known], landed=True)
    files = inspect_files(resolve_paths(batch.paths))
    if batch.batch_id is not None:
        given = name_delivery_as(site, standing, files, batch.batch_id)
        return (
            _BatchInspection(nothing, given)
            if isinstance(given, NamedDelivery)
            else _BatchInspection(_repeated_report(standing, given, len(files)))
        )
    if batch.again:
        return _BatchInspection(
            nothing, name_delivery(site, standing, DeliveryCheck(files, (), ()), landed=False, guarded=False)
        )
    found = check_delivered(site, standing, files, landed=False)
    known = [delivery for _, delivery in found.known]
    if found.new:
        return _BatchInspection(nothing, name_delivery(site, standing, found, landed=False), left_out=known)
    last = max(known, key=lambda each: each.batch_no)
    taken = ledger.find_batch(site.catalog, standing.stream_id, last.batch_id)
    if taken is None:
        raise AssertionError("a batch whose files are in the ledger is in it, too")
    return _BatchInspection(_repeated_report(standing, taken, len(files)))


def _repeated_report(standing: StreamState, taken: LedgerBatch, files: int) -> IngestReport:
    counted = (taken.commit_id, taken.counts, files)
    return IngestReport(standing.stream.name, taken.batch_id, *counted, already_ingested=True, stable=standing.stable)


def _hold_bad_files(
    site: Site, batch: IngestRequest, standing: StreamState, looked: _BatchInspection, error: ErrataError
) -> Sequence[QuarantineFile]:
    """Hold the landed files because of which the batch failed; none if it failed for another reason."""
    if not (batch.landed and isinstance(error, BadFileError)) or batch.strict:
        return ()
    return hold_files(site, standing, looked.files, error)


def _finish_batch(
    site: Site, stream: Stream, looked: _BatchInspection, report: IngestReport, on_step: ProgressCallback
) -> IngestReport:
    """Clear landed files whose rows are committed, and compact at once where the layout requires it."""
    if looked.landed:
        try:
            clear_files(stream, [*looked.to_clear, *looked.files])
        except ErrataError as error:
            report = replace(report, clearing_error=error)
    if stream.layout is Layout.CLUSTERED and report.counts.appended and not report.already_ingested:
        from errata.archive.upkeep.compaction import compact_streams  # noqa: PLC0415 - for clustered streams alone

        # Buckets of a clustered layout never overlap: those that the batch overlaps are merged with it at once.
        compact_streams(site, [stream.name], on_step=on_step)
    return report


def _strict_error(aside: Sequence[QuarantineFile]) -> RefusedError:
    quoted = [f"{each.name}: {each.reason}" for each in aside[:SHOWN_ROWS]]
    return RefusedError(
        f"{len(aside):,} of the files are bad, and the batch is strict: nothing was taken in",
        why="\n    ".join(quoted),
        how="mend the files, or leave --strict out: then they are set aside and the rest goes in",
    )


def _check_request(batch: IngestRequest) -> None:
    if batch.landed == bool(batch.paths):
        raise UsageError("name files, or take what has landed with --landed: one of the two")
    if batch.landed and batch.batch_id is not None:
        raise UsageError(
            "what has landed is named by its names, contents and times",
            why="between two tries more may land, and the same id must always be the same content",
            how="leave --batch-id out, or name the files",
        )


def _write_and_commit(site: Site, batch: IngestRequest, new: NamedDelivery, on_step: ProgressCallback) -> IngestReport:
    count = len(new.files)
    site.warehouse.check()

    def attempt(_: int) -> IngestReport:
        with pinned_stream(site, batch.stream, "append to") as basis:
            # What can be refused by a look at the files' beginnings is, before Spark is started for it.
            layouts = [read_layout(file, basis.stream, batch.default_op) for file in new.files]
            prepared = prepare_batch(site.catalog, _append_context(site, basis), new.files, layouts, _known_rows(basis))
            small = prepared.is_small(near=site.near_budget() is not None)
            if not small:
                on_step("starting Spark")
            session = None if small else _start_spark(site)
            on_step(f"reading {count:,} file{'s' if count > 1 else ''} and writing buckets")
            arranged = write_batch(prepared, session)
        arranged = replace(arranged, faults=replace(arranged.faults, retried=batch.retried))
        bad = _checked_bad_rows(batch, new, arranged)
        arrived = _batch_commit(batch, new, arranged, bad, layouts)
        on_step("committing")
        # Should the database fail here, nobody knows whether it has committed: the files then stay, for vacuum.
        try:
            commit_id = commit_append(site.catalog, basis, arrived, site.caused_by("append", session))
        except BasisConflict:
            arranged.discard()
            on_step("another writer came first; reading again")
            raise
        except (FilesConflict, QuarantineConflict):
            arranged.discard()
            raise
        except BatchConflict:
            arranged.discard()
            return _repeated_report(basis, _concurrent_batch(site, basis, new), count)
        on_step("committed")
        arranged.faults.discard()
        stable = streams.stream_state(site.catalog, batch.stream).stable
        quoted = tuple(bad[:SHOWN_ROWS])
        made = (batch.stream, new.batch_id, commit_id, arranged.counts, count)
        return IngestReport(*made, stable=stable, bad=quoted, repeated=new.earlier)

    return optimistic(attempt, _give_up(batch))


def _concurrent_batch(site: Site, basis: StreamState, new: NamedDelivery) -> LedgerBatch:
    """The batch of the same id that another run has just taken in."""
    taken = ledger.find_batch(site.catalog, basis.stream_id, new.batch_id)
    if taken is None:
        raise AssertionError("whoever took the batch in has committed it") from None
    if taken.content_hash != new.content:
        raise changed_content_error(taken) from None
    return taken


def _start_spark(site: Site) -> SparkSession:
    from errata.engine.failures import spark_errors_in_words  # noqa: PLC0415 - it imports PySpark: a small batch needs none

    with spark_errors_in_words():
        return site.session()


def _give_up(batch: IngestRequest) -> Callable[[], NoReturn]:
    what = f"writer moved stream {batch.stream} first; nothing was committed"
    return give_up(what, "run it again, or take batches of one stream in one after the other")


def _append_context(site: Site, basis: StreamState) -> AppendContext:
    stream, now = basis.stream, site.catalog.clock.now()
    arrival = now if basis.vs_max is None or not stream.ordered_on_arrival else max(now, basis.vs_max)
    newest = now + stream.max_ahead if stream.max_ahead is not None and stream.timed else HIGHEST - 1
    room = MAX_INLINE_STREAM_BYTES - basis.inline_bytes
    return AppendContext(stream, site.warehouse, basis.stable, newest, arrival, (), room)


def _known_rows(basis: StreamState) -> ArchiveScan | None:
    """Where the archive may have a row of the same key as a new one: from stable on, if the key tells the place."""
    if basis.stable is None:
        return None
    interval = Interval(start=basis.stable) if basis.stream.key_has_order else EVERYTHING
    return ArchiveScan(basis, basis.changed_in, interval)


def _checked_bad_rows(batch: IngestRequest, new: NamedDelivery, arranged: WrittenBatch) -> list[BadRow]:
    """The bad rows, read before anything is locked: all, or the first `MAX_HELD_ROWS`.

    Raises if a file has changed since it was hashed, or if the batch is strict and has bad rows.
    """
    try:
        _check_unchanged(new.files)
        if batch.strict:
            _check_strict(arranged)
        return list(islice(arranged.faults.rows(), MAX_HELD_ROWS))
    except ErrataError:
        arranged.discard()
        raise


def _check_unchanged(files: Sequence[SourceFile]) -> None:
    for file in files:
        if not is_unchanged(file):
            raise ErrataError(
                f"{file.name} changed while it was read; nothing was taken in",
                how="run it again when it is written; a longer `settle` keeps a landing folder from this",
            )


def _batch_commit(
    batch: IngestRequest,
    new: NamedDelivery,
    arranged: WrittenBatch,
    bad: Sequence[BadRow],
    layouts: Sequence[FileLayout],
) -> AppendCommit:
    return AppendCommit(
        new.batch_id,
        new.content,
        [replace(file, header=layout.header) for file, layout in zip(new.files, layouts, strict=True)],
        arranged.splits,
        arranged.counts,
        arranged.buckets,
        bad if arranged.faults.count <= MAX_HELD_ROWS else arranged.faults.rows(),
        arranged.on_time,
        frozenset(file.sha256 for file in new.files) if new.guarded else frozenset(),
        new.known,
        new.retake_of,
        batch.default_op,
        () if batch.retried is None else batch.retried.ids,
    )


def _check_strict(arranged: WrittenBatch) -> None:
    if not arranged.counts.quarantined:
        return
    quoted = [f"{row.file}, line {row.line}: {row.reason}" for row in islice(arranged.faults.rows(), SHOWN_ROWS)]
    more = arranged.counts.quarantined - len(quoted)
    quoted += [f"and {more:,} more"] if more else []
    raise RefusedError(
        f"{arranged.counts.quarantined:,} of {arranged.counts.read:,} rows are bad, and the batch is strict: "
        "nothing was taken in",
        why="\n    ".join(quoted),
        how="mend the rows, or leave --strict out: then they go to quarantine and the rest goes in",
    )
