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

from errata.archive.ingest.batch_writer import BatchFaults, PreparedBatch, discard_batch, prepare_batch, write_batch
from errata.archive.ingest.landing import (
    any_missing,
    changed_content_error,
    clear_files,
    hold_files,
    inspect_ready_files,
    name_files,
    name_files_as,
    name_new_files,
)
from errata.archive.scan_plan import ArchiveScan
from errata.archive.schemas import AppendContext
from errata.catalog import ledger, streams
from errata.catalog.ledger import LedgerBatch
from errata.catalog.quarantine import QuarantineConflict, QuarantineFile
from errata.catalog.stream_commits import commit_append
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, BatchConflict, FilesConflict, give_up, optimistic
from errata.declare.site import ProgressCallback, Site, pinned_stream
from errata.errors import BadFileError, ErrataError, RefusedError, UsageError
from errata.intake.files import inspect_files, is_unchanged, resolve_paths
from errata.intake.layout import read_layout
from errata.model.batch import BadRow, Batch, BatchCounts, Delivery, Op, QuarantineRetry, SourceFile
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Layout
from errata.model.stream import Stream
from errata.model.time import EVERYTHING, HIGHEST, Interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from errata.catalog.feeds import FeedChange
    from errata.catalog.merge_commits import MergeCommit

SHOWN_ROWS = 5
"""Bad rows that a report quotes."""

MAX_HELD_ROWS = 50_000
"""Bad rows up to which a batch holds them in memory at its commit; more are read again while they are written."""


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
    feed: str | None = None
    """The feed whose files are named, of a stream with feeds."""


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


def ingest_batch(site: Site, request: IngestRequest, on_step: ProgressCallback = lambda _: None) -> IngestReport:
    """Ingest a batch. The same delivery again changes nothing, and the report says so."""
    _check_request(request)
    stream = site.declared(request.stream)
    if request.feed is not None or not stream.merged.is_empty:
        from errata.archive.ingest.feed_requests import check_feed  # noqa: PLC0415 - most streams have no feeds

        check_feed(site, stream, request)
    aside: list[QuarantineFile] = []

    def attempt(_: int) -> IngestReport:
        while True:
            on_step("looking at the files")
            standing = streams.stream_state(site.catalog, request.stream)
            report, batch, known = _inspect_batch(site, request, standing)
            files, left_out = () if batch is None else batch.files, report.skipped_files
            aside.extend(report.held_files)
            try:
                if batch is not None:
                    report = _write_and_commit(site, request, batch, on_step)
            except ErrataError as error:
                if bad := _hold_bad_files(site, request, standing, files, error):
                    aside.extend(bad)
                    continue  # the other files can be ingested, and no other writer has come first
                if request.landed and any_missing(files):
                    raise FilesConflict from error  # another run has even cleared them away
                raise
            whole = replace(report, held_files=aside, skipped_files=left_out)
            return _finish_batch(site, stream, [*known, *files] if request.landed else (), whole, on_step)

    # Another run has just taken some of the files: look again at what is left.
    return optimistic(attempt, _give_up(request), on=FilesConflict)


def _inspect_batch(
    site: Site, request: IngestRequest, standing: StreamState
) -> tuple[IngestReport, Batch | None, list[SourceFile]]:
    """Find which files there are, and which of them are new: the report if nothing is to be ingested, the batch of the
    new files, and landed files that were ingested before."""
    nothing = IngestReport(request.stream, request.batch_id or "", None, stable=standing.stable)
    if request.landed:
        stream = site.project.streams[request.stream]
        files, aside = inspect_ready_files(site, standing, stream, request.retried_files, request.default_op)
        if aside and request.strict:
            raise _strict_error(aside)
        batch, known = name_new_files(site, standing, files, landed=True)
        return replace(nothing, held_files=aside), batch, [file for file, _ in known]
    files = inspect_files(resolve_paths(request.paths))
    files = [replace(file, feed=request.feed) for file in files] if request.feed is not None else files
    if request.batch_id is not None:
        given = name_files_as(site, standing, files, request.batch_id)
        if isinstance(given, Batch):
            return nothing, given, []
        return _repeated_report(standing, given, len(files)), None, []
    if request.again:
        return nothing, name_files(site, standing, files), []
    batch, known = name_new_files(site, standing, files, landed=False)
    if batch is not None:
        return replace(nothing, skipped_files=[delivery for _, delivery in known]), batch, []
    last = max((delivery for _, delivery in known), key=lambda each: each.batch_no)
    taken = ledger.find_batch(site.catalog, standing.stream_id, last.batch_id)
    if taken is None:
        raise AssertionError("a batch whose files are in the ledger is in it, too")
    return _repeated_report(standing, taken, len(files)), None, []


def _repeated_report(standing: StreamState, taken: LedgerBatch, files: int) -> IngestReport:
    counted = (taken.commit_id, taken.counts, files)
    return IngestReport(standing.stream.name, taken.batch_id, *counted, already_ingested=True, stable=standing.stable)


def _hold_bad_files(
    site: Site, request: IngestRequest, standing: StreamState, files: Sequence[SourceFile], error: ErrataError
) -> Sequence[QuarantineFile]:
    """Hold the landed files because of which the batch failed; none if it failed for another reason."""
    if not (request.landed and isinstance(error, BadFileError)) or request.strict:
        return ()
    return hold_files(site, standing, files, error)


def _finish_batch(
    site: Site, stream: Stream, landed: Sequence[SourceFile], report: IngestReport, on_step: ProgressCallback
) -> IngestReport:
    """Clear landed files whose rows are committed, and compact at once where the layout requires it."""
    if landed:
        try:
            clear_files(stream, landed)
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


def _check_request(request: IngestRequest) -> None:
    if request.landed == bool(request.paths):
        raise UsageError("name files, or take what has landed with --landed: one of the two")
    if request.landed and request.batch_id is not None:
        raise UsageError(
            "what has landed is named by its names, contents and times",
            why="between two tries more may land, and the same id must always be the same content",
            how="leave --batch-id out, or name the files",
        )


def _write_and_commit(site: Site, request: IngestRequest, batch: Batch, on_step: ProgressCallback) -> IngestReport:
    count = len(batch.files)
    site.warehouse.check()
    retried = () if request.retried is None else request.retried.ids
    new = replace(batch, default_op=request.default_op, retried=retried)

    def attempt(_: int) -> IngestReport:
        with pinned_stream(site, request.stream, "append to") as basis:
            # What can be refused by a look at the files' beginnings is, before Spark is started for it.
            layouts = [read_layout(file, _stream_of(basis, file), request.default_op) for file in new.files]
            prepared = prepare_batch(site.catalog, _append_context(site, basis), new, layouts, _known_rows(basis))
            small = prepared.is_small(near=site.near_budget() is not None)
            if not small:
                on_step("starting Spark")
            session = None if small else _start_spark(site)
            on_step(f"reading {count:,} file{'s' if count > 1 else ''} and writing buckets")
            written, faults, merged = _write_buckets(site, basis, prepared, session)
            settled = None if merged is not None else _settled_disagreements(site, basis, written)
        faults = replace(faults, retried=request.retried)
        bad = _checked_bad_rows(request, written, faults)
        written = replace(written, bad=bad if faults.count <= MAX_HELD_ROWS else faults.rows())
        on_step("committing")
        # Should the database fail here, nobody knows whether it has committed: the files then stay, for vacuum.
        try:
            cause = site.caused_by("append", session)
            commit_id = commit_append(site.catalog, basis, written, cause, merged, settled)
        except BasisConflict:
            discard_batch(written, faults)
            on_step("another writer came first; reading again")
            raise
        except (FilesConflict, QuarantineConflict):
            discard_batch(written, faults)
            raise
        except BatchConflict:
            discard_batch(written, faults)
            return _repeated_report(basis, _concurrent_batch(site, basis, new), count)
        on_step("committed")
        faults.discard()
        stable = streams.stream_state(site.catalog, request.stream).stable
        quoted = tuple(bad[:SHOWN_ROWS])
        made = (request.stream, new.batch_id, commit_id, written.counts, count)
        return IngestReport(*made, stable=stable, bad=quoted, repeated=new.earlier)

    return optimistic(attempt, _give_up(request))


def _write_buckets(
    site: Site, basis: StreamState, prepared: PreparedBatch, session: SparkSession | None
) -> tuple[Batch, BatchFaults, MergeCommit | None]:
    """Read and write a batch; what feeds say is merged in between."""
    if basis.stream.merged.is_empty:
        return *write_batch(prepared, session), None
    if all(file.feed is None for file in prepared.batch.files):
        return *write_batch(prepared, session), None
    from errata.archive.ingest.merge_basis import read_basis  # noqa: PLC0415 - most streams have no feeds
    from errata.archive.ingest.merge_stage import merge_and_write  # noqa: PLC0415

    return merge_and_write(prepared, read_basis(site.catalog, site.warehouse, basis), session)


def _settled_disagreements(site: Site, basis: StreamState, written: Batch) -> FeedChange | None:
    """What a person's corrections settle of what feeds disagree about."""
    if basis.stream.merged.is_empty:
        return None
    from errata.archive.ingest.feed_corrections import settled_disagreements  # noqa: PLC0415 - most streams have no feeds

    return settled_disagreements(site.catalog, site.warehouse, basis, written)


def _stream_of(basis: StreamState, file: SourceFile) -> Stream:
    """The stream as the rows of a file have it."""
    return basis.stream if file.feed is None else basis.stream.as_fed


def _concurrent_batch(site: Site, basis: StreamState, new: Batch) -> LedgerBatch:
    """The batch of the same id that another run has just taken in."""
    taken = ledger.find_batch(site.catalog, basis.stream_id, new.batch_id)
    if taken is None:
        raise AssertionError("whoever took the batch in has committed it") from None
    if taken.content_hash != new.content_hash:
        raise changed_content_error(taken) from None
    return taken


def _start_spark(site: Site) -> SparkSession:
    from errata.engine.failures import spark_errors_in_words  # noqa: PLC0415 - it imports PySpark: a small batch needs none

    with spark_errors_in_words():
        return site.session()


def _give_up(request: IngestRequest) -> Callable[[], NoReturn]:
    what = f"writer moved stream {request.stream} first; nothing was committed"
    return give_up(what, "run it again, or take batches of one stream in one after the other")


def _append_context(site: Site, basis: StreamState) -> AppendContext:
    stream, now = basis.stream, site.catalog.clock.now()
    arrival = now if basis.vs_max is None or not stream.ordered_on_arrival else max(now, basis.vs_max)
    newest = now + stream.max_ahead if stream.max_ahead is not None and stream.timed else HIGHEST - 1
    room = MAX_INLINE_STREAM_BYTES - basis.inline_bytes
    return AppendContext(stream, site.warehouse, basis.stable, newest, arrival, (), room)


def _known_rows(basis: StreamState) -> ArchiveScan | None:
    """Where the archive may have a row of the same key as a new one: from stable on, if the key tells the place. A
    merge knows them itself."""
    if basis.stable is None or not basis.stream.merged.is_empty:
        return None
    interval = Interval(start=basis.stable) if basis.stream.key_has_order else EVERYTHING
    return ArchiveScan(basis, basis.changed_in, interval)


def _checked_bad_rows(request: IngestRequest, written: Batch, faults: BatchFaults) -> list[BadRow]:
    """The bad rows, read before anything is locked: all, or the first `MAX_HELD_ROWS`.

    Raises if a file has changed since it was hashed, or if the batch is strict and has bad rows.
    """
    try:
        _check_unchanged(written.files)
        if request.strict:
            _check_strict(written.counts, faults)
        return list(islice(faults.rows(), MAX_HELD_ROWS))
    except ErrataError:
        discard_batch(written, faults)
        raise


def _check_unchanged(files: Sequence[SourceFile]) -> None:
    for file in files:
        if not is_unchanged(file):
            raise ErrataError(
                f"{file.name} changed while it was read; nothing was taken in",
                how="run it again when it is written; a longer `settle` keeps a landing folder from this",
            )


def _check_strict(counts: BatchCounts, faults: BatchFaults) -> None:
    if not counts.quarantined:
        return
    quoted = [f"{row.file}, line {row.line}: {row.reason}" for row in islice(faults.rows(), SHOWN_ROWS)]
    more = counts.quarantined - len(quoted)
    quoted += [f"and {more:,} more"] if more else []
    raise RefusedError(
        f"{counts.quarantined:,} of {counts.read:,} rows are bad, and the batch is strict: nothing was taken in",
        why="\n    ".join(quoted),
        how="mend the rows, or leave --strict out: then they go to quarantine and the rest goes in",
    )
