"""Published results of which some are taken back: what every reader is told then, and what the next evaluations do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.answer.catalog_view import CatalogView
from errata.answer.evaluation_commit import result_table_update
from errata.answer.inputs import RunInputs
from errata.archive.changelog import changelog_segments, changes_table
from errata.archive.result_changes import ARCHIVE_ENDED, changes_frame
from errata.archive.results import PUBLISHED_ROLES, ResultWriter, results_table
from errata.archive.schemas import feed_schema, result_mask_schema, result_schema
from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.catalog import commits, maintenance, result_tables
from errata.catalog.result_archives import EvaluationCommit, archive_history, commit_evaluation
from errata.model.bucket import Role
from errata.model.commit import Cause, EvaluationCost, EvaluationSpan, SweepSummary
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ResultShape, old_column
from errata.model.stream import Retention
from fixtures.answers import published_rows
from fixtures.runs import FIRST, QUERIES, SECOND, Answering, Row

TEXTS = {name: QUERIES[name] for name in ("dear", "sums", "closed")}
SERVED = {name: f"serve: {{table: {name}_now}}" for name in TEXTS}


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    made = Answering.begin(tmp_path, TEXTS, SERVED)
    made.take(quotes=FIRST["quotes"])
    made.run()
    yield made
    made.close()


def kept(there: Answering, name: str, role: Role) -> list[Row]:
    """The rows of a kind of buckets that count."""
    site, some = there.site, [*there.buckets(name, role), *there.buckets(name, Role.MASK)]
    return results_table(site.catalog, site.warehouse, there.of(name).shape, some).to_pylist()


def place(row: Row, shape: ResultShape) -> tuple[object, ...]:
    return (row[VS], *(row[name] for name in shape.key))


class Correction:
    """Results that are taken back, and others that come in their places."""

    def __init__(self, there: Answering, name: str, gone: Sequence[Row], new: Sequence[Row]) -> None:
        self.there, self.name, self.of = there, name, there.of(name)
        self.number = self.of.last.number + 1
        self.gone = gone
        self.new = [each | {EVALUATION: self.number} for each in new]

    def commit(self, *, remade: bool = False) -> int:
        """`remade`: the result table is made anew."""
        of, site = self.of, self.there.site
        made, told = self._made(), list(self._told())
        made += self._writer.write(Role.FEED, pa.Table.from_pylist(told, feed_schema(of.shape)))
        step, table = EvaluationSpan(of.frontier, of.frontier), f"{self.name}_now"
        query: Any = SimpleNamespace(checked=SimpleNamespace(query=SimpleNamespace(serve=table)))
        task: Any = SimpleNamespace(query=query, shape=of.shape, step=step, number=self.number, basis=of)
        inputs = RunInputs.open(CatalogView(site), [])
        if remade:
            with site.catalog.writing() as connection:
                result_tables.drop_table(connection, table)
        done = EvaluationCommit(
            self.name,
            of.query_id,
            of.shape,
            of,
            step,
            of.last.data_commit,
            of.last.revisions,
            {"type": "revision", "id": "1", "feed": "whole"},
            EvaluationCost(rows=len(told)),
            of.last.begins,
            made,
            rows=sum(each.rows for each in made if each.role is Role.BASE),
            correction=SweepSummary("all", "", {}),
            keeps_state=True,
            table_update=result_table_update(task, inputs, made, whole=True, corrects=True),
        )
        return commit_evaluation(site.catalog, done, Cause("sweep"))

    @property
    def _writer(self) -> ResultWriter:
        return ResultWriter(self.there.site.warehouse, self.name, self.of.shape.timed)

    def _made(self) -> list[Any]:
        shape, masks = self.of.shape, [each | {EVALUATION: self.number} for each in self.gone]
        made = self._writer.write(Role.MASK, pa.Table.from_pylist(masks, result_mask_schema(shape)))
        for role in PUBLISHED_ROLES:
            before = {place(each, shape) for each in kept(self.there, self.name, role)}
            some = [each for each in self.new if place(each, shape) in before]
            made += self._writer.write(role, pa.Table.from_pylist(some, result_schema(shape)))
        return made

    def _told(self) -> Iterator[Row]:
        shape = self.of.shape
        after = {place(row, shape): row for row in self.new}
        for row in self.gone:
            instead = after.get(place(row, shape))
            before = {OLD_VE: row[VE], **{old_column(name): row[name] for name in shape.payload}}
            said = instead or {**{name: row[name] for name in shape.key}, VS: row[VS], VE: row[VS]}
            yield {**said, **before, OP: "replace" if instead else "delete", EVALUATION: self.number}


def correct(there: Answering, name: str, *, remade: bool = False) -> None:
    """The first result of each kind of buckets is taken back, the second one replaced."""
    some = [kept(there, name, role) for role in PUBLISHED_ROLES]
    first = [rows[0] for rows in some if rows]
    second = [rows[1] for rows in some if rows[1:]]
    shape = there.of(name).shape
    changed = next(iter(shape.payload), None)
    new = [] if changed is None else [row | {changed: row[changed] + 100} for row in second]
    before = there.rows(name)
    Correction(there, name, [*first, *second] if new else first, new).commit(remade=remade)
    assert len(there.rows(name)) == len(before) - len(first)
    assert all({**row, EVALUATION: None} in [{**each, EVALUATION: None} for each in there.rows(name)] for row in new)


def agree(there: Answering, name: str) -> None:
    """Whoever reads is told the same: the archive, its changes, and the result table."""
    reader = there.held(name)
    for at in range(1, there.of(name).frontier + 1):
        assert seen(reader.at(at)) == seen(there.visible(name, at)), f"{name} at {at}"
        assert seen(published_rows(there.site, name, at=at)) == seen(there.visible(name, at)), f"{name} at {at}"
    there.check_table(name)


def seen(rows: Iterable[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def unwell(there: Answering) -> list[Any]:
    found = run_doctor(there.site, (), DoctorOptions(deep=True))
    return [finding for each in found for finding in each.findings]


@pytest.mark.parametrize("remade", [False, True])
def test_what_is_taken_back_is_told_by_nobody(there: Answering, *, remade: bool) -> None:
    for name in TEXTS:
        earlier, commit_id = there.rows(name), there.of(name).last.commit_id
        correct(there, name, remade=remade)
        agree(there, name)
        assert there.rows(name, commit_id) == earlier
        correct(there, name)
        agree(there, name)
    assert unwell(there) == []
    there.take(**SECOND)
    there.run()
    for name in TEXTS:
        agree(there, name)
        assert there.buckets(name, Role.MASK)
    assert unwell(there) == []


def test_a_result_table_that_is_made_anew_has_what_stays(there: Answering) -> None:
    for name in TEXTS:
        first, *_ = kept(there, name, Role.BASE)
        Correction(there, name, [first], []).commit(remade=True)
        agree(there, name)
    assert any(kept(there, name, role) for name in TEXTS for role in (Role.OPEN, Role.TIP))


def test_who_reads_from_the_beginning_is_told_what_counts(there: Answering, either: SparkSession) -> None:
    for name in TEXTS:
        correct(there, name)
        site, of = there.site, there.of(name)
        now = of.last.commit_id
        (stretch,) = changelog_segments(site.catalog, name, now, now, restated=True)
        assert stretch.masks
        assert sum(each.rows for each in stretch.buckets) > len(there.rows(name))
        records = changes_frame(either, site.catalog, site.warehouse, stretch).toArrow()
        assert {each[OP] for each in records.to_pylist()} == {"insert"}
        assert seen(_plain(of.shape, records)) == seen(there.rows(name))
        assert changes_table(site.catalog, site.warehouse, stretch).equals(records)


def _plain(shape: ResultShape, records: pa.Table) -> list[Row]:
    return records.select([*shape.names, VS, VE]).to_pylist()


def test_who_is_told_that_an_archive_has_ended(there: Answering, either: SparkSession) -> None:
    correct(there, "sums")
    rows, site = there.rows("sums"), there.site
    there.edit({name: TEXTS[name] for name in ("dear", "closed")})
    newest = commits.newest_commit(site.catalog)
    *_, last = changelog_segments(site.catalog, "sums", 0, newest, restated=False)
    gone = changes_frame(either, site.catalog, site.warehouse, last).toArrow()
    shape = archive_history(site.catalog, "sums")[-1][0].shape
    assert {(each[OP], each[EVALUATION]) for each in gone.to_pylist()} == {("delete", ARCHIVE_ENDED)}
    assert changes_table(site.catalog, site.warehouse, last).equals(gone)
    right = seen({name: row[name] for name in (*shape.key, VS)} for row in rows)
    assert seen(gone.select([*shape.key, VS]).to_pylist()) == right


def test_another_form_is_compared_with_what_counts(there: Answering) -> None:
    correct(there, "dear")
    there.edit({**TEXTS, "dear": "SELECT of, price, at FROM quotes WHERE price > 1"})
    there.run()
    there.check("dear")


def test_masks_are_merged_and_age_with_what_they_are_of(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.archive.upkeep.result_compaction.BUCKETS_PER_MERGE", 2)
    for name in TEXTS:
        correct(there, name)
        correct(there, name)
    there.take(**SECOND)
    there.run()
    for name in TEXTS:
        agree(there, name)
        assert there.buckets(name, Role.MASK) == []
        assert there.of(name).rows == sum(each.rows for each in there.buckets(name, Role.BASE))
    assert unwell(there) == []

    whole, catalog = there.rows("closed"), there.site.catalog
    oldest = min(whole, key=lambda row: row[VS])
    rows = Retention(rows=sum(row[VS] > oldest[VS] for row in whole))
    assert maintenance.plan_age_out(catalog, there.of("closed"), rows) is not None
    Correction(there, "closed", [oldest], []).commit()
    of = there.of("closed")
    assert maintenance.plan_age_out(catalog, of, rows) is None, "a row that is masked is not one that is kept"
    assert maintenance.plan_age_out(catalog, of, Retention(span=100)) is None
    retention, masks = Retention(span=1), there.buckets("closed", Role.MASK)
    aged = maintenance.plan_age_out(catalog, of, retention)
    assert aged is not None
    assert [each for each in aged.buckets if each.role is Role.MASK] == masks
    assert maintenance.plan_age_out(catalog, of, retention, held=oldest[VS]) is None
    commit_id = maintenance.commit_age_out(catalog, of, aged, {}, Cause("age-out"))
    left = there.rows("closed", commit_id)
    assert seen(left) == seen(
        row for row in whole if row[VS] > max(each.vs_max for each in aged.buckets if each.role is Role.BASE)
    )
    assert unwell(there) == []
