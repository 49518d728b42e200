"""The form by which feeds are attached, detached and trusted, and the assets of feeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset

from errata.catalog import commits, streams
from errata.catalog.stream_commits import commit_append
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata.declare.site import open_site
from errata.errors import ErrataError, UsageError
from errata.model.commit import Cause
from errata.read.corrections import AssetChange, task_asset_changes
from errata.read.feeds import FeedRole, merge_statuses
from errata_airflow import work
from errata_airflow.events import MOVED, emit_asset_events
from errata_airflow.lineage import lineage
from fixtures.catalog import a_batch, a_bucket
from fixtures.merged_feeds import NOON, stand_merged, write_project

TASK = {"ti": SimpleNamespace(dag_id="feeds", run_id="by hand", task_id="change", try_number=2)}
TRY = ("append", "run-1", "append[0]", 1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path))
    write_project(tmp_path)
    apply_plan(plan_apply(load_project(tmp_path, {})))
    return tmp_path


def change(project: Path, what: str, feed: str, since: str | None = None) -> str:
    params: dict[str, Any] = {"stream": "quotes", "feed": feed, "what": what, "since": since}
    return work.change_feed(project, params, work.cause_of(TASK))


def roles() -> dict[str, FeedRole]:
    with open_site() as site:
        (found,) = merge_statuses(site, ["quotes"])
    return {each.name: each.role for each in found.feeds}


def test_a_feed_is_changed_by_a_commit_of_the_task(project: Path) -> None:
    stand_merged()
    assert change(project, "detach", "mirror") == "quotes: feed mirror detached in commit 7"
    assert change(project, "detach", "mirror") == "quotes: feed mirror is detached already; nothing was changed"
    assert change(project, "trust", "third", "") == "quotes: feed third trusted in commit 8"
    assert change(project, "attach", "mirror", "2026-11-18T15:00") == "quotes: feed mirror attached in commit 9"
    assert roles() == {"nyse": FeedRole.LEADS, "mirror": FeedRole.JOINS, "third": FeedRole.FOLLOWS}
    with open_site() as site:
        made = commits.commits_of_try(site.catalog, "feeds", "by hand", "change", 2)
    assert [each.commit_id for each in made] == [7, 8, 9]
    assert {(each.cause.flow, each.stream) for each in made} == {("feeds", "quotes")}


@pytest.mark.parametrize(
    ("what", "feed", "since", "said"),
    [
        ("detach", "mirror", "2026-11-18T15:00", "a time is given to detach a feed"),
        ("attach", "mirror", "soon", "'soon' is not a date and time"),
        ("attach", "miror", None, "unknown feed 'miror'"),
    ],
)
def test_a_form_that_is_filled_in_wrongly_is_told(
    project: Path, what: str, feed: str, since: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        change(project, what, feed, since)
    assert raised.value.how
    with pytest.raises(ErrataError):
        work.change_feed(project, {"stream": "nothing", "feed": feed, "what": "trust", "since": None}, Cause(""))


def test_each_feed_that_has_delivered_is_an_asset_that_has_moved(project: Path) -> None:
    batch = a_batch("b1", [a_bucket(NOON, NOON, path="quotes/1.parquet")])
    by_feed = [
        replace(batch.files[0], name=f"{name}.csv", sha256=digest * 64, feed=feed)
        for name, digest, feed in (("n1", "1", "nyse"), ("n2", "2", "nyse"), ("m1", "3", "mirror"))
    ]
    with open_site(cause=Cause("", "", "", *TRY)) as site:
        basis = streams.stream_state(site.catalog, "quotes")
        commit_id = commit_append(
            site.catalog, basis, replace(batch, files=by_feed, splits=()), site.caused_by("append")
        )
        moved = task_asset_changes(site, *TRY)
    assert [(each.kind, each.name, dict(each.to_json)) for each in moved[:2]] == [
        ("feeds", "quotes.mirror", {"commit": commit_id, "files": 1}),
        ("feeds", "quotes.nyse", {"commit": commit_id, "files": 2}),
    ]
    assert (moved[2].kind, moved[2].name, moved[2].rows) == ("streams", "quotes", 1)
    assert moved[2].reads == ("feeds/quotes.mirror", "feeds/quotes.nyse")
    assert told(moved) == {
        "errata://exchange/feeds/quotes.mirror": {"commit": commit_id, "files": 1},
        "errata://exchange/feeds/quotes.nyse": {"commit": commit_id, "files": 2},
        "errata://exchange/streams/quotes": dict(moved[2].to_json),
    }
    found = lineage("exchange", moved)
    assert [each.name for each in found.inputs] == ["feeds/quotes.mirror", "feeds/quotes.nyse"]
    assert [each.name for each in found.outputs] == ["streams/quotes"]


def told(moved: list[AssetChange]) -> dict[str, Any]:
    """The events of a task, as Airflow would be given them."""
    events: dict[str, Any] = {}

    class Alias:
        def add(self, asset: Asset, extra: dict[str, Any]) -> None:
            events[asset.uri] = extra

    emit_asset_events({MOVED: Alias()}, "exchange", moved)
    return events
