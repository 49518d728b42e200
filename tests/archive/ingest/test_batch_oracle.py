"""Batches of all kinds taken in by the real flow: at every commit the archive is what the oracle says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.archive.ingest import batch_job
from errata.archive.ingest import batch_writer as arranging
from errata.archive.upkeep.ageing import age_out
from errata.catalog import quarantine, streams
from errata.model.batch import BadRow, Op
from errata.model.stream import ARRIVAL_COLUMN, DuplicatePolicy, Retention, Stream
from errata.model.time import HOUR, SECOND, Interval, format_instant
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed, canonical_row
from fixtures.oracle.history import History, Record, Taken
from fixtures.oracle.revision import Revision, Row
from fixtures.sources import BLANK, NO_NUMBER, Line, Source, record

APPLIED = 1
"""The commit that declared the stream; the oracle's first comes after it."""

STEP = 12
"""How far the times of one batch lie behind those of the batch before, in units."""

ENDINGS = (".csv", ".csv.gz", ".jsonl", ".json.gz", ".parquet")

SHORT = [Phase.explicit, Phase.generate]
"""Shrinking takes minutes for each kind of stream; the blob that a failure prints repeats it, and --long shrinks it."""

LONG = [*SHORT, Phase.shrink]

WHO = st.sampled_from(["a", "b", 'c"d, é', ""])
PRICE = st.sampled_from([1.0, 2.5, float("nan"), 0.0, -0.0, None])


@dataclass(frozen=True)
class Kind:
    """A stream, and how its moments are counted."""

    stream: Stream
    unit: int = SECOND
    origin: int = NOW - HOUR // 2
    plain: bool = False
    """Whether nothing comes but Parquet files of inserts."""

    def at(self, units: int) -> int:
        return self.origin + units * self.unit


def timed(**changes: Any) -> Kind:
    return Kind(a_feed(**({"slack": 5 * SECOND, "max_ahead": HOUR, "bucket_rows": 3} | changes)))


def counted(**changes: Any) -> Kind:
    return Kind(a_feed(moment="bigint", **({"slack": 5, "bucket_rows": 4} | changes)), unit=1, origin=0)


def on_arrival(**changes: Any) -> Kind:
    return Kind(a_feed(**({"order": ARRIVAL_COLUMN, "key": ("who",), "bucket_rows": 3} | changes)))


REPLACE = {"on_duplicate": DuplicatePolicy.REPLACE}
KINDS = {
    "by time": timed(),
    "by time, replacing": timed(**REPLACE),
    "by time, aged by span": timed(retention=Retention(span=10 * SECOND), slack=0),
    "by time, plain": replace(timed(), plain=True),
    "by number, plain, replacing": replace(counted(**REPLACE), plain=True),
    "by who": timed(key=("who",), slack=2 * SECOND),
    "by who, replacing": timed(key=("who",), slack=2 * SECOND, group=(), **REPLACE),
    "by number": counted(bucket_rows=100),
    "by number, replacing, aged by rows": counted(retention=Retention(rows=4), **REPLACE),
    "on arrival": on_arrival(),
    "on arrival, replacing": on_arrival(**REPLACE),
    "on arrival, keyed by it": on_arrival(key=("arrived", "who")),
}


@st.composite
def lines(draw: st.DrawFn, kind: Kind, batch: int, per_line: bool) -> Line:
    """A line: mostly an insert that is sound, near the moments of its batch and of those before."""
    stream = kind.stream
    if draw(st.integers(0, 11)) == 0:
        return BLANK
    values: dict[str, Any] = {"who": draw(WHO), "price": draw(PRICE), "note": draw(st.sampled_from([None, "", "x"]))}
    if not stream.ordered_on_arrival:
        values = {"at": kind.at(batch * STEP + draw(st.integers(-STEP, 8))), **values}
    op = draw(st.sampled_from([None, None, None, Op.INSERT, Op.REPLACE, Op.DELETE]))
    seq = draw(st.sampled_from([None, None, 1, 2, 3]))
    old = {}
    if op is Op.REPLACE and draw(st.booleans()):
        old = {"who": draw(WHO)}
    if per_line and op in {Op.REPLACE, Op.DELETE}:
        given = {*stream.key, *draw(st.sets(st.sampled_from(sorted(values))))}
        values = {name: value for name, value in values.items() if name in given}
    match draw(st.integers(0, 19)):
        case 0:
            values["price"] = NO_NUMBER
        case 1:
            values["who"] = None
        case 2 if "at" in values:
            values["at"] = draw(st.sampled_from([None, NOW + HOUR, NOW + HOUR + 1]))
    return Line(values, op, seq, old)


@st.composite
def sources(draw: st.DrawFn, kind: Kind, batch: int) -> list[Source]:
    # Parquet files of plain inserts, nearly in order as feeds are, may be taken in another way than all else.
    plain = kind.plain or draw(st.booleans())
    found = []
    for number in range(draw(st.integers(1, 3))):
        ending = ".parquet" if plain else draw(st.sampled_from(ENDINGS))
        told = draw(st.lists(lines(kind, batch, ".json" in ending), min_size=8, max_size=24))
        if ending == ".parquet":
            told = [line for line in told if line is not BLANK]
        if plain:
            told = [replace(line, op=None, seq=None, old={}) for line in told if _moment(line) is not None]
            told.sort(key=lambda line: (_moment(line) or 0) // (3 * kind.unit))
        found.append(Source(f"{batch}-{number}{ending}", told))
    return found


def _moment(line: Line) -> int | None:
    at = line.values.get("at", 0)
    return at if isinstance(at, int) else None


@pytest.mark.parametrize("name", KINDS)
def test_the_archive_is_the_oracle(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(arranging, "SMALL_BYTES", -1)
    _is_the_oracle(KINDS[name], tmp_path, request, examples=1)  # each takes seconds of Spark


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.stream.key_has_order])
def test_what_is_arranged_without_spark_is_the_oracle(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(batch_job, "_plan_job", _no_job)
    _is_the_oracle(KINDS[name], tmp_path, request, examples=5)


def _no_job(*_: object) -> NoReturn:
    raise AssertionError("a small batch needs no Spark")


def _is_the_oracle(kind: Kind, tmp_path: Path, request: pytest.FixtureRequest, *, examples: int) -> None:
    short = not request.config.getoption("--long")

    @settings(
        max_examples=examples if short else 100,
        phases=SHORT if short else LONG,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        builder = Builder(tmp_path / str(len(list(tmp_path.iterdir()))))
        try:
            _compare(builder(kind.stream), kind, data)
        finally:
            builder.close()

    run()


def _compare(house: House, kind: Kind, data: st.DataObject) -> None:
    history = Oracle(kind.stream)
    for number in range(data.draw(st.integers(1, 3), "batches")):
        batch = data.draw(sources(kind, number), f"batch {number}")
        _take_in(house, history, batch, f"b{number}")
        _same(house, history)
        house.clock.advance(data.draw(st.integers(0, 2), "passed") * SECOND)
        if kind.stream.retention is not None:
            _age(house, history)
    for commit in range(1, history.commit + 1):
        assert house.rows(commit=APPLIED + commit) == _canonical(history.scan(commit=commit))
        found, wanted = house.pending(commit=APPLIED + commit), history.pending(commit)
        assert _numbered(history, found) == _numbered(history, wanted)
    if history.commit:
        assert house.scan() == _canonical(history.scan())
        _same_scan(house, history, kind, data)


def _take_in(house: House, history: Oracle, batch: Sequence[Source], batch_id: str) -> None:
    stream, now = history.stream, house.clock.now()
    placed = [(source, number, line) for source in batch for number, line in source.placed()]
    records = [record(source, line, stream, place) for place, (source, _, line) in enumerate(placed) if not line.broken]
    report = house.append(batch, batch_id=batch_id, again=True)
    taken = history.append(records, now, batch_id)
    faulty = len(placed) - len(records)
    expected = replace(taken.counts, read=len(placed), quarantined=taken.counts.quarantined + faulty)
    assert (report.commit_id, report.counts, report.stable) == (APPLIED + taken.commit, expected, history.stable())
    held = [each.row for each in quarantine.quarantined_rows(house.catalog, batch_id=batch_id)]
    assert sorted((Path(row.file).name, row.line) for row in held) == sorted(_held(placed, records, taken))
    _check_reasons(held)


def _held(placed: Sequence[tuple[Source, int, Line]], records: Sequence[Record], taken: Taken) -> list[tuple[str, int]]:
    """File and line of what must be in quarantine."""
    sound = [(source.name, number) for source, number, line in placed if not line.broken]
    where = {id(each): place for each, place in zip(records, sound, strict=True)}
    refused = [
        # A completed insert is a new record, which carries its place.
        where[id(each)] if id(each) in where else (placed[each.seq or 0][0].name, placed[each.seq or 0][1])
        for each, _ in taken.quarantined
    ]
    return refused + [(source.name, number) for source, number, line in placed if line.broken]


def _check_reasons(held: Sequence[BadRow]) -> None:
    for row in held:
        words = ("is not a double", "is part of the key", "is the order", "max_ahead", "duplicate key", NO_NUMBER)
        assert any(word in row.reason for word in words), row
        assert ("is not a double" in row.reason) == (NO_NUMBER in row.text), row


def _same(house: House, history: Oracle) -> None:
    standing = streams.stream_state(house.catalog, history.stream.name)
    rows = history.scan()
    assert (standing.stable, standing.rows, standing.revisions) == (
        history.stable(),
        len(rows),
        len(history.pending()),
    )


def _age(house: House, history: Oracle) -> None:
    stream, stable = history.stream, history.stable()
    before, former = house.stored(), streams.stream_state(house.catalog, stream.name).aged_to
    [aged] = age_out(house.site)
    kept = [bucket for bucket in before if bucket not in aged.buckets]
    assert stream.retention is not None
    if stream.retention.span is not None and stable is not None:
        assert all(bucket.vs_max < stable - stream.retention.span for bucket in aged.buckets)
        assert all(bucket.vs_max >= stable - stream.retention.span for bucket in kept)
    beginning = streams.stream_state(house.catalog, stream.name).aged_to
    if aged.commit_id is None:
        assert (beginning, aged.buckets) == (former, ())
        return
    assert beginning == max(bucket.vs_max for bucket in aged.buckets) + 1
    assert history.age_out(beginning) == aged.commit_id - APPLIED
    assert aged.rows == len(history.scan(commit=history.commit - 1)) - len(history.scan())
    if stream.retention.rows is not None:
        assert len(history.scan()) >= stream.retention.rows
    _same(house, history)


def _same_scan(house: House, history: Oracle, kind: Kind, data: st.DataObject) -> None:
    """One scan of some interval, groups and commit."""
    stream = kind.stream
    units = st.integers(-STEP, 4 * STEP)
    start, end = data.draw(st.tuples(units, units).map(sorted), "interval")
    low, high = kind.at(start), kind.at(end)
    if stream.ordered_on_arrival:
        low, high = NOW + start % 3 * SECOND, NOW + end % 3 * SECOND
    commit = data.draw(st.integers(1, history.commit), "commit")
    groups = data.draw(st.none() | st.sets(WHO, min_size=1), "groups") if stream.group else None
    said = format_instant if stream.timed else str
    found = house.scan(
        start=said(low),
        end=said(high),
        as_of=APPLIED + commit,
        groups=[{"who": who} for who in sorted(groups)] if groups else [],
    )
    wanted = {(who,) for who in groups} if groups else None
    assert found == _canonical(history.scan(Interval(low, high), wanted, commit))


def _canonical(rows: Sequence[Row]) -> list[Row]:
    return [canonical_row(row) for row in rows]


class Oracle(History):
    """The oracle, which remembers where it has numbered revisions in an order that is not promised."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.free: list[tuple[int, int]] = []

    def append(self, batch: Sequence[Record], now: int, batch_id: str | None = None) -> Taken:
        before = self.states[-1].revisions
        taken = super().append(batch, now, batch_id)
        broken = {id(each) for each, _ in taken.quarantined}
        corrections = sum(each.op is not Op.INSERT and id(each) not in broken for each in batch)
        late = sum(each.op is Op.INSERT for each in self.pending()[before:])
        # A correction of the source is a replacement too: they are told apart by where they stand.
        self.free.append((before + late, self.states[-1].revisions - corrections))
        return taken


def _numbered(oracle: Oracle, revisions: Sequence[Revision]) -> list[Revision]:
    """Revisions in one order: replacements by duplicates are numbered in whatever order they were found."""
    found = [replace(each, values=canonical_row(dict(each.values))) for each in revisions]
    for start, end in oracle.free:
        if end <= len(found):
            span = sorted(found[start:end], key=lambda each: repr(each.key))
            found[start:end] = [replace(each, number=start + n) for n, each in enumerate(span, start=1)]
    return found
