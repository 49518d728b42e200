"""Masked results against an oracle in plain Python: in memory, in Spark, through the index, and after merging."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.archive import results as archive_results
from errata.archive.overlays import bucket_sources
from errata.archive.results import (
    ResultWriter,
    buckets_by_instant,
    buckets_by_start,
    drop_masked,
    latest_masks,
    results_frame,
    results_table,
    split_masks,
    valid_at,
    valid_in,
)
from errata.archive.schemas import result_mask_schema, result_schema
from errata.archive.upkeep import result_compaction
from errata.archive.upkeep.inspection import InspectionContext, inspect_bucket
from errata.archive.upkeep.result_compaction import is_merge_due, merge_results
from errata.catalog import bucket_writes, buckets, commits, declarations
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.migration import prepare_catalog
from errata.catalog.result_archives import ResultArchive
from errata.declare.warehouse import Warehouse
from errata.model.bucket import NewBucket, Role
from errata.model.columns import ColumnType
from errata.model.commit import Cause, Evaluation, EvaluationSpan, SweepSummary
from errata.model.findings import BucketFigures
from errata.model.results import EVALUATION, VE, VS, ArchiveColumn, ResultShape, UpdatePattern
from errata.model.time import HIGHEST, Interval
from fixtures.catalog import NOW, a_stream
from fixtures.chance import seeds
from fixtures.clock import FixedClock

KINDS = {"x": "double", "f": "float", "s": "string", "d": "decimal(20,3)", "b": "boolean", "at": "timestamp"}
VALUES: dict[str, list[object]] = {
    "x": [None, math.nan, 0.0, -0.0, 1.5],
    "f": [None, math.nan, -0.0, 0.0],
    "s": [None, "", "ä", "ab"],
    "d": [None, Decimal("0.100"), Decimal("-7.000")],
    "b": [None, True, False],
    "at": [None],
}
KEYS = [{name: values[number % len(values)] for name, values in VALUES.items()} for number in range(5)]
KEYS.append(KEYS[2] | {"x": -0.0, "f": 0.0})
"""Some keys, the last one being another in another spelling."""
SHAPE = ResultShape(
    (
        *(ArchiveColumn(name, ColumnType.parse(kind), key=True) for name, kind in KINDS.items()),
        ArchiveColumn("of it", ColumnType.parse("bigint")),
    ),
    UpdatePattern.STRICT,
    timed=False,
)
NO_KEY = ResultShape((ArchiveColumn("of it", ColumnType.parse("bigint")),), UpdatePattern.STRICT, timed=False)
ENDS = 60
EVER = HIGHEST

Row = dict[str, Any]


def identity(row: Row, shape: ResultShape) -> tuple[object, ...]:
    """What a result is told from all others by."""
    return (row[VS], *("NaN" if row[name] != row[name] else row[name] for name in shape.key))


def right(rows: Iterable[Row], masks: Sequence[Row], shape: ResultShape = SHAPE) -> list[Row]:
    """The rows that count."""
    return [
        row
        for row in rows
        if not any(
            identity(mask, shape) == identity(row, shape) and mask[EVALUATION] > row[EVALUATION] for mask in masks
        )
    ]


def told(rows: Iterable[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@st.composite
def some_rows(draw: st.DrawFn, shape: ResultShape) -> list[Row]:
    times = {VS: st.integers(0, 2), EVALUATION: st.integers(1, 4), VE: st.integers(9, 11), "of it": st.integers(0, 1)}
    keys = st.sampled_from(KEYS if shape.key else [{}])
    return draw(st.lists(st.builds(dict.__or__, keys, st.fixed_dictionaries(times)), max_size=30))


@pytest.mark.parametrize("shape", [SHAPE, NO_KEY])
@given(data=st.data())
def test_what_is_masked_does_not_count(shape: ResultShape, data: st.DataObject) -> None:
    rows, masks = data.draw(some_rows(shape)), data.draw(some_rows(shape))
    table = pa.Table.from_pylist(rows, result_schema(shape))
    mask_table = pa.Table.from_pylist(masks, result_mask_schema(shape))
    for some in (mask_table, latest_masks(mask_table, shape)):
        assert told(drop_masked(table, some, shape).to_pylist()) == told(right(table.to_pylist(), masks, shape))


@given(some_rows(SHAPE))
def test_of_several_masks_of_a_result_the_last_is_enough(masks: list[Row]) -> None:
    few = latest_masks(pa.Table.from_pylist(masks, result_mask_schema(SHAPE)), SHAPE).to_pylist()
    assert len(few) == len({identity(each, SHAPE) for each in masks})
    for each in few:
        same = [mask for mask in masks if identity(mask, SHAPE) == identity(each, SHAPE)]
        assert (each[EVALUATION], each[VE]) == (max(mask[EVALUATION] for mask in same), max(mask[VE] for mask in same))


class Archive:
    """The results of a query in a catalog, a commit for each evaluation; and the same in plain Python."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.catalog: Catalog = prepare_catalog(f"sqlite:///{folder}/catalog.db", FixedClock(NOW))
        self.warehouse = Warehouse(str(folder / "warehouse"))
        declarations.apply_changes(self.catalog, Cause("apply"), write=[a_stream("ticks")], drop=[], summary={})
        self.chance = chance
        self.writer = ResultWriter(self.warehouse, "mine", timed=False, bucket_rows=20)
        self.run = 0
        self.rows: list[Row] = []
        self.masks: list[Row] = []

    @property
    def of(self) -> ResultArchive:
        evaluation = Evaluation(self.run, commits.newest_commit(self.catalog), 1, EvaluationSpan(0, ENDS), {}, {})
        return ResultArchive(1, "mine", 1, SHAPE, 1, 0, 0, evaluation)

    def commit(self, made: Sequence[NewBucket], gone: Sequence[int] = ()) -> int:
        with self.catalog.writing() as connection:
            commit_id = commits.record_commit(connection, NOW, Cause("run"), stream_id=1, summary={})
            assert bucket_writes.remove_buckets(connection, gone, commit_id) == len(gone)
            bucket_writes.add_buckets(connection, 1, commit_id, BucketAddition(made))
        return commit_id

    def a_key(self) -> Row:
        return {name: self.chance.choice(values) for name, values in VALUES.items()}

    def a_row(self, **known: object) -> Row:
        begin = self.chance.randrange(ENDS)
        end = self.chance.choice([begin + 1, begin + self.chance.randrange(1, 20), EVER])
        return {**self.a_key(), VS: begin, VE: end, "of it": self.chance.randrange(5), EVALUATION: self.run, **known}

    def evaluate(self, count: int = 25) -> None:
        """Results come, at places that nobody has a result at."""
        self.run += 1
        known = {identity(each, SHAPE) for each in right(self.rows, self.masks)}
        new = {identity(row, SHAPE): row for row in (self.a_row() for _ in range(count))}
        self._commit([row for place, row in new.items() if place not in known], [])

    def correct(self, share: float = 0.3) -> None:
        """Some results are taken back, and others come in place of a part of them."""
        self.run += 1
        gone = [each for each in right(self.rows, self.masks) if self.chance.random() < share]
        again = [each for each in gone if self.chance.random() < 0.5]
        masks = [{name: each[name] for name in (*SHAPE.key, VS, VE)} | {EVALUATION: self.run} for each in gone]
        self._commit([each | {"of it": 9, EVALUATION: self.run, VE: each[VS] + 2} for each in again], masks)

    def _commit(self, rows: list[Row], masks: list[Row]) -> None:
        parts = {role: [row for row in rows if self.role(row) is role] for role in (Role.BASE, Role.OPEN, Role.TIP)}
        made = [
            bucket
            for role, some in parts.items()
            for bucket in self.writer.write(role, pa.Table.from_pylist(some, result_schema(SHAPE)))
        ]
        # Another spelling of a key is the same key.
        respelled = [each | {"x": -each["x"] if each["x"] == 0.0 else each["x"]} for each in masks]
        made += self.writer.write(Role.MASK, pa.Table.from_pylist(respelled, result_mask_schema(SHAPE)))
        self.commit(made)
        self.rows += rows
        self.masks += masks

    def role(self, row: Row) -> Role:
        if row[VS] == ENDS - 1:
            return Role.TIP
        return Role.OPEN if row[VE] == EVER and row["of it"] % 2 else Role.BASE

    def table(self, commit_id: int | None = None) -> list[Row]:
        """All that counts."""
        found = buckets_by_start(self.catalog, self.of, commit_id or self.of.last.commit_id)
        return results_table(self.catalog, self.warehouse, SHAPE, found).to_pylist()


@pytest.fixture(params=["inline", "files"])
def archive(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    if request.param == "files":
        monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", 0)
    made = Archive(tmp_path, random.Random(7))
    yield made
    made.catalog.close()


def grown(archive: Archive, steps: str = "eececeec") -> None:
    for step in steps:
        archive.evaluate() if step == "e" else archive.correct()


def test_readers_are_given_what_counts(archive: Archive) -> None:
    earlier = {}
    for step in "eececeec":
        grown(archive, step)
        earlier[archive.of.last.commit_id] = right(archive.rows, archive.masks)
    for commit_id, rows in earlier.items():
        assert told(archive.table(commit_id)) == told(rows)
    catalog, of, last = archive.catalog, archive.of, archive.of.last.commit_id
    masked = 0
    for low in range(0, ENDS, 5):
        for size in (1, 7):
            interval = Interval(low, low + size)
            found = buckets_by_start(catalog, of, last, interval)
            rows = results_table(catalog, archive.warehouse, SHAPE, found).to_pylist()
            assert told(each for each in rows if low <= each[VS] < low + size) == told(
                each for each in earlier[last] if low <= each[VS] < low + size
            )
            found = buckets_by_instant(catalog, of, last, interval)
            masked += sum(each.role is Role.MASK for each in found)
            rows = valid_at(results_table(catalog, archive.warehouse, SHAPE, found), low).to_pylist()
            assert told(rows) == told(each for each in earlier[last] if each[VS] <= low < each[VE])
    assert masked


@pytest.mark.parametrize("few", [0, 50_000])
def test_an_engine_is_given_the_same(
    archive: Archive, either: SparkSession, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_results, "LOCAL_ROWS", few)
    grown(archive)
    catalog, of, last = archive.catalog, archive.of, archive.of.last.commit_id
    found = buckets_by_start(catalog, of, last)
    frame = results_frame(either, catalog, archive.warehouse, SHAPE, found)
    assert frame.columns == result_schema(SHAPE).names
    whole = results_table(catalog, archive.warehouse, SHAPE, found)
    assert told(frame.toArrow().cast(whole.schema).to_pylist()) == told(whole.to_pylist())
    at = Interval(30, 31)
    found = buckets_by_instant(catalog, of, last, at)
    some = valid_in(results_frame(either, catalog, archive.warehouse, SHAPE, found), at).toArrow()
    assert told(some.cast(whole.schema).to_pylist()) == told(valid_at(whole, 30).to_pylist())


def test_nothing_is_joined_where_nothing_is_masked(archive: Archive, spark: SparkSession) -> None:
    grown(archive, "ee")
    found = buckets_by_start(archive.catalog, archive.of, archive.of.last.commit_id)
    assert split_masks(found) == (found, [])
    grown(archive, "c")
    before = archive.run
    archive.evaluate()
    both = buckets_by_start(archive.catalog, archive.of, archive.of.last.commit_id)
    results, masks = split_masks(both)
    later = [each for each in results if each.added_in == archive.of.last.commit_id]
    assert later
    assert {mask.revision_last for mask in masks} == {before}
    assert not any(mask.may_mask(each) for mask in masks for each in later), "what comes later is not masked"


@pytest.mark.parametrize("seed", seeds(__name__, 4))
def test_merging_works_masked_rows_out(archive: Archive, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.chance.seed(seed)
    monkeypatch.setattr(result_compaction, "BUCKETS_PER_MERGE", 4)
    monkeypatch.setattr(result_compaction, "SMALL_BUCKET_ROWS", archive.chance.choice([8, 15, 50]))
    site: Any = SimpleNamespace(catalog=archive.catalog, warehouse=archive.warehouse)
    before = {}
    for steps in ("eecece", "cec", "eeccc"):
        grown(archive, steps)
        before[archive.of.last.commit_id] = told(archive.table())
        done = merge_results(site, archive.of, archive.run + 1, _standing(archive))
        archive.run += 1
        base = _count(archive, Role.BASE)
        archive.commit(done.into, [each.bucket_id for each in done.gone])
        assert told(archive.table()) == told(right(archive.rows, archive.masks))
        assert done.rows == _count(archive, Role.BASE) - base < 0
        assert all(each.floor == archive.run - 1 for each in done.into if each.role is Role.BASE)
    for commit_id, rows in before.items():
        assert told(archive.table(commit_id)) == rows, "what was read as of a commit stays"


def _standing(archive: Archive) -> list[Any]:
    at = (archive.catalog, 1, archive.of.last.commit_id)
    return [each for role in (Role.OPEN, Role.TIP) for each in buckets.visible_buckets(*at, role=role)]


def _count(archive: Archive, role: Role) -> int:
    found = buckets.visible_buckets(archive.catalog, 1, commits.newest_commit(archive.catalog), role=role)
    return sum(each.rows for each in found)


def test_masks_go_that_nothing_is_left_for(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_compaction, "BUCKETS_PER_MERGE", 2)
    site: Any = SimpleNamespace(catalog=archive.catalog, warehouse=archive.warehouse)
    grown(archive, "eec")
    at = (archive.catalog, 1, archive.of.last.commit_id)
    there = [each for role in (Role.OPEN, Role.TIP) for each in buckets.visible_buckets(*at, role=role)]
    done = merge_results(site, archive.of, archive.run + 1)
    assert {each.role for each in done.gone} == {Role.BASE, Role.MASK}
    archive.commit(done.into, [each.bucket_id for each in (*done.gone, *there)])
    archive.run += 1
    now = [each for each in right(archive.rows, archive.masks) if archive.role(each) is Role.BASE]
    assert told(archive.table()) == told(now)
    assert _count(archive, Role.MASK) == 0


def test_a_bucket_of_which_much_is_masked_is_written_anew(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_compaction, "SMALL_BUCKET_ROWS", 0)
    site: Any = SimpleNamespace(catalog=archive.catalog, warehouse=archive.warehouse)
    grown(archive, "eeeec")
    monkeypatch.setattr(result_compaction, "MASKED_SHARE", 0.9)
    assert merge_results(site, archive.of, archive.run + 1).gone == []
    monkeypatch.setattr(result_compaction, "MASKED_SHARE", 0.1)
    monkeypatch.setattr(result_compaction, "REWRITES_PER_MERGE", 2)
    done = merge_results(site, archive.of, archive.run + 1)
    assert [each.role for each in done.gone] == [Role.BASE, Role.BASE]
    assert {each.role for each in done.into} == {Role.BASE}


def test_partial_aggregates_are_merged_as_they_are(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_compaction, "BUCKETS_PER_MERGE", 4)
    site: Any = SimpleNamespace(catalog=archive.catalog, warehouse=archive.warehouse)
    grown(archive, "e")
    parts = [pa.table({"_g0": ["a"], "_s0": [{"x": 1.5, "y": [at]}], VS: [at], EVALUATION: [1]}) for at in (5, 3, 9)]
    for each in parts:
        archive.commit(archive.writer.write(Role.PARTS, each))
    # The way of a sum through a file and through the catalog is not the same.
    monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", 0)
    archive.commit(archive.writer.write(Role.PARTS, parts[0]))
    done = merge_results(site, archive.of, 32)
    archive.commit(done.into, [each.bucket_id for each in done.gone])
    (bucket,) = buckets.visible_buckets(archive.catalog, 1, commits.newest_commit(archive.catalog), role=Role.PARTS)
    assert (bucket.rows, bucket.vs_min, bucket.vs_max, bucket.ends) == (4, 3, 9, (3, 9))
    (source,) = bucket_sources(archive.catalog, [bucket])
    assert [row["_s0"]["y"] for row in source.read(archive.warehouse).to_pylist()] == [[3], [5], [5], [9]]
    seen, _ = inspect_bucket(InspectionContext(SHAPE, archive.warehouse), source, {})
    assert seen.figures == BucketFigures.from_bucket(bucket)


def test_masks_are_looked_at(archive: Archive) -> None:
    grown(archive, "ec")
    (mask, *_) = buckets.visible_buckets(archive.catalog, 1, archive.of.last.commit_id, role=Role.MASK)
    (source,) = bucket_sources(archive.catalog, [mask])
    ward = InspectionContext(SHAPE, archive.warehouse)
    assert inspect_bucket(ward, source, {})[0].figures == BucketFigures.from_bucket(mask)
    kinds = {each.name: each for each in SHAPE.columns}
    other = ResultShape((replace(kinds["x"], type=ColumnType.parse("string")),), UpdatePattern.STRICT, timed=False)
    assert "x" in inspect_bucket(replace(ward, of=other), source, {})[0].fault


def test_merging_is_due_every_so_often_and_when_there_are_many_masks(archive: Archive) -> None:
    grown(archive, "ec")
    of, many = archive.of, result_compaction.BUCKETS_PER_MERGE
    swept = replace(of, last=replace(of.last, number=many, correction=SweepSummary("all", "", {})))
    masks = buckets.visible_buckets(archive.catalog, 1, of.last.commit_id, role=Role.MASK)
    assert [is_merge_due(of, number, masks) for number in (1, many - 1, many, many + 1)] == [False, False, True, False]
    assert is_merge_due(swept, many + 1, masks), "a correction has taken the number at which it was due"
    assert is_merge_due(of, 1, many * masks)
