"""Taking a batch in, from files to a commit: exactly once, whatever is killed and run again in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from errata.archive.append import Arranged, arrange, prepare
from errata.archive.scan import Scan
from errata.archive.wire import Intent
from errata.catalog import ledger, streams
from errata.catalog.append import AlreadyTakenError, Arrived, BasisMovedError, FilesTakenError, commit_append
from errata.catalog.quarantine import SettledError
from errata.catalog.streams import Standing
from errata.errors import ErrataError, Refused, UsageError
from errata.flows.site import Site, on_basis
from errata.flows.taking.landing import any_gone, clear, waiting
from errata.flows.upkeep.compact import compact
from errata.intake.find import inspect_all, resolve, unchanged
from errata.intake.layout import FileLayout, has_rows, read_layout
from errata.model.batch import BadRow, Counts, Retried, SourceFile, check_batch_id, content_hash
from errata.model.bucket import INLINE_STREAM_BYTES, Layout
from errata.model.interval import EVERYTHING, HIGHEST, Interval
from errata.model.revision import Op
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
    default_op: Op = Op.INSERT
    """What a row that does not say it does: in files of revisions, a replacement."""
    retried: Retried | None = None
    """The rows of quarantine that it is made of: its commit settles them."""


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
    _check(batch)
    stream = site.declared(batch.stream)
    for _ in range(TRIES):
        on_step("looking at the files")
        standing = streams.standing(site.catalog, batch.stream)
        files = _to_take(site, batch, standing)
        if not files:
            return AppendReport(batch.stream, batch.batch_id or "", None, stable=standing.stable)
        content = content_hash(files)
        named = Named(check_batch_id(batch.batch_id or _own_id(site, batch, standing, content)), content, files)
        report = _taken_before(site, standing, named)
        if report is None:
            if not (batch.landed or batch.again):
                _refuse_known(site, standing, named, batch.default_op)
            try:
                report = _take_in(site, batch, named, on_step)
            except FilesTakenError:
                continue  # another run has just taken some of them: look again at what is left
            except ErrataError:
                if batch.landed and any_gone(files):
                    continue  # it has even cleared them away
                raise
        if batch.landed:
            clear(stream, files)
        if stream.layout is Layout.CLUSTERED and report.counts.appended:
            # Pieces of one sorted table never overlap: those that the batch reaches into are merged with it at once.
            compact(site, [batch.stream], on_step=on_step)
        return report
    raise _too_busy(batch)


@dataclass(frozen=True, slots=True)
class Named:
    """Files that have been looked at, and the id of the batch that they are."""

    batch_id: str
    content: str
    files: Sequence[SourceFile]


def _check(batch: Batch) -> None:
    if batch.landed == bool(batch.paths):
        raise UsageError("name files, or take what has landed with --landed: one of the two")
    if batch.landed and batch.batch_id is not None:
        raise UsageError(
            "what has landed is named by its content",
            why="between two tries more may land, and the same id must always be the same content",
            how="leave --batch-id out, or name the files",
        )


def _to_take(site: Site, batch: Batch, standing: Standing) -> list[SourceFile]:
    """The files of the batch; of those that have landed, the ones that have not been taken in before."""
    if not batch.landed:
        return inspect_all(resolve(batch.paths))
    stream = site.project.streams[batch.stream]
    files = inspect_all(waiting(stream, site.catalog.clock.now()))
    known = ledger.earlier(site.catalog, standing.stream_id, [file.sha256 for file in files])
    clear(stream, [file for file in files if file.sha256 in known])
    return [file for file in files if file.sha256 not in known]


def _refuse_known(site: Site, standing: Standing, named: Named, default_op: Op) -> None:
    """Refuse files that came with another batch. Files without rows are alike on many days, and bring nothing twice."""
    known = ledger.earlier(site.catalog, standing.stream_id, [file.sha256 for file in named.files])
    for file in named.files:
        if file.sha256 in known and has_rows(file, read_layout(file, standing.stream, default_op)):
            raise Refused(
                f"{file.name} has been taken in before",
                why=f"its content came with batch {known[file.sha256]}; batch {named.batch_id} would bring it again",
                how="leave it out, or insist with --again (rows that are there already are then dropped)",
            )


def _own_id(site: Site, batch: Batch, standing: Standing, content: str) -> str:
    """The id of a batch that was given none: its content, and with --again how often that has been taken in."""
    times = ledger.times_taken(site.catalog, standing.stream_id, content) if batch.again else 0
    return f"{content}+{times}" if times else content


def _taken_before(site: Site, standing: Standing, named: Named) -> AppendReport | None:
    taken = ledger.taken(site.catalog, standing.stream_id, named.batch_id)
    if taken is None:
        return None
    if taken.content_hash != named.content:
        raise Refused(
            f"batch {named.batch_id} was taken in before, with other content",
            why=f"commit {taken.commit_id} holds what it said then",
            how="give these files a batch id of their own; corrections of rows go in as rows with _op",
        )
    counted = (taken.commit_id, taken.counts, len(named.files))
    return AppendReport(standing.stream.name, named.batch_id, *counted, already=True, stable=standing.stable)


def _take_in(site: Site, batch: Batch, named: Named, on_step: OnStep) -> AppendReport:
    count = len(named.files)
    site.warehouse.check()
    for attempt in range(TRIES):
        with on_basis(site, batch.stream, "append to") as basis, spark_failures():
            # What can be refused by a look at the files' beginnings is, before Spark is started for it.
            layouts = [read_layout(file, basis.stream, batch.default_op) for file in named.files]
            prepared = prepare(site.catalog, _intent(site, basis), named.files, layouts, _known(basis))
            if not prepared.small:
                on_step("starting Spark")
            session = None if prepared.small else site.session()
            on_step(f"reading {count:,} file{'s' if count > 1 else ''} and writing buckets")
            arranged = arrange(prepared, session)
        arranged = replace(arranged, faults=replace(arranged.faults, retried=batch.retried))
        bad = _worth_committing(batch, named, arranged)
        arrived = _arrived(batch, named, arranged, bad, layouts)
        on_step("committing")
        # Should the database fail here, nobody knows whether it has committed: the files then stay, for vacuum.
        try:
            commit_id = commit_append(site.catalog, basis, arrived, site.caused_by("append", session))
        except BasisMovedError:
            arranged.discard()
            on_step("another writer came first; reading again")
            time.sleep(0.05 * attempt)
        except (FilesTakenError, SettledError):
            arranged.discard()
            raise
        except AlreadyTakenError:
            arranged.discard()
            report = _taken_before(site, basis, named)
            if report is None:
                raise AssertionError("whoever took the batch in has committed it") from None
            return report
        else:
            on_step("committed")
            arranged.faults.discard()
            stable = streams.standing(site.catalog, batch.stream).stable
            quoted = tuple(bad[:SHOWN])
            return AppendReport(
                batch.stream, named.batch_id, commit_id, arranged.counts, count, stable=stable, bad=quoted
            )
    raise _too_busy(batch)


def _too_busy(batch: Batch) -> ErrataError:
    return ErrataError(
        f"{TRIES} times another writer moved stream {batch.stream} first; nothing was committed",
        how="run it again, or take batches of one stream in one after the other",
    )


def _intent(site: Site, basis: Standing) -> Intent:
    stream, now = basis.stream, site.catalog.clock.now()
    arrival = now if basis.vs_max is None or not stream.ordered_on_arrival else max(now, basis.vs_max)
    newest = now + stream.max_ahead if stream.max_ahead is not None and stream.timed else HIGHEST - 1
    room = INLINE_STREAM_BYTES - basis.inline_bytes
    return Intent(stream, site.warehouse, basis.stable, newest, arrival, (), room)


def _known(basis: Standing) -> Scan | None:
    """Where the archive has rows that a new one may repeat: not behind stable, if equal keys have equal places."""
    if basis.stable is None:
        return None
    interval = Interval(start=basis.stable) if basis.stream.key_has_order else EVERYTHING
    return Scan(basis, basis.changed_in, interval)


def _worth_committing(batch: Batch, named: Named, arranged: Arranged) -> list[BadRow]:
    """The bad rows, read from their files before anything is locked: all, or the first few when they are very many.

    Nothing is worth committing when a file is no longer what its hash says, or when the batch is strict and not clean.
    """
    try:
        _check_unchanged(named.files)
        if batch.strict:
            _check_clean(arranged)
        return list(islice(arranged.faults.rows(), HELD))
    except ErrataError:
        arranged.discard()
        raise


def _check_unchanged(files: Sequence[SourceFile]) -> None:
    for file in files:
        if not unchanged(file):
            raise ErrataError(
                f"{file.name} changed while it was read; nothing was taken in",
                how="run it again when it is written; a longer `settle` keeps a landing folder from this",
            )


def _arrived(
    batch: Batch, named: Named, arranged: Arranged, bad: Sequence[BadRow], layouts: Sequence[FileLayout]
) -> Arrived:
    with_rows = {read.split.file.sha256 for read in arranged.splits if read.lines}
    return Arrived(
        named.batch_id,
        named.content,
        [replace(file, header=layout.header) for file, layout in zip(named.files, layouts, strict=True)],
        arranged.splits,
        arranged.counts,
        arranged.buckets,
        bad if arranged.faults.count <= HELD else arranged.faults.rows(),
        arranged.on_time,
        frozenset() if batch.again and not batch.landed else frozenset(with_rows),
        batch.default_op,
        () if batch.retried is None else batch.retried.ids,
    )


def _check_clean(arranged: Arranged) -> None:
    if not arranged.counts.quarantined:
        return
    quoted = [f"{row.file}, line {row.line}: {row.reason}" for row in islice(arranged.faults.rows(), SHOWN)]
    more = arranged.counts.quarantined - len(quoted)
    quoted += [f"and {more:,} more"] if more else []
    raise Refused(
        f"{arranged.counts.quarantined:,} of {arranged.counts.read:,} rows are bad, and the batch is strict: "
        "nothing was taken in",
        why="\n    ".join(quoted),
        how="mend the rows, or leave --strict out: then they go to quarantine and the rest goes in",
    )
