"""A summary equals the query that it means, computed in plain Python from the live rows, as of every commit: whatever
has been appended, corrected, compacted or aged out, and whichever buckets have stored parts."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import streams, transaction
from errata.catalog.transaction import BasisConflict
from errata.declare.site import Site
from errata.errors import ErrataError
from errata.language.summaries import SummaryForm, summary_forms
from errata.model.batch import Op
from errata.model.bucket import Bucket, Layout, Role
from errata.model.reduction import ReducedArchives, SummaryDeclaration, SummaryTrigger
from errata.model.reduction_request import RequestMethod
from errata.model.stream import Retention
from errata.model.time import DAY, EVERYTHING, Interval
from errata.reduce import requests, summary_builds
from errata.reduce.summaries import SummaryReading, merged_windows, plan_summary, read_summary_rows, whole_windows
from errata.reduce.summary_builds import SummaryWork, build_summaries, plan_summaries
from fixtures.chance import seeds
from fixtures.flows import Builder
from fixtures.layers import Layers, a_row, compacted, key, layers, plain
from fixtures.oracle.revision import Row

WINDOW = 10
EXACT = {"n": "count(*)", "total": "sum(price)", "least": "min(price)", "most": "max(note)", "mean": "avg(price)"}


def declared(name: str = "totals", group: tuple[str, ...] = ("who",), **how: Any) -> SummaryDeclaration:
    return SummaryDeclaration(name, WINDOW, group, EXACT, **how)


def summarised(house_of: Builder, *summaries: SummaryDeclaration, **changes: object) -> Layers:
    stream = replace(plain("feed", **changes), reduced=ReducedArchives(summaries=summaries or (declared(),)))
    return layers(house_of(), stream)


@pytest.fixture
def house_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    builder = Builder(tmp_path_factory.mktemp("summaries"))
    yield builder
    builder.close()


def asked_for(done: Layers, interval: Interval = EVERYTHING) -> None:
    """A reader of the lazy summary."""
    requests.record_summary(done.house.site, done.standing.stream_id, "totals", interval)


def read(
    done: Layers, form: SummaryForm | None = None, commit: int | None = None, interval: Interval = EVERYTHING
) -> tuple[list[Row], SummaryReading]:
    state = streams.stream_state(done.house.catalog, done.name, commit)
    form = form or summary_forms(done.stream)[0]
    scan = plan_summary(done.house.catalog, form, state, commit or state.changed_in, interval)
    rows, reading = read_summary_rows(never, done.house.catalog, done.house.site.warehouse, scan)
    return sorted(rows.drop_columns(["_vs", "_ve"]).to_pylist(), key=repr), reading


def never() -> Any:
    raise AssertionError("small work needs no engine")


def expected(form: SummaryForm, live: Sequence[Row], interval: Interval = EVERYTHING) -> list[Row]:
    """The summary's rows, row by row, from live rows."""
    of: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in live:
        start = row["at"] // WINDOW * WINDOW
        if interval.start <= start < interval.end:
            of[start, *(row[name] for name in form.declaration.group)].append(row)
    found = []
    for (start, *group), rows in of.items():
        prices = [row["price"] for row in rows if row["price"] is not None]
        notes = [row["note"] for row in rows if row["note"] is not None]
        values = {
            "n": len(rows),
            "total": sum(prices) if prices else None,
            "least": min(prices, default=None),
            "most": max(notes, default=None),
            "mean": sum(prices) / len(prices) if prices else None,
        }
        found.append({"at": start, **dict(zip(form.declaration.group, group, strict=True)), **values})
    return sorted(found, key=repr)


def random_row(draw: random.Random, at: int, who: str) -> Row:
    price = draw.choice([None, float(draw.randrange(100)) / 4])
    return {"at": at, "who": who, "price": price, "note": draw.choice([None, "a", "b"])}


def random_step(draw: random.Random, done: Layers, begun: int) -> None:
    """An append, corrections, a compaction, an ageing, or a vacuum."""
    what = draw.choice(["bring", "bring", "correct", "correct", "compact", "age", "vacuum"])
    live = done.seen()
    taken = {(row["at"], row["who"]) for row in live}
    if what == "bring" or not live:
        places = {(begun + draw.randrange(60), draw.choice("abc")) for _ in range(draw.randrange(1, 12))} - taken
        rows = [random_row(draw, *place) for place in places]
        cut = draw.randrange(len(rows) + 1)
        if some := [part for part in (rows[:cut], rows[cut:]) if part]:
            done.bring(*some)
    elif what == "correct":
        chosen = draw.sample(live, min(len(live), draw.randrange(1, 4)))
        revisions: list[tuple[Op, Row, Row]] = []
        for row in chosen:
            if draw.random() < 0.3:
                revisions.append((Op.DELETE, {name: row[name] for name in done.stream.key}, {}))
            else:
                at = row["at"] if "at" in done.stream.key else row["at"] + draw.randrange(-30, 30)
                revisions.append((Op.REPLACE, random_row(draw, at, row["who"]), {}))
        if "at" in done.stream.key and (begun + 61, "z") not in taken:
            revisions.append((Op.INSERT, random_row(draw, begun + 61, "z"), {}))
        done.correct(*revisions)
    elif what == "compact":
        compacted(done, everything=draw.random() < 0.5)
    elif what == "age":
        age_out(done.house.site, [done.name])
    else:
        build_summaries(done.house.site, done.name)
        assert plan_summaries(done.house.site, done.name).is_empty


@pytest.mark.parametrize("seed", seeds(__name__, 8))
def test_a_summary_is_its_query_as_of_every_commit(house_of: Builder, seed: int) -> None:
    draw = random.Random(seed)
    key_columns, layout = draw.choice(
        [(("at", "who"), Layout.BUCKETS), (("who",), Layout.BUCKETS), (("at", "who"), Layout.PLAIN)]
    )
    done = summarised(
        house_of,
        declared("totals", draw.choice([("who",), (), ("note", "who")]), when=draw.choice([*SummaryTrigger])),
        key=key_columns,
        layout=layout,
        bucket_rows=draw.choice([3, 8, 100]),
        retention=Retention(span=draw.choice([25, 47, 1000])),
        slack=0,
    )
    form = summary_forms(done.stream)[0]
    asked_for(done)
    begun = 0
    for _ in range(draw.randrange(5, 10)):
        random_step(draw, done, begun)
        begun += draw.randrange(0, 12)
        commit = done.standing.changed_in
        assert read(done)[0] == expected(form, done.seen())
        earlier = draw.randrange(2, commit + 1)
        assert read(done, commit=earlier)[0] == expected(form, done.seen(earlier)), earlier
        low, high = sorted((draw.randrange(-20, 150), draw.randrange(-20, 150)))
        asked = whole_windows(Interval(low, high), WINDOW)
        assert read(done, interval=Interval(low, high))[0] == expected(form, done.seen(), asked)


def test_parts_save_the_rows_and_corrections_touch_their_windows_alone(house_of: Builder) -> None:
    done = summarised(house_of, bucket_rows=100)
    done.bring(*([a_row(at) for at in range(start, start + 50)] for start in (0, 50, 100)))
    rows, reading = read(done)
    assert (reading.parts, reading.rows, reading.touched) == (3, 0, 0)
    assert [row["n"] for row in rows] == [10.0] * 15
    done.correct((Op.REPLACE, a_row(57, price=9.0), {}), (Op.DELETE, key(3), {}))
    rows, reading = read(done)
    assert (reading.parts, reading.rows, reading.touched) == (3, 3, 2), "two buckets, and the overlay"
    assert {row["at"]: (row["n"], row["total"]) for row in rows}[50] == (10, 18.0)
    assert {row["at"]: (row["n"], row["total"]) for row in rows}[0] == (9, 9.0)


def test_lazy_summaries_are_built_where_readers_asked(house_of: Builder) -> None:
    done = summarised(house_of, declared(when=SummaryTrigger.READ))
    done.bring([a_row(1)], [a_row(105)])
    assert plan_summaries(done.house.site, done.name).is_empty
    asked_for(done, Interval(100, 110))
    assert [len(each.missing) for each in plan_summaries(done.house.site, done.name).work] == [1]
    report = build_summaries(done.house.site, done.name)
    assert (report.built, report.dropped, len(report.commits)) == (1, 0, 1)
    assert [each.vs_min for each in done.stored(Role.SUMMARY)] == [105]
    done.bring([a_row(107, "b")])
    assert build_summaries(done.house.site, done.name).built == 1, "what comes later gets parts, too"


def test_parts_leave_with_their_bucket_and_with_their_declaration(house_of: Builder) -> None:
    done = summarised(house_of, bucket_rows=50)
    done.bring([a_row(1)], [a_row(2)])
    commit = done.standing.changed_in
    originals = {each.bucket_id for each in done.stored()}
    assert {each.original for each in done.stored(Role.SUMMARY)} == originals
    compacted(done, everything=True)
    assert not originals & {each.original for each in done.stored(Role.SUMMARY)}
    assert {each.original for each in done.stored(Role.SUMMARY, commit)} == originals, "a reader of an older commit"
    assert {each.original for each in done.stored(Role.SUMMARY)} == {each.bucket_id for each in done.stored()}
    inline = [each for role in (Role.BASE, Role.SUMMARY) for each in done.stored(role) if each.inline]
    assert done.standing.inline_bytes == sum(each.size for each in inline)
    other = replace(declared(), window=20)
    done.house.declare(replace(done.stream, reduced=ReducedArchives(summaries=(other,))))
    report = build_summaries(done.house.site, done.name)
    assert (report.dropped, report.built) == (1, 1)


def test_work_of_a_lost_race_is_thrown_away_and_planned_anew(
    house_of: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = summarised(house_of, declared(when=SummaryTrigger.READ), bucket_rows=50, horizon=0)
    done.inline = False
    done.bring([a_row(1)], [a_row(2)])
    asked_for(done)
    before = {each.bucket_id for each in done.stored()}
    built = summary_builds.build_row_parts
    read_first: list[set[int]] = []

    def compact_meanwhile(site: Site, of: SummaryWork, some: Sequence[Bucket], **more: Any) -> Any:
        read_first.append({each.bucket_id for each in some})
        found = built(site, of, some, **more)
        if len(read_first) == 1:
            compacted(done, everything=True)
            assert not run_vacuum(done.house.site, grace=9 * DAY).freed, "what is being read is pinned"
        return found

    monkeypatch.setattr(summary_builds, "build_row_parts", compact_meanwhile)
    monkeypatch.setattr(summary_builds, "MAX_INLINE_STREAM_BYTES", 0)
    report = build_summaries(done.house.site, done.name)
    after = {each.bucket_id for each in done.stored()}
    assert (report.built, len(report.commits)) == (1, 1)
    assert read_first == [before, after]
    assert len([path for path in done.house.files() if "/summary/" in path]) == 1
    assert requests.pending(done.house.catalog, done.standing.stream_id, RequestMethod.SUMMARY)[0].readers == 0


def test_a_race_that_is_lost_each_time_is_an_error(house_of: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    done = summarised(house_of, declared(when=SummaryTrigger.READ))
    done.bring([a_row(1)])
    asked_for(done)

    def lose(*_how: Any) -> int:
        raise BasisConflict

    monkeypatch.setattr(transaction, "WAIT_SECONDS", 0)
    monkeypatch.setattr(summary_builds, "commit_reduced", lose)
    with pytest.raises(ErrataError, match="run vacuum again"):
        build_summaries(done.house.site, done.name)


@pytest.mark.parametrize(
    ("interval", "whole"),
    [(Interval(0, 10), (0, 10)), (Interval(1, 2), (0, 10)), (Interval(-1, 11), (-10, 20)), (Interval(5, 5), (5, 5))],
)
def test_intervals_grow_to_whole_windows(interval: Interval, whole: tuple[int, int]) -> None:
    assert whole_windows(interval, WINDOW) == Interval(*whole)
    assert whole_windows(EVERYTHING, WINDOW) == EVERYTHING


def test_neighbouring_windows_are_one_interval() -> None:
    assert merged_windows(np.array([0, 10, 30]), 10) == [Interval(0, 20), Interval(30, 40)]


@pytest.mark.parametrize(
    ("parts", "rows", "windows", "words"),
    [
        (1, 1, [0], "parts of 1 bucket, rows of 1 bucket, 1 window computed from rows; 30 bytes of 100"),
        (2, 0, [], "parts of 2 buckets, rows of no buckets; 30 bytes of 100"),
    ],
)
def test_what_was_read_of_a_summary_in_words(parts: int, rows: int, windows: list[int], words: str) -> None:
    reading = SummaryReading("totals", EVERYTHING, parts, 10, rows, 20, np.array(windows), 100)
    assert reading.words == f"summary totals: {words}"


@pytest.mark.parametrize("step", ["written", "committed", "dropped"])
def test_a_vacuum_that_is_killed_is_run_again(house_of: Builder, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    done = summarised(house_of, declared(when=SummaryTrigger.READ), bucket_rows=50)
    done.inline = False
    done.bring([a_row(1), a_row(12)], [a_row(2)])
    asked_for(done)
    if step == "dropped":
        build_summaries(done.house.site, done.name)
        other = replace(declared(when=SummaryTrigger.READ), window=20)
        done.stream = replace(done.stream, reduced=ReducedArchives(summaries=(other,)))
        done.house.declare(done.stream)
    commit = summary_builds.commit_reduced

    def killed(*how: Any) -> int:
        if step == "committed":
            commit(*how)
        raise KeyboardInterrupt

    monkeypatch.setattr(summary_builds, "commit_reduced", killed)
    monkeypatch.setattr(summary_builds, "MAX_INLINE_STREAM_BYTES", 0)
    with pytest.raises(KeyboardInterrupt):
        build_summaries(done.house.site, done.name, batch_bytes=1)
    monkeypatch.undo()
    form = summary_forms(done.stream)[0]
    window = form.window

    def right() -> bool:
        return {row["at"]: row["n"] for row in read(done, form)[0]} == ({0: 2, 10: 1} if window == 10 else {0: 3})

    assert right()
    build_summaries(done.house.site, done.name)
    assert plan_summaries(done.house.site, done.name).is_empty
    assert {each.original for each in done.stored(Role.SUMMARY)} == {each.bucket_id for each in done.stored()}
    assert right()
    run_vacuum(done.house.site, grace=-(1 << 60))  # by the clock of the house, files are of the future
    named = {each.path for each in done.stored(Role.SUMMARY) if each.path is not None}
    left = {path for path in done.house.files() if "/summary/" in path}
    assert left == named or step == "dropped", "files of dropped parts stay for the horizon"
