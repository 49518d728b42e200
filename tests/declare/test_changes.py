"""What applying a declaration changes, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from errata.declare.changes import StreamChange, StreamChanges, StreamCreation, StreamDrop, plan_stream_changes
from errata.errors import RefusedError
from errata.model.columns import Column, ColumnType
from errata.model.feed import LandedFileAction, LandingFolder
from errata.model.reduction import OnReadCopies, ReducedArchives, SummaryDeclaration
from errata.model.stream import (
    ARRIVAL_COLUMN,
    AgeOutMode,
    DuplicatePolicy,
    RelationKind,
    Retention,
    RevisionPolicy,
    Stream,
)
from errata.model.time import DAY, HOUR, SECOND


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.parse(kind)) for name, kind in types.items())


QUOTES = Stream(
    name="quotes",
    columns=columns(time="timestamp", symbol="string", price="double"),
    key=("time", "symbol"),
    order="time",
    group=("symbol",),
    retention=Retention(span=24 * HOUR),
)
WIDER = columns(time="timestamp", symbol="string", volume="bigint", price="double")


def plan(after: Stream | None, rows: int, drop: Collection[str] = ()) -> StreamChanges:
    declared = {} if after is None else {after.name: after}
    return plan_stream_changes(declared, {"quotes": QUOTES}, {"quotes": rows}, drop)


def details(rows: int = 7, **changed: Any) -> tuple[str, ...]:
    after = replace(QUOTES, **changed)
    changes = plan(after, rows)
    assert changes.refusals == ()
    (change,) = changes.changes
    assert change == StreamChange(QUOTES, after, change.details)
    return change.details


def refusals(**changed: Any) -> list[str]:
    changes = plan(replace(QUOTES, **changed), rows=7)
    assert changes.changes == ()
    return [refusal.what for refusal in changes.refusals]


def test_what_is_declared_and_recorded_alike_changes_nothing() -> None:
    changes = plan(QUOTES, 7)
    assert changes == StreamChanges()
    assert changes.nothing
    changes.check()


def test_new_streams_are_created_in_order_of_names() -> None:
    news = {name: replace(QUOTES, name=name) for name in ("b", "a", "quotes")}
    changes = plan_stream_changes(news, {"quotes": QUOTES}, {})
    assert changes == StreamChanges(creates=(StreamCreation(news["a"]), StreamCreation(news["b"])))
    assert not changes.nothing


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"columns": WIDER}, "column volume bigint added; older rows read NULL"),
        ({"retention": Retention(span=48 * HOUR)}, "retention 1 day -> 2 days"),
        ({"retention": Retention(rows=1000)}, "retention 1 day -> 1000 rows"),
        ({"retention": None}, "retention 1 day -> for ever"),
        ({"age_out": AgeOutMode.LAZY}, "age_out scheduled -> lazy"),
        ({"slack": 5 * SECOND}, "slack 0 seconds -> 5 seconds"),
        ({"max_ahead": None}, "max_ahead 1 day -> none"),
        ({"bucket_rows": 9}, "bucket_rows 500000 -> 9"),
        ({"on_revision": RevisionPolicy.IGNORE}, "on_revision results -> ignore"),
        ({"on_duplicate": DuplicatePolicy.REPLACE}, "on_duplicate quarantine -> replace"),
        ({"horizon": DAY}, "horizon 7 days -> 1 day"),
        (
            {"columns": columns(symbol="string", time="timestamp", price="double")},
            "columns ordered symbol, time, price",
        ),
    ],
)
def test_what_loses_nothing_is_a_change_in_words(changed: dict[str, Any], expected: str) -> None:
    assert details(**changed) == (expected,)


def test_what_is_kept_at_reduced_resolution_is_changed_without_loss() -> None:
    hourly = SummaryDeclaration("hourly", HOUR, ("symbol",), {"n": "count(*)", "top": "max(price)"})
    kept = ReducedArchives((0.5, 0.1), OnReadCopies(purge_after=30 * DAY), (hourly,))
    told = "hourly: count(*) AS n, max(price) AS top by symbol, 1 hour, on append"
    assert details(reduced=kept) == (
        "copies none -> 50%, 10%",
        "on_read none -> dropped above 50%, originals purged after 30 days",
        f"summaries none -> {told}",
    )
    changes = plan_stream_changes(
        {
            "quotes": replace(
                QUOTES, reduced=ReducedArchives(summaries=(replace(hourly, aggregates={"n": "count(*)"}),))
            )
        },
        {"quotes": replace(QUOTES, reduced=kept)},
        {"quotes": 7},
    )
    (change,) = changes.changes
    assert change.details == (
        "copies 50%, 10% -> none",
        "on_read dropped above 50%, originals purged after 30 days -> none",
        f"summaries {told} -> hourly: count(*) AS n by symbol, 1 hour, on append",
    )


def test_a_landing_is_told_part_by_part() -> None:
    landing = LandingFolder("/in", 10 * SECOND, LandedFileAction.MOVE)
    assert details(landing=landing) == (
        "landing path none -> /in",
        "landing settle none -> 10 seconds",
        "landing then none -> move",
    )
    before = replace(QUOTES, landing=landing)
    after = replace(QUOTES, landing=replace(landing, then=LandedFileAction.KEEP))
    (change,) = plan_stream_changes({"quotes": after}, {"quotes": before}, {"quotes": 7}).changes
    assert change.details == ("landing then move -> keep",)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"columns": columns(time="timestamp", symbol="string")}, ["column price is no longer declared"]),
        (
            {"columns": columns(time="timestamp", symbol="string", cost="double")},
            ["column price is no longer declared"],
        ),
        (
            {"columns": columns(time="timestamp", symbol="string", price="float")},
            ["column price would change from double to float"],
        ),
        ({"key": ("symbol", "time")}, ["key would change from [time, symbol] to [symbol, time]"]),
        (
            {"columns": WIDER, "key": ("time", "symbol", "volume")},
            ["key would change from [time, symbol] to [time, symbol, volume]"],
        ),
        ({"group": ()}, ["group would change from [symbol] to []"]),
        (
            {"columns": (*QUOTES.columns, *columns(arrived="timestamp")), "order": ARRIVAL_COLUMN},
            ["order would change from time to time of arrival"],
        ),
        (
            {"columns": columns(time="bigint", symbol="string"), "group": ()},
            [
                "column time would change from timestamp to bigint",
                "column price is no longer declared",
                "group would change from [symbol] to []",
            ],
        ),
    ],
)
def test_what_rows_cannot_bear_is_refused(changed: dict[str, Any], expected: list[str]) -> None:
    assert refusals(**changed) == expected


def test_a_stream_without_rows_can_become_anything() -> None:
    told = details(
        rows=0,
        columns=columns(time="bigint", id="string"),
        key=("id",),
        group=(),
        retention=Retention(span=5),
        max_ahead=None,
    )
    assert told == (
        "column time timestamp -> bigint",
        "column id string added; older rows read NULL",
        "column symbol dropped",
        "column price dropped",
        "key [time, symbol] -> [id]",
        "group [symbol] -> []",
        "retention 1 day -> 5 units",
        "slack 0 seconds -> 0 units",
        "max_ahead 1 day -> none",
    )


class TestNoLongerDeclared:
    def test_without_rows_it_is_dropped(self) -> None:
        assert plan(None, rows=0) == StreamChanges(drops=(StreamDrop("quotes", 0),))

    def test_with_rows_it_is_refused_with_the_way_to_do_it(self) -> None:
        changes = plan(None, rows=7)
        assert changes.drops == ()
        with pytest.raises(RefusedError) as refused:
            changes.check()
        assert str(refused.value) == (
            "stream quotes: it is no longer declared and has 7 rows\n"
            "  why: dropping it loses them\n"
            "  how to mend: declare it again, or give it up with: errata apply --drop quotes"
        )

    def test_with_rows_it_is_dropped_when_named(self) -> None:
        assert plan(None, rows=7, drop={"quotes"}) == StreamChanges(drops=(StreamDrop("quotes", 7),))

    def test_dropping_what_is_still_declared_is_refused(self) -> None:
        (refusal,) = plan(QUOTES, rows=7, drop={"quotes"}).refusals
        assert "still declared" in str(refusal)
        assert "take it out of errata.yaml" in str(refusal)

    def test_dropping_what_is_gone_can_be_repeated(self) -> None:
        assert plan_stream_changes({}, {}, {}, {"quotes"}).nothing


def test_a_refusal_names_the_way_and_holds_its_stream_back_alone() -> None:
    other = replace(QUOTES, name="other")
    narrow = replace(QUOTES, columns=columns(time="timestamp", symbol="string"), bucket_rows=5)
    wide = replace(other, columns=(*other.columns, *columns(volume="bigint")))
    changes = plan_stream_changes(
        {"quotes": narrow, "other": wide}, {"quotes": QUOTES, "other": other}, {"quotes": 1, "other": 1}
    )
    assert [change.after for change in changes.changes] == [wide]
    with pytest.raises(RefusedError) as refused:
        changes.check()
    assert "declare price: double again, or declare a new stream under another name" in str(refused.value)


def test_several_refusals_are_told_together() -> None:
    with pytest.raises(RefusedError) as refused:
        plan(replace(QUOTES, key=("time",), group=()), rows=1).check()
    assert str(refused.value).startswith("2 changes are refused, and so none is made\nstream quotes: key would change")
    assert str(refused.value).count("how to mend") == 2


COMPANIES = Stream(
    name="companies",
    columns=columns(symbol="string", since="timestamp", gone="boolean"),
    key=("symbol", "since"),
    order="since",
    relation=RelationKind.NRR,
    deleted="gone",
)


def test_a_relation_is_called_one() -> None:
    other = replace(COMPANIES, relation=RelationKind.RETROACTIVE, deleted=None)
    changes = plan_stream_changes({"companies": other}, {"companies": COMPANIES}, {"companies": 7})
    assert changes.changes[0].details == ("kind nrr -> retroactive", "deleted gone -> none")
    dropped = plan_stream_changes({}, {"companies": COMPANIES}, {"companies": 0})
    assert dropped.drops == (StreamDrop("companies", 0, "relation"),)
    with pytest.raises(RefusedError, match="relation companies: it is no longer declared and has 7 rows"):
        plan_stream_changes({}, {"companies": COMPANIES}, {"companies": 7}).check()
    with pytest.raises(RefusedError, match="relation companies: it is to be dropped and is still declared"):
        plan_stream_changes({"companies": COMPANIES}, {"companies": COMPANIES}, {}, ["companies"]).check()


def test_a_stream_with_rows_cannot_become_a_relation() -> None:
    stream = replace(COMPANIES, relation=None, deleted=None)
    changes = plan_stream_changes({"companies": COMPANIES}, {"companies": stream}, {"companies": 7})
    assert [each.what for each in changes.refusals] == ["key would change from [symbol, since] to [symbol]"]
    assert plan_stream_changes({"companies": COMPANIES}, {"companies": stream}, {}).refusals == ()
