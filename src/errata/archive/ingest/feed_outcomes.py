"""What a merged batch tells of its feeds: how far each has come, what became of its statements, which guarantees it
broke, and what feeds disagree about. It commits with the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import order_values
from errata.archive.ingest.merge_basis import MergeBasis
from errata.archive.ingest.merge_behind import ARCHIVE, BehindRows
from errata.archive.schemas import BATCH
from errata.archive.tables import key_numbers
from errata.catalog.database import Catalog
from errata.catalog.feeds import THIS_COMMIT, Disagreement, FeedChange, FeedState, MergeRecord
from errata.catalog.ledger import BatchOrigin, batch_origins
from errata.intake.encoding import plain_text
from errata.merge.choice import next_algorithm
from errata.merge.elements import FEED
from errata.merge.step import CHOSEN, REASON, BrokenGuarantee, FeedTop, MergeProgress, MergeStep
from errata.model.batch import Batch
from errata.model.feed import DisagreementPolicy, properties_to_record
from errata.model.stream import Stream

ARCHIVED = "archived"
"""In place of a policy: the value that the archive has stays."""

MAX_DISAGREEMENTS = 5_000
"""Disagreements of one batch that are recorded each for itself. A feed that has a whole column wrong disagrees about
every row; the counts of the commit tell how many there were."""


@dataclass(frozen=True, slots=True)
class FeedTally:
    """What a merged batch tells of its feeds."""

    said: Mapping[int, int]
    """Statements by feed."""
    progress: MergeProgress
    step: MergeStep
    behind: BehindRows


def feed_change(catalog: Catalog, of: MergeBasis, tally: FeedTally, batch: Batch) -> FeedChange:
    """What the commit of a batch changes of the stream's feeds. `batch` knows the files and lines of its positions."""
    stream, step = of.stood.stream, tally.step
    origin = own_origin(batch)
    leader = tally.progress.leader
    record = MergeRecord(
        step.algorithm,
        of.choice.reason if step.algorithm is of.choice.algorithm else _broken_reason(stream, of, step.broken, origin),
        tally.progress.stable,
        None if leader is None else stream.merged.feeds[leader].name,
    )
    return FeedChange(
        [_state_after(stream, number, each, tally, origin) for number, each in enumerate(of.standing)],
        record,
        _disagreements(catalog, of, tally, origin),
        _texts(step.agreed, stream.key),
    )


def own_origin(batch: Batch) -> BatchOrigin:
    """The way from a position in a batch that is not committed yet to its file and line."""
    splits = {each.split.number: (each.split.file.name, each.first_line) for each in batch.splits}
    feeds = {each.name: each.feed for each in batch.files if each.feed is not None}
    return BatchOrigin(batch.batch_id, 0, splits=splits, feeds=feeds)


def _state_after(stream: Stream, number: int, state: FeedState, tally: FeedTally, origin: BatchOrigin) -> FeedState:
    step, said = tally.step, tally.said.get(number, 0)
    refused = step.refused.filter(pc.equal(step.refused[FEED], number)) if step.refused.num_rows else step.refused
    stable = tally.progress.feeds[number].stable
    top = step.state.tops.get(number, FeedTop())
    after = replace(
        state,
        stable=stable,
        top_order=top.order,
        top_rows=top.rows,
        rows=state.rows + said,
        repeats=state.repeats + step.counts.repeats.get(number, 0) + tally.behind.repeats.get(number, 0),
        filled=state.filled + step.counts.filled.get(number, 0),
        behind=state.behind + tally.behind.said.get(number, 0),
        refused=state.refused + refused.num_rows,
        broken=[*state.broken, *_broken_records(stream, number, step.broken, origin)],
        last_commit=THIS_COMMIT if said or stable > state.stable else state.last_commit,
    )
    if refused.num_rows and state.suspect_in is None:
        file, line = origin.line_of(refused[POS][0].as_py())
        reason = f"{file}:{line}: {refused[REASON][0].as_py()}"
        after = replace(after, suspect_reason=reason, suspect_in=THIS_COMMIT)
    return after


def _broken_records(
    stream: Stream, number: int, broken: Sequence[BrokenGuarantee], origin: BatchOrigin
) -> list[dict[str, Any]]:
    found = []
    for each in broken:
        if each.feed == number:
            file, line = origin.line_of(each.pos)
            declared = properties_to_record(stream.merged.feeds[number].properties)
            told = {"guarantee": each.guarantee, "what": each.what, "file": file, "line": line}
            found.append(told | {"declared": declared, "left": properties_to_record(each.left)})
    return found


def _broken_reason(stream: Stream, of: MergeBasis, broken: Sequence[BrokenGuarantee], origin: BatchOrigin) -> str:
    file, line = origin.line_of(broken[0].pos)
    return f"{next_algorithm(stream, of.choice.algorithm, broken).reason} ({file}:{line})"


# Disagreements.


def _disagreements(catalog: Catalog, of: MergeBasis, tally: FeedTally, own: BatchOrigin) -> list[Disagreement]:
    stream = of.stood.stream
    found = [each for each in (tally.step.disagreements, tally.behind.disagreements) if each is not None]
    rows = pa.concat_tables(found).combine_chunks()
    if not rows.num_rows:
        return []
    numbers = key_numbers(rows.select(list(stream.key)))
    if numbers.max() >= MAX_DISAGREEMENTS:
        kept = numbers < MAX_DISAGREEMENTS
        rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
    origins = batch_origins(catalog, rows[BATCH].drop_null().to_pylist())
    values = _values(stream, rows, own, origins)
    keys, places = _texts(rows, stream.key), order_values(rows[stream.order])
    by_key: dict[int, list[int]] = {}
    for row, number in enumerate(numbers.tolist()):
        by_key.setdefault(number, []).append(row)
    policy = stream.merged.policy.disagreement
    # Whatever leads, a row of the archive stays unless versions are compared.
    stays = np.zeros(rows.num_rows, dtype=bool)
    if policy is not DisagreementPolicy.LATEST:
        stays = rows[FEED].to_numpy() == ARCHIVE
    return [
        Disagreement(
            keys[some[0]],
            int(places[some[0]]),
            next((values[row]["feed"] for row in some if values[row]["chosen"]), ""),
            ARCHIVED if stays[some].any() else policy.value,
            [values[row] for row in some],
        )
        for some in by_key.values()
    ]


def _values(
    stream: Stream, rows: pa.Table, own: BatchOrigin, origins: Mapping[int, BatchOrigin]
) -> list[dict[str, Any]]:
    """What each side says: feed, row, file and line, and whether it counts."""
    shown = _texts(rows, stream.names)
    told = zip(*(rows[name].to_pylist() for name in (FEED, CHOSEN, BATCH, POS)), strict=True)
    values = []
    for text, (feed, chosen, batch_no, pos) in zip(shown, told, strict=True):
        origin = own if batch_no is None else origins[batch_no]
        file, line = origin.line_of(pos)
        name = origin.feeds.get(file, "") if feed == ARCHIVE else stream.merged.feeds[feed].name
        values.append({"feed": name, "row": text, "file": file, "line": line, "chosen": chosen})
    return values


def _texts(rows: pa.Table, names: Sequence[str]) -> list[dict[str, str | None]]:
    """Some columns of each row as text, spelled as everywhere: disagreements are found by the text of their key."""
    if not rows.num_rows:
        return []
    columns = [plain_text(rows[name].combine_chunks()).to_pylist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
