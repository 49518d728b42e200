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
from errata.catalog.held_files import HeldFile
from errata.catalog.ledger import Taken
from errata.catalog.quarantine import SettledError
from errata.catalog.streams import Standing
from errata.engine.failures import spark_failures
from errata.errors import BadFile, ErrataError, Refused, UsageError
from errata.flows.site import Site, on_basis
from errata.flows.taking.deliveries import Named, Sorted, named, named_so, other_content, sort_out
from errata.flows.taking.landing import any_gone, clear, inspect_landed, set_aside
from errata.flows.upkeep.compact import compact
from errata.intake.find import inspect_all, resolve, unchanged
from errata.intake.layout import FileLayout, read_layout
from errata.model.batch import BadRow, Counts, Delivery, Retried, SourceFile
from errata.model.bucket import INLINE_STREAM_BYTES, Layout
from errata.model.interval import EVERYTHING, HIGHEST, Interval
from errata.model.revision import Op
from errata.model.stream import Stream

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
    retried_files: frozenset[str] = frozenset()
    """Of what has landed only these files, which are held in quarantine."""


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
    set_aside: Sequence[HeldFile] = ()
    """Landed files of which nothing could be taken in."""
    left_out: Sequence[Delivery] = ()
    """Named files that earlier batches had brought."""
    repeated: Sequence[Delivery] = ()
    """Files of earlier batches that said the same as one of these."""
    trouble: ErrataError | None = None
    """Why files whose rows are committed could not be put away."""

    @property
    def incomplete(self) -> bool:
        """Whether something of it went to quarantine."""
        return bool(self.set_aside) or (bool(self.counts.quarantined) and not self.already)


def append(site: Site, batch: Batch, on_step: OnStep = lambda _: None) -> AppendReport:
    """Take a batch in. The same delivery again changes nothing and says so."""
    _check(batch)
    stream = site.declared(batch.stream)
    aside: list[HeldFile] = []
    tries = 0
    while tries < TRIES:
        on_step("looking at the files")
        standing = streams.standing(site.catalog, batch.stream)
        looked = _look(site, batch, standing)
        aside += looked.set_aside
        try:
            report = looked.report if looked.named is None else _take_in(site, batch, looked.named, on_step)
        except FilesTakenError:
            tries += 1
            continue  # another run has just taken some of them: look again at what is left
        except ErrataError as error:
            bad = _set_aside(site, batch, standing, looked, error)
            gone = batch.landed and any_gone(looked.files)  # another run has even cleared them away
            if not (bad or gone):
                raise
            aside += bad
            tries += not bad
            continue
        return _finished(site, stream, looked, replace(report, set_aside=aside, left_out=looked.left_out), on_step)
    raise _too_busy(batch)


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a look at the files of a batch has told."""

    report: AppendReport
    """What is to be said if nothing is to be taken in."""
    named: Named | None = None
    """What is to be taken in."""
    set_aside: Sequence[HeldFile] = ()
    left_out: Sequence[Delivery] = ()
    to_clear: Sequence[SourceFile] = ()
    """Landed files that have been taken in before."""
    landed: bool = False

    @property
    def files(self) -> Sequence[SourceFile]:
        return () if self.named is None else self.named.files


def _look(site: Site, batch: Batch, standing: Standing) -> _Looked:
    """Look which files there are, and which of them are new."""
    nothing = AppendReport(batch.stream, batch.batch_id or "", None, stable=standing.stable)
    if batch.landed:
        stream = site.project.streams[batch.stream]
        op = batch.default_op
        files, aside = inspect_landed(site, standing, stream, batch.retried_files, op)
        if aside and batch.strict:
            raise _not_strict(aside)
        found = sort_out(site, standing, files, landed=True)
        new = named(site, standing, found, landed=True) if found.new else None
        return _Looked(nothing, new, aside, (), [file for file, _ in found.known], landed=True)
    files = inspect_all(resolve(batch.paths))
    if batch.batch_id is not None:
        given = named_so(site, standing, files, batch.batch_id)
        return _Looked(nothing, given) if isinstance(given, Named) else _Looked(_already(standing, given, len(files)))
    if batch.again:
        return _Looked(nothing, named(site, standing, Sorted(files, (), ()), landed=False, guarded=False))
    found = sort_out(site, standing, files, landed=False)
    known = [delivery for _, delivery in found.known]
    if found.new:
        return _Looked(nothing, named(site, standing, found, landed=False), left_out=known)
    last = max(known, key=lambda each: each.batch_no)
    taken = ledger.taken(site.catalog, standing.stream_id, last.batch_id)
    if taken is None:
        raise AssertionError("a batch whose files are in the ledger is in it, too")
    return _Looked(_already(standing, taken, len(files)))


def _already(standing: Standing, taken: Taken, files: int) -> AppendReport:
    counted = (taken.commit_id, taken.counts, files)
    return AppendReport(standing.stream.name, taken.batch_id, *counted, already=True, stable=standing.stable)


def _set_aside(site: Site, batch: Batch, standing: Standing, looked: _Looked, error: ErrataError) -> Sequence[HeldFile]:
    """Set aside the landed files for which taking the batch in has failed; none if it has failed for something else."""
    if not (batch.landed and isinstance(error, BadFile)) or batch.strict:
        return ()
    return set_aside(site, standing, looked.files, error)


def _finished(site: Site, stream: Stream, looked: _Looked, report: AppendReport, on_step: OnStep) -> AppendReport:
    """Put away landed files whose rows are committed, and compact what has to be at once."""
    if looked.landed:
        try:
            clear(stream, [*looked.to_clear, *looked.files])
        except ErrataError as error:
            report = replace(report, trouble=error)
    if stream.layout is Layout.CLUSTERED and report.counts.appended and not report.already:
        # Pieces of one sorted table never overlap: those that the batch reaches into are merged with it at once.
        compact(site, [stream.name], on_step=on_step)
    return report


def _not_strict(aside: Sequence[HeldFile]) -> Refused:
    quoted = [f"{each.name}: {each.reason}" for each in aside[:SHOWN]]
    return Refused(
        f"{len(aside):,} of the files are bad, and the batch is strict: nothing was taken in",
        why="\n    ".join(quoted),
        how="mend the files, or leave --strict out: then they are set aside and the rest goes in",
    )


def _check(batch: Batch) -> None:
    if batch.landed == bool(batch.paths):
        raise UsageError("name files, or take what has landed with --landed: one of the two")
    if batch.landed and batch.batch_id is not None:
        raise UsageError(
            "what has landed is named by its names, contents and times",
            why="between two tries more may land, and the same id must always be the same content",
            how="leave --batch-id out, or name the files",
        )


def _take_in(site: Site, batch: Batch, new: Named, on_step: OnStep) -> AppendReport:
    count = len(new.files)
    site.warehouse.check()
    for attempt in range(TRIES):
        with on_basis(site, batch.stream, "append to") as basis, spark_failures():
            # What can be refused by a look at the files' beginnings is, before Spark is started for it.
            layouts = [read_layout(file, basis.stream, batch.default_op) for file in new.files]
            prepared = prepare(site.catalog, _intent(site, basis), new.files, layouts, _known(basis))
            small = prepared.is_small(near=site.engines().budget is not None)
            if not small:
                on_step("starting Spark")
            session = None if small else site.session()
            on_step(f"reading {count:,} file{'s' if count > 1 else ''} and writing buckets")
            arranged = arrange(prepared, session)
        arranged = replace(arranged, faults=replace(arranged.faults, retried=batch.retried))
        bad = _worth_committing(batch, new, arranged)
        arrived = _arrived(batch, new, arranged, bad, layouts)
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
            taken = ledger.taken(site.catalog, basis.stream_id, new.batch_id)
            if taken is None:
                raise AssertionError("whoever took the batch in has committed it") from None
            if taken.content_hash != new.content:
                raise other_content(taken) from None
            return _already(basis, taken, count)
        else:
            on_step("committed")
            arranged.faults.discard()
            stable = streams.standing(site.catalog, batch.stream).stable
            quoted = tuple(bad[:SHOWN])
            return AppendReport(
                batch.stream,
                new.batch_id,
                commit_id,
                arranged.counts,
                count,
                stable=stable,
                bad=quoted,
                repeated=new.earlier,
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


def _worth_committing(batch: Batch, new: Named, arranged: Arranged) -> list[BadRow]:
    """The bad rows, read from their files before anything is locked: all, or the first few when they are very many.

    Nothing is worth committing when a file is no longer what its hash says, or when the batch is strict and not clean.
    """
    try:
        _check_unchanged(new.files)
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
    batch: Batch, new: Named, arranged: Arranged, bad: Sequence[BadRow], layouts: Sequence[FileLayout]
) -> Arrived:
    return Arrived(
        new.batch_id,
        new.content,
        [replace(file, header=layout.header) for file, layout in zip(new.files, layouts, strict=True)],
        arranged.splits,
        arranged.counts,
        arranged.buckets,
        bad if arranged.faults.count <= HELD else arranged.faults.rows(),
        arranged.on_time,
        frozenset(file.sha256 for file in new.files) if new.guarded else frozenset(),
        new.known,
        new.again_of,
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
