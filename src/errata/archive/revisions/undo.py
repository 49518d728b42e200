"""Undoes a batch: all that it added or changed is reversed, by revisions of a batch of their own.

Two commits: the first records the undo and its pending revisions, the second applies them. If it is killed in between,
the next `undo` or `revise` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from errata.archive.ingest.landing import clear_batch_files
from errata.archive.revisions.apply import apply_stream_revisions
from errata.archive.revisions.decide import CorrectionContext
from errata.archive.revisions.undo_plan import UndoRevisions, delete_batch_rows, undo_corrected_rows
from errata.catalog import streams
from errata.catalog import undo as ledger
from errata.catalog.ledger import files_of_batch
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, BatchConflict, give_up, optimistic
from errata.catalog.undo import UndoCandidate, UndoCommit, commit_undo
from errata.declare.site import ProgressCallback, Site, pinned_stream
from errata.engine.failures import spark_errors_in_words
from errata.errors import RefusedError
from errata.intake.encoding import row_texts
from errata.model.bucket import NewBucket
from errata.model.stream import RevisionPolicy, Stream


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What undoing a batch does, or would do now."""

    stream: str
    batch_id: str
    undo_id: str
    """The id of the batch of the undo's revisions."""
    undone_in: int | None = None
    """The commit that undid the batch before; nothing is done then."""
    deleted: int = 0
    """Rows that it added, to be deleted."""
    restored: int = 0
    """Rows that it changed, to be restored."""
    put_back: int = 0
    """Rows that it deleted, to be inserted again."""
    kept: int = 0
    """Rows left as they are, because later batches changed them or took their key."""
    later: Sequence[Mapping[str, str]] = ()
    """The keys of the first few of these."""
    since: Sequence[str] = ()
    """The later batches that did so."""
    aged: int = 0
    """Rows left as they are, because they have been aged out."""
    withdrawn: int = 0
    """Its revisions that are still pending, and will not be applied."""
    pending: int = 0
    """Revisions of the stream that are applied before."""
    quarantined: int = 0
    """Its rows in quarantine, which stay there."""

    @property
    def revisions(self) -> int:
        return self.deleted + self.restored + self.put_back


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The outcome of undoing a batch."""

    plan: UndoPlan
    commit_id: int
    """The commit that recorded the undo."""
    commits: Sequence[int] = ()
    """Those in which its revisions were applied."""
    already: bool = False
    """It had been undone before."""
    refused: int = 0
    """Rows left as they are, because they changed while the undo was running."""

    @property
    def finished(self) -> bool:
        """Whether this completed an undo that had been killed in between."""
        return self.already and bool(self.commits)


def plan_undo(site: Site, stream: str, batch: str, on_step: ProgressCallback = lambda _: None) -> UndoPlan:
    """What undoing a batch (given by its id or the beginning of it) would do; nothing is changed."""
    with pinned_stream(site, stream, "undo in") as basis, spark_errors_in_words():
        undoable = _find_undoable(site, basis, batch)
        if undoable.undone_in is not None:
            return _undo_plan(basis.stream, undoable)
        on_step("looking for what the batch did")
        plan = _plan_revisions(site, basis, undoable, write=False)[0]
    return replace(plan, pending=ledger.pending_revisions(site.catalog, basis.stream_id))


def undo_batch(
    site: Site, stream: str, batch: str, *, keep_later: bool = False, on_step: ProgressCallback = lambda _: None
) -> UndoReport:
    """Undo a batch. Rows that were changed since are an error, unless `keep_later` leaves them as they are.

    Repeated, it changes nothing, and completes what was not completed.
    """

    def attempt(_: int) -> UndoReport:
        before = streams.stream_state(site.catalog, stream)
        undoable = _find_undoable(site, before, batch)
        on_step("applying what is pending")
        revised = apply_stream_revisions(site, stream)
        if undoable.undone_in is not None:
            return UndoReport(
                _undo_plan(before.stream, undoable),
                undoable.undone_in,
                revised.commits,
                already=True,
                refused=_refused_count(site, before.stream_id, undoable),
            )
        on_step("looking for what the batch did")
        with pinned_stream(site, stream, "undo in") as basis, spark_errors_in_words():
            plan, written = _plan_revisions(site, basis, undoable, write=True, keep_later=keep_later)
        clear_batch_files(before.stream, files_of_batch(site.catalog, before.stream_id, undoable.batch_no))
        withdrawn = ledger.pending_buckets(site.catalog, basis, undoable.batch_no)
        plan = replace(plan, withdrawn=sum(bucket.rows for bucket in withdrawn))
        on_step("committing")
        undoing = UndoCommit(undoable, written, withdrawn, _commit_summary(plan))
        with site.discard_on_conflict(written, partial(on_step, "another writer came first; looking again")):
            commit_id = commit_undo(site.catalog, basis, undoing, site.caused_by("undo"))
        on_step("applying it")
        applied = apply_stream_revisions(site, stream)
        return UndoReport(plan, commit_id, applied.commits, refused=_refused_count(site, basis.stream_id, undoable))

    what = f"writer moved stream {stream} first; nothing was undone"
    failed = give_up(what, "run it again, or when fewer corrections come in")
    return optimistic(attempt, failed, on=(BasisConflict, BatchConflict))


def _find_undoable(site: Site, basis: StreamState, batch: str) -> UndoCandidate:
    undoable = ledger.find_undo_candidate(site.catalog, basis.stream_id, batch)
    if undoable.undone_in is None:
        if basis.stream.on_revision is RevisionPolicy.IGNORE:
            raise RefusedError(
                f"batch {undoable.batch_id} cannot be undone",
                why=f"stream {basis.stream.name} ignores revisions, and an undo is made of revisions",
                how="declare another on_revision",
            )
        ledger.check_undo_id_free(site.catalog, basis.stream_id, undoable)
    return undoable


def _plan_revisions(
    site: Site, basis: StreamState, undoable: UndoCandidate, *, write: bool, keep_later: bool = True
) -> tuple[UndoPlan, list[NewBucket]]:
    """The plan, and its revisions if they are to be written; none is visible yet."""
    place = CorrectionContext(site.session, site.catalog, site.warehouse, basis)
    undoes = ledger.undo_batches(site.catalog, basis.stream_id)
    corrected = undo_corrected_rows(place, undoable.batch_no, undoable.commit_id, undoes)
    plan = _undo_plan(basis.stream, undoable, corrected, ledger.batch_ids(site.catalog, corrected.changed_by))
    if not keep_later:
        refuse_later(plan)
    brought, buckets = 0, list[NewBucket]()
    if undoable.on_time is not None:
        brought, buckets = delete_batch_rows(place, undoable.batch_no, undoable.on_time, write=write)
    if write:
        buckets += corrected.write(place.writer)
    return replace(plan, deleted=plan.deleted + brought), buckets


def _refused_count(site: Site, stream_id: int, undoable: UndoCandidate) -> int:
    """How many revisions of an undo were refused, since their rows had changed meanwhile."""
    return ledger.find_undo_candidate(site.catalog, stream_id, undoable.undo_id).quarantined


def _undo_plan(
    stream: Stream, undoable: UndoCandidate, corrected: UndoRevisions | None = None, since: Sequence[str] = ()
) -> UndoPlan:
    plan = UndoPlan(
        stream.name, undoable.batch_id, undoable.undo_id, undoable.undone_in, quarantined=undoable.quarantined
    )
    if corrected is None:
        return plan
    return replace(
        plan,
        deleted=corrected.deleted,
        restored=corrected.restored,
        put_back=corrected.put_back,
        kept=corrected.kept,
        later=[row_texts(stream, key) for key in corrected.changed_later.to_pylist()],
        since=since,
        aged=corrected.aged,
    )


def refuse_later(plan: UndoPlan) -> None:
    """Raise if rows of the batch have been changed since."""
    if not plan.kept:
        return
    keys = [", ".join(f"{name}={value}" for name, value in key.items()) for key in plan.later]
    more = [f"and {plan.kept - len(keys):,} more"] if plan.kept > len(keys) else []
    raise RefusedError(
        f"batch {plan.batch_id} cannot be undone: {plan.kept:,} of its rows have been changed since",
        where="; ".join([*keys, *more]),
        why=f"undoing it would undo what came later, too: {', '.join(plan.since)}",
        how=f"undo {' and '.join(reversed(plan.since))} first, or leave these rows as they are with --keep-later",
    )


def _commit_summary(plan: UndoPlan) -> dict[str, object]:
    counts = ("deleted", "restored", "put_back", "kept", "aged", "withdrawn")
    return {"undoes": plan.batch_id} | {name: getattr(plan, name) for name in counts if getattr(plan, name)}
