"""Batches, corrections, undoing, compaction, ageing, vacuum and crashes in any order: every scan is the oracle's.

One case is a stream's whole life. In the end every commit is read again, with all revisions and with some left out, and
all of these scans of a case are one Spark job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from sqlalchemy import event

from errata.archive.revisions.apply import apply_stream_revisions
from errata.archive.revisions.undo import undo_batch
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import candidate_buckets
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import quarantine, streams
from errata.errors import ErrataError, RefusedError
from errata.model.batch import Op
from errata.model.stream import ARRIVAL_COLUMN, DuplicatePolicy, Retention, RevisionPolicy, Stream
from errata.model.time import DAY, HOUR, SECOND, Interval
from errata.read.stream_scan import StreamScanRequest, plan_scan
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed, canonical_row, in_order
from fixtures.oracle.history import History, Record
from fixtures.oracle.revision import Outcome, Row
from fixtures.sources import Line, Source, record

SHORT = [Phase.explicit, Phase.generate]
"""Shrinking takes minutes for each kind of stream; the blob that a failure prints repeats it, and --long shrinks it."""

STEP = 6
WHO = st.sampled_from(["a", "b", "c", ""])
PRICE = st.sampled_from([1.0, 2.5, float("nan"), -0.0, None])


@dataclass(frozen=True)
class Kind:
    """A stream, and how its moments are counted."""

    stream: Stream
    unit: int = SECOND
    origin: int = NOW - HOUR // 2

    def at(self, units: int) -> int:
        return self.origin + units * self.unit


def timed(**changes: Any) -> Kind:
    return Kind(a_feed(**({"slack": 3 * SECOND, "max_ahead": HOUR, "bucket_rows": 4, "horizon": DAY} | changes)))


def counted(**changes: Any) -> Kind:
    return Kind(a_feed(moment="bigint", **({"slack": 3, "bucket_rows": 5} | changes)), unit=1, origin=0)


KINDS = {
    "by time": timed(),
    "by time, replacing, aged by span": timed(
        on_duplicate=DuplicatePolicy.REPLACE, retention=Retention(span=8 * SECOND), slack=0
    ),
    "by time alone": timed(key=("at",)),
    "by who": timed(key=("who",)),
    "by who, aged by span": timed(key=("who",), group=(), retention=Retention(span=8 * SECOND)),
    "by number, aged by rows": counted(retention=Retention(rows=6)),
    "by note, replacing, by number": counted(key=("note", "who"), on_duplicate=DuplicatePolicy.REPLACE),
    "on arrival": Kind(a_feed(order=ARRIVAL_COLUMN, key=("who",), bucket_rows=3)),
    "ignoring": timed(on_revision=RevisionPolicy.IGNORE),
}


@st.composite
def lines(draw: st.DrawFn, kind: Kind, batch: int, corrects: bool) -> Line:
    """An insert or a correction, near the moments of its batch and of those before."""
    stream = kind.stream
    values: dict[str, Any] = {"who": draw(WHO), "price": draw(PRICE), "note": draw(st.sampled_from(["", "x", "y"]))}
    if not stream.ordered_on_arrival:
        values = {"at": kind.at(batch * STEP + draw(st.integers(-STEP, STEP))), **values}
    if not corrects:
        return Line(values)
    op = draw(st.sampled_from([Op.INSERT, Op.REPLACE, Op.REPLACE, Op.DELETE]))
    old: dict[str, Any] = {}
    if op is not Op.INSERT and draw(st.integers(0, 2)) == 0:
        named = draw(st.sets(st.sampled_from(sorted(values)), max_size=2))
        old = {name: draw(_of(kind, name, batch)) for name in sorted(named)}
    if op is not Op.INSERT:
        given = {*stream.key, *draw(st.sets(st.sampled_from(sorted(values))))} & set(values)
        # A key may be told by its old value alone, and is then as it was.
        given -= {name for name in old if name in stream.key and old[name] is not None and draw(st.booleans())}
        values = {name: value for name, value in values.items() if name in given}
    return Line(values, op, draw(st.sampled_from([None, None, 1, 2])), old)


def _of(kind: Kind, name: str, batch: int) -> st.SearchStrategy[object]:
    if name == "at":
        return st.integers(-STEP, STEP).map(lambda units: kind.at(batch * STEP + units))
    return {"who": WHO, "price": PRICE, "note": st.sampled_from(["", "x", "y"])}[name]


@dataclass
class Life:
    """A house and what the oracle says of it."""

    house: House
    kind: Kind
    history: History
    known: dict[int, int] = field(default_factory=dict)
    """For each commit of the oracle the one of the house at which the same is known."""
    batches: list[str] = field(default_factory=list)
    compacted: bool = False
    undone: bool = False

    def agree(self) -> None:
        standing = streams.stream_state(self.house.catalog, "feed")
        state = self.history.states[-1]
        self.known[self.history.commit] = self.newest
        assert (standing.stable, standing.rows, standing.applied, standing.revisions) == (
            state.stable,
            len(state.rows),
            state.applied,
            state.revisions,
        )

    @property
    def newest(self) -> int:
        return streams.stream_state(self.house.catalog, "feed").changed_in

    def append(self, data: st.DataObject, corrects: bool) -> None:
        number = len(self.batches)
        ending = data.draw(st.sampled_from([".jsonl"] if corrects else [".csv", ".jsonl", ".parquet"]))
        source = Source(f"{number}{ending}", data.draw(st.lists(lines(self.kind, number, corrects), max_size=12)))
        placed = list(source.placed())
        records: list[Record] = [
            record(source, line, self.kind.stream, place) for place, (_, line) in enumerate(placed)
        ]
        taken = self.history.append(records, self.house.clock.now(), f"b{number}")
        report = self.again_if_crashed(data, lambda: self.house.append([source], batch_id=f"b{number}", again=True))
        assert asdict(report.counts) == asdict(taken.counts)
        self.batches.append(f"b{number}")

    def revise(self, data: st.DataObject) -> None:
        before = len(quarantine.quarantined_rows(self.house.catalog))
        first = streams.stream_state(self.house.catalog, "feed").applied
        done = self.history.revise(self.house.clock.now())
        report = self.again_if_crashed(data, lambda: apply_stream_revisions(self.house.site, "feed"))
        became = Counter(each.outcome for each in done.outcomes)
        held = quarantine.quarantined_rows(self.house.catalog)[before:]
        if streams.stream_state(self.house.catalog, "feed").applied == first:
            return
        assert len(held) == became[Outcome.REFUSED]
        words = sorted(each.reason.partition(":")[0] for each in done.outcomes if each.outcome is Outcome.REFUSED)
        assert sorted(each.row.reason.partition(":")[0] for each in held) == words
        if report.commits:  # a crash after the commit leaves nothing more to report
            assert asdict(report.counts) == {each.value: became[each] for each in Outcome}

    def age(self, data: st.DataObject) -> None:
        if self.kind.stream.retention is None:
            return
        former = streams.stream_state(self.house.catalog, "feed").aged_to
        self.again_if_crashed(data, lambda: age_out(self.house.site))
        aged_to = streams.stream_state(self.house.catalog, "feed").aged_to
        if aged_to is not None and aged_to != former:
            self.history.age_out(aged_to)

    def compact(self, data: st.DataObject) -> None:
        self.again_if_crashed(data, lambda: compact_streams(self.house.site, everything=True))
        self.compacted = True

    def undo(self, data: st.DataObject) -> None:
        if not self.batches or self.kind.stream.on_revision is RevisionPolicy.IGNORE:
            return
        self.revise(data)
        self.agree()
        batch = data.draw(st.sampled_from(self.batches), "undone")
        keep = data.draw(st.booleans(), "keep later")
        try:
            self.history.undo(batch, self.house.clock.now(), keep)
        except RefusedError:
            with pytest.raises(RefusedError):
                undo_batch(self.house.site, "feed", batch, keep_later=keep)
            return
        self.undone = True
        self.again_if_crashed(data, lambda: undo_batch(self.house.site, "feed", batch, keep_later=keep))

    def vacuum(self, data: st.DataObject) -> None:
        self.again_if_crashed(data, lambda: run_vacuum(self.house.site))

    def again_if_crashed(self, data: st.DataObject, do: Callable[[], Any]) -> Any:
        """Do it; perhaps it breaks off at some statement, and is done again."""
        step = data.draw(st.integers(1, 60) if data.draw(st.integers(0, 3)) == 0 else st.just(0), "breaks off at")
        try:
            with breaking_off(self.house, step):
                return do()
        except BrokenOffError:
            return do()


class BrokenOffError(Exception):
    """As if the process had been killed, and what it did not commit had never been."""


@contextmanager
def breaking_off(house: House, step: int) -> Iterator[None]:
    taken = 0

    def on_step(*_: Any) -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            raise BrokenOffError

    event.listen(house.catalog.engine, "before_cursor_execute", on_step)
    try:
        yield
    finally:
        event.remove(house.catalog.engine, "before_cursor_execute", on_step)


@pytest.mark.parametrize("name", KINDS)
def test_every_scan_of_every_commit_is_the_oracles(
    name: str, tmp_path: Path, spark: SparkSession, near: SparkSession, request: pytest.FixtureRequest
) -> None:
    kind = KINDS[name]
    short = not request.config.getoption("--long")

    @settings(
        max_examples=3 if short else 100,
        phases=SHORT if short else [*SHORT, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        builder = Builder(tmp_path / str(len(list(tmp_path.iterdir()))))
        try:
            life = Life(builder(kind.stream), kind, History(kind.stream))
            _live(life, data)
            _read_again(life, spark, near, data)
        finally:
            builder.close()

    run()


def _live(life: Life, data: st.DataObject) -> None:
    life.append(data, corrects=False)
    life.agree()
    deeds = ["append", "correct", "correct", "revise", "revise", "age", "compact", "undo", "vacuum"]
    for deed in data.draw(st.lists(st.sampled_from(deeds), min_size=4, max_size=9), "deeds"):
        life.house.clock.advance(data.draw(st.integers(0, 2), "passed") * SECOND)
        match deed:
            case "append" | "correct":
                life.append(data, deed == "correct")
            case "revise":
                life.revise(data)
            case _:
                getattr(life, deed)(data)
        life.agree()


def _read_again(life: Life, spark: SparkSession, near: SparkSession, data: st.DataObject) -> None:
    """All commits, each with all revisions and with the first few; and some intervals and groups."""
    catalog, site, stream = life.house.catalog, life.house.site, life.kind.stream
    frames: list[DataFrame] = []
    expected: list[list[Row]] = []
    for commit, there in sorted(life.known.items()):
        if not commit:
            continue
        for number in (None, *_numbers(life, commit, data)):
            scan = plan_scan(catalog, StreamScanRequest("feed", as_of=there, revisions_up_to=number))
            interval, groups = _asked(life, data)
            scan = replace(scan, interval=interval, groups=groups)
            try:
                found = candidate_buckets(catalog, scan)
            except ErrataError:
                assert life.compacted
                assert number is not None
                continue
            rows = scan_rows(spark, catalog, site.warehouse, scan, found)
            frames.append(rows.withColumn("case", sf.lit(len(frames))))
            expected.append(life.history.scan(interval, groups, commit, number))
            read = scan_rows(near, catalog, site.warehouse, scan, found).toArrow()
            assert in_order(stream, read) == [canonical_row(row) for row in expected[-1]]
    table = reduce(DataFrame.unionByName, frames).toArrow()
    for case, wanted in enumerate(expected):
        read = in_order(stream, table.filter(sf_equal(table["case"], case)))
        assert read == [canonical_row(row) for row in wanted]


def sf_equal(column: Any, value: int) -> Any:
    return pc.equal(column, value)


def _numbers(life: Life, commit: int, data: st.DataObject) -> list[int]:
    """Some numbers at which revisions are left out. Those of a batch may be numbered in another order than the
    oracle's where duplicates replace, and those of an undo; what was settled together never is."""
    applied = life.history.states[commit].applied
    if life.kind.stream.on_duplicate is DuplicatePolicy.REPLACE or life.undone:
        known = sorted({state.applied for state in life.history.states[: commit + 1]})
    else:
        known = list(range(applied + 1))
    return data.draw(st.lists(st.sampled_from(known), max_size=1), "revisions up to")


def _asked(life: Life, data: st.DataObject) -> tuple[Interval, frozenset[tuple[str | None, ...]] | None]:
    kind = life.kind
    if data.draw(st.booleans(), "everything"):
        return Interval(), None
    units = st.integers(-STEP, (len(life.batches) + 1) * STEP)
    start, end = data.draw(st.tuples(units, units).map(sorted), "interval")
    low, high = kind.at(start), kind.at(end)
    if kind.stream.ordered_on_arrival:
        low, high = NOW + start % 9 * SECOND, NOW + end % 9 * SECOND
    groups = data.draw(st.none() | st.sets(WHO, min_size=1), "groups") if kind.stream.group else None
    return Interval(low, high), None if groups is None else frozenset((who,) for who in groups)
