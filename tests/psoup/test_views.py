"""Registered queries as views of PostgreSQL: whatever happens, a view says what the oracle says as of its commit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psycopg2
import pytest

from errata.catalog import registered_views
from errata.catalog.view_sql import view_name
from errata.errors import UsageError
from errata.model.columns import TypeKind
from errata.model.registered import RegisteredPlan, ResultStrategy
from errata.model.time import to_micros
from errata.psoup import views
from errata.psoup.due import DueMatching, due_matching
from errata.psoup.materialise import materialise
from errata.psoup.register import register, unregister
from errata.psoup.views import ViewReport, update_views, view_queries
from fixtures.chance import seeds
from fixtures.postgres import DRIVER, FreshDatabase
from fixtures.registered.archives import History, reaches_too_far
from fixtures.registered.oracle import Answer, answer_counts, same_answers
from fixtures.registered.texts import random_text

EPOCH = date(1970, 1, 1).toordinal()
WINDOW = "BEGIN (NOW - '10 minutes') END (NOW)"


def plain(value: Any) -> object:
    """A value of psycopg2 as plans have constants."""
    match value:
        case datetime():
            return to_micros(value.astimezone(UTC))
        case date():
            return value.toordinal() - EPOCH
    return value


def single(value: Any) -> float | None:
    return None if value is None else float(np.float32(value))


class Client:
    """A program that knows nothing of Errata, with a connection of its own in another time zone."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg2.connect("postgresql://" + url.removeprefix(DRIVER))
        self.connection.autocommit = True

    def run(self, sql: str) -> Answer:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(map(plain, row)) for row in cursor.fetchall()] if cursor.description else []

    def names(self) -> set[str]:
        return {str(name) for (name,) in self.run("SELECT viewname FROM pg_views WHERE schemaname = 'psoup'")}

    def read(self, handle: str) -> Answer:
        """What a view says in a session of another time zone. It is fetched in UTC, since Python has no year 10000."""
        self.run("SET TimeZone = 'Asia/Kolkata'")
        self.run("DROP TABLE IF EXISTS answer")
        self.run(f"CREATE TEMPORARY TABLE answer AS SELECT * FROM psoup.q_{handle}")
        self.run("SET TimeZone = 'UTC'")
        return self.run("SELECT * FROM answer")


@pytest.fixture
def url(fresh_database: FreshDatabase) -> str:
    return fresh_database("postgresql")


def history_on(folder: Path, url: str, seed: int, rows: int = 60) -> History:
    history = History.begin(folder, url, Random(seed), rows)
    history.start()
    return history


class Course:
    """A history, and queries over it that are views and come and go."""

    def __init__(self, history: History, client: Client) -> None:
        self.history, self.client = history, client
        self.site, self.random = history.house.site, history.random
        self.plans: dict[str, RegisteredPlan] = {}
        self.answers = 0
        self.refusals = 0

    def register(self, count: int = 6) -> None:
        drawn = (random_text(self.random, sources=self.random.choice((1, 1, 2))) for _ in range(200))
        texts = [each for each in drawn if not reaches_too_far(each.plan)][:count]
        strategy = self.random.choice(list(ResultStrategy))
        made = register(self.site, [each.text for each in texts], owner="me", strategy=strategy)
        self.plans |= {each.handle: text.plan for each, text in zip(made, texts, strict=True)}
        view_queries(self.site, [each.handle for each in made])

    def unregister(self) -> None:
        handle = self.random.choice(list(self.plans))
        unregister(self.site, handle)
        del self.plans[handle]

    def step(self) -> None:
        self.history.step()
        if self.random.random() < 0.3:
            materialise(self.site)
        if self.random.random() < 0.15:
            self.register(2)
        if self.random.random() < 0.1:
            self.unregister()
        self.history.note()

    def check(self) -> None:
        assert self.client.names() == {f"q_{each}" for each in self.plans}
        moment = self.history.newest
        for handle, plan in self.plans.items():
            now = moment.present(plan)
            if moment.refuses(plan, now):
                self._check_refused(handle)
                continue
            right = moment.answer(plan, now)
            found = self.client.read(handle)
            for place, item in enumerate(plan.items):
                if item.output.type.kind is TypeKind.FLOAT:  # of 32 bits, which PostgreSQL writes as 0.1
                    found = [(*row[:place], single(row[place]), *row[place + 1 :]) for row in found]
            one, other = answer_counts(found), answer_counts(right)
            assert same_answers(found, right), (plan.statement, plan.parameters, one - other, other - one)
            self.answers += 1

    def _check_refused(self, handle: str) -> None:
        """A view that lacks rows raises an error; it need not where no other source has a row for them."""
        try:
            self.client.read(handle)
        except psycopg2.errors.RaiseException as error:
            message = str(error)
            self.refusals += 1
        else:
            message = "reaches back further"
        assert "reaches back further" in message


@pytest.mark.parametrize("seed", seeds(__name__, 2))
def test_views_say_what_the_oracle_says(tmp_path: Path, url: str, seed: int) -> None:
    history = history_on(tmp_path, url, seed)
    client = Client(url)
    course = Course(history, client)
    course.register(12)
    for _ in range(11):
        course.step()
        update_views(history.house.site)
        course.check()
    assert course.answers > 40
    client.connection.close()
    history.house.site.catalog.close()


def test_an_update_writes_what_has_changed_alone(tmp_path: Path, url: str) -> None:
    history = history_on(tmp_path, url, 1, rows=200)
    site = history.house.site
    (made,) = register(
        site, [f"SELECT sym, price FROM quotes q WHERE size > 0 {WINDOW}".replace("price", "bid")], owner="me"
    )
    view_queries(site, [made.handle])
    first = update_views(site)
    assert first.views == 1
    assert first.buckets > 0
    assert update_views(site) == ViewReport(1, 0, 0)
    history.arrive("quotes")
    assert update_views(site).buckets > 0
    history.arrive("trades")
    assert update_views(site) == ViewReport(1, 0, 0)
    site.catalog.close()


def test_views_are_due_when_a_commit_has_come_since(tmp_path: Path, url: str) -> None:
    history = history_on(tmp_path, url, 8, rows=200)
    site = history.house.site
    (made,) = register(site, [f"SELECT * FROM quotes {WINDOW}"], owner="me")
    materialise(site)
    assert not due_matching(site)
    view_queries(site, [made.handle])
    assert due_matching(site).views
    update_views(site)
    assert not due_matching(site)
    history.arrive("quotes")
    assert due_matching(site) == DueMatching(["quotes"], views=True)
    materialise(site)
    assert due_matching(site) == DueMatching([], views=True)
    unregister(site, made.handle)
    update_views(site)
    assert not due_matching(site)
    site.catalog.close()


def test_a_view_stays_as_it_was_until_the_next_update(tmp_path: Path, url: str) -> None:
    """All views are as of one commit: what arrives meanwhile, and the NOW that moves with it, come together."""
    history = history_on(tmp_path, url, 2, rows=200)
    site, client = history.house.site, Client(url)
    made = register(site, [f"SELECT count(*) FROM quotes {WINDOW}", f"SELECT * FROM quotes {WINDOW}"], owner="me")
    view_queries(site, [each.handle for each in made])
    update_views(site)
    before = [client.read(each.handle) for each in made]
    assert before[0] == [(len(before[1]),)]
    history.arrive("quotes")
    history.revise("quotes")
    assert all(same_answers(client.read(each.handle), answer) for each, answer in zip(made, before, strict=True))
    update_views(site)
    assert not same_answers(client.read(made[1].handle), before[1])
    client.connection.close()
    site.catalog.close()


def test_a_failed_update_changes_nothing(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history = history_on(tmp_path, url, 3, rows=200)
    site, client = history.house.site, Client(url)
    made = register(site, [f"SELECT * FROM quotes {WINDOW}", f"SELECT * FROM trades {WINDOW}"], owner="me")
    view_queries(site, [each.handle for each in made])
    update_views(site)
    before = [client.read(each.handle) for each in made]
    history.arrive("quotes")
    history.arrive("trades")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(registered_views.ViewUpdate, "set_views", dies)
        with pytest.raises(KeyboardInterrupt):
            update_views(site)
    assert all(same_answers(client.read(each.handle), answer) for each, answer in zip(made, before, strict=True))
    history.note()
    update_views(site)
    moment = history.at[history.commit]
    for each in made:
        stable = moment.stable[each.plan.sources[0].stream]
        assert stable is not None
        assert same_answers(client.read(each.handle), moment.answer(each.plan, stable))
    client.connection.close()
    site.catalog.close()


def test_an_older_update_leaves_a_newer_one_alone(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history = history_on(tmp_path, url, 4, rows=200)
    site, client = history.house.site, Client(url)
    (made,) = register(site, [f"SELECT * FROM quotes {WINDOW}"], owner="me")
    view_queries(site, [made.handle])
    older = views.commits.newest_commit(site.catalog)
    history.arrive("quotes")
    update_views(site)
    newest = client.read(made.handle)
    with monkeypatch.context() as patched:
        patched.setattr(views.commits, "newest_commit", lambda _: older)
        assert update_views(site) == ViewReport(views=1)
    assert same_answers(client.read(made.handle), newest)
    client.connection.close()
    site.catalog.close()


def test_a_reader_of_views_needs_no_other_right(tmp_path: Path, url: str) -> None:
    history = history_on(tmp_path, url, 5)
    site, client = history.house.site, Client(url)
    (made,) = register(site, [f"SELECT count(*) AS n FROM quotes {WINDOW}"], owner="me")
    view_queries(site, [made.handle])
    update_views(site)
    client.run("DROP ROLE IF EXISTS reporter")
    client.run("CREATE ROLE reporter")
    client.run("GRANT USAGE ON SCHEMA psoup TO reporter")
    client.run(f"GRANT SELECT ON psoup.{view_name(made)} TO reporter")
    client.run("SET ROLE reporter")
    assert len(client.read(made.handle)) == 1
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        client.run("SELECT * FROM registered_queries")
    client.run("RESET ROLE")
    client.run("DROP OWNED BY reporter")
    client.run("DROP ROLE reporter")
    client.connection.close()
    site.catalog.close()


def test_a_window_that_counts_rows_counts_those_of_the_stream(tmp_path: Path, url: str) -> None:
    """Also those that do not match, and not all of those that happened at once with its first row."""
    history = history_on(tmp_path, url, 6, rows=200)
    site, client = history.house.site, Client(url)
    texts = [
        f"SELECT no, size FROM quotes WHERE size > 1 BEGIN (NOW - {count} ROWS) END (NOW)" for count in range(1, 9)
    ]
    made = register(site, texts, owner="me")
    view_queries(site, [each.handle for each in made])
    found = 0
    for _ in range(4):
        history.arrive("quotes")
        history.note()
        update_views(site)
        moment = history.at[history.commit]
        for each in made:
            stable = moment.stable["quotes"]
            assert stable is not None
            answer = client.read(each.handle)
            assert same_answers(answer, moment.answer(each.plan, stable))
            found += len(answer)
    assert found > 20
    client.connection.close()
    site.catalog.close()


def test_a_catalog_in_sqlite_has_no_views(tmp_path: Path) -> None:
    history = history_on(tmp_path, f"sqlite:///{tmp_path}/errata.db", 7)
    (made,) = register(history.house.site, [f"SELECT * FROM quotes {WINDOW}"], owner="me")
    with pytest.raises(UsageError, match="a view in PostgreSQL only"):
        view_queries(history.house.site, [made.handle])
    assert update_views(history.house.site) == ViewReport()
    history.house.site.catalog.close()
