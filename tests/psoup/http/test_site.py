"""The HTTP interface over a project that takes rows in, corrects, ages and compacts them: answers are the oracle's."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from errata.catalog import tokens
from errata.catalog.answer_consumers import answer_consumers_of
from errata.errors import ErrataError
from errata.language.registered.read import read_registered
from errata.model.registered import RegisteredPlan
from errata.psoup.answer_text import event_time
from errata.psoup.following import AnswerChange, AnswerFollower
from errata.psoup.http.app import build_app
from errata.psoup.http.events import SourceHistory
from errata.psoup.http.limits import ServiceLimits
from errata.psoup.http.service import QueryService
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import unregister
from errata.psoup.site_source import SiteSource
from fixtures.registered.archives import DECLARED, History, is_refusal
from fixtures.registered.service import ServiceCaller

TEXTS = (
    "SELECT sym, at, no, qty FROM trades WHERE qty >= 0 BEGIN (NOW - '8 minutes') END (NOW)",
    "SELECT a.sym, a.no, b.size FROM trades a, quotes b WHERE a.sym = b.sym AND a.qty > 0"
    " BEGIN (NOW - '6 minutes') END (NOW)",
    "SELECT DISTINCT sensor, flag FROM ticks WHERE sensor > 0 BEGIN (NOW - 60) END (NOW)",
)
ATTACKS = (
    "SELECT digest FROM api_tokens BEGIN (NOW - '1 minute') END (NOW)",
    "SELECT * FROM pins BEGIN (NOW - '1 minute') END (NOW)",
    "SELECT sym FROM trades BEGIN (NOW - '1 minute') END (NOW); DROP TABLE api_tokens",
    "SELECT sym FROM trades WHERE sym = '' OR 1 = 1 BEGIN (NOW - '1 minute') END (NOW)",
    "SELECT sym FROM trades WHERE no IN (SELECT token_id FROM api_tokens) BEGIN (NOW - '1 minute') END (NOW)",
    "SELECT sym FROM trades UNION SELECT digest FROM api_tokens BEGIN (NOW - '1 minute') END (NOW)",
    "SELECT load_extension('x'), sym FROM trades BEGIN (NOW - '1 minute') END (NOW)",
    "SELECT sym FROM read_csv('/etc/passwd') BEGIN (NOW - '1 minute') END (NOW)",
    "WITH x AS (SELECT 1) SELECT * FROM x BEGIN (NOW - '1 minute') END (NOW)",
    "INSERT INTO trades VALUES (1) BEGIN (NOW - '1 minute') END (NOW)",
    "DROP TABLE registered_queries",
    "PRAGMA writable_schema = 1",
)


class ServedHistory:
    """A history, and the interface over its project, with a token."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.compared = 0
        self.reader = RegisteredReader(history.house.site)
        self.source = SiteSource(history.house.site, self.reader)
        self.service = QueryService(self.source, ServiceLimits(stale_seconds=0.0))
        self.call = ServiceCaller(
            build_app(self.service), tokens.create_token(history.house.catalog, "ann", rate=10**9)
        )

    def step(self) -> None:
        self.history.step()
        self.history.note()

    def right(self, plan: RegisteredPlan, commit_id: int, now: int, rows: pa.Table) -> bool:
        """Whether this is the oracle's answer as of the commit. A step makes several, the last of which it knows."""
        if commit_id not in self.history.at:
            return True
        self.compared += 1
        return self.history.at[commit_id].is_answered_by(rows, plan, now)


@pytest.fixture
def served(tmp_path: Path, chance: Random) -> Iterator[ServedHistory]:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    made = ServedHistory(History.begin(tmp_path, url, chance))
    made.history.start()
    yield made
    made.call.close()
    made.service.close()
    made.reader.close()


def test_answers_over_http_are_right_as_rows_come(served: ServedHistory) -> None:
    call = served.call
    done = call("POST", "/v1/queries", json={"sql": list(TEXTS)})
    assert done.status_code == 201, done.text
    handles = [each["handle"] for each in done.json()["queries"]]
    served.history.note()
    for _ in range(10):
        served.step()
        for handle, text in zip(handles, TEXTS, strict=True):
            plan = read_registered(text, DECLARED)
            arrow = {"accept": "application/vnd.apache.arrow.stream"}
            found = call("GET", f"/v1/queries/{handle}/answer?limit=10000", headers=arrow)
            if found.status_code == 409:
                assert is_refusal(ErrataError(found.json()["what"])), found.text
                continue
            commit_id, rows = int(found.headers["errata-commit"]), pa.ipc.open_stream(found.content).read_all()
            assert commit_id == served.history.commit
            now = served.source.invoke(handle, None, commit_id).now
            assert found.headers["errata-now"] == str(event_time(now, timed=DECLARED[plan.sources[0].stream].timed))
            assert served.right(plan, commit_id, now, rows)
    assert served.compared > 5
    shown = call("GET", f"/v1/queries/{handles[0]}").json()
    assert shown["sql"] == TEXTS[0]


def test_sql_reaches_nothing_but_streams(served: ServedHistory) -> None:
    for text in ATTACKS:
        done = served.call("POST", "/v1/queries", json={"sql": text})
        assert (done.status_code, done.json()["where"].split(",")[0].split(":")[0]) == (400, "the query"), done.text
    assert served.call("GET", "/v1/queries").json()["queries"] == []
    assert len(tokens.list_tokens(served.history.house.catalog)) == 1


def test_an_injection_in_a_constant_is_a_constant(served: ServedHistory) -> None:
    text = "SELECT sym FROM trades WHERE sym = '''; DROP TABLE api_tokens; --' BEGIN (NOW - '1 minute') END (NOW)"
    handle = served.call.register(text)
    assert served.call("GET", f"/v1/queries/{handle}/answer").json()["rows"] == []
    assert len(tokens.list_tokens(served.history.house.catalog)) == 1


def test_who_follows_and_resumes_anywhere_has_the_answer(served: ServedHistory, chance: Random) -> None:
    text = TEXTS[0]
    plan, handle = read_registered(text, DECLARED), served.call.register(text)
    served.history.note()
    history = SourceHistory(served.service, handle)
    held: Counter[str] = Counter()
    stored: int | None = None
    told: list[int] = []
    for number in range(100):
        if number >= 12 and len(told) > 3:
            break  # now and then the answer changes rarely
        for _ in range(chance.randrange(1, 4)):
            served.step()
        follower = AnswerFollower(history, stored)
        try:
            for change in follower.changes():
                held, stored = _fold(held, change), change.answer.commit_id
                told.append(stored)
                assert served.right(plan, stored, change.answer.now, change.answer.rows)
                assert held == _bag(change.answer.rows)
                if chance.random() < 0.25:
                    break
        except ErrataError as error:
            if not is_refusal(error):
                raise
    assert told == sorted(set(told))
    assert len(told) > 3
    assert served.compared > 1


def test_many_ask_while_rows_come(served: ServedHistory) -> None:
    text = TEXTS[0]
    plan, handle = read_registered(text, DECLARED), served.call.register(text)
    served.history.note()
    steps = threading.Thread(target=lambda: [served.step() for _ in range(6)])
    path, arrow = f"/v1/queries/{handle}/answer", {"accept": "application/vnd.apache.arrow.stream"}
    found: list[tuple[int, pa.Table]] = []

    def ask() -> None:
        for each in served.call.gather([("GET", path)] * 50, headers=arrow):
            assert each.status_code == 200, each.text
            found.append((int(each.headers["errata-commit"]), pa.ipc.open_stream(each.content).read_all()))

    ask()
    steps.start()
    while steps.is_alive():
        ask()
    steps.join()
    ask()
    assert found[-1][0] == served.source.newest_commit()
    assert len({commit_id for commit_id, _ in found}) > 1
    for commit_id, rows in dict(found).items():
        now = served.source.invoke(handle, None, commit_id).now
        assert served.right(plan, commit_id, now, rows)


def _bag(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, zip(*(column.to_pylist() for column in rows.columns), strict=True)))


def _fold(held: Counter[str], change: AnswerChange) -> Counter[str]:
    if change.whole:
        return _bag(change.added)
    assert _bag(change.gone) <= held
    return held - _bag(change.gone) + _bag(change.added)


def test_quotas_count_what_is_in_force_and_consumers_go_with_their_query(served: ServedHistory) -> None:
    call, catalog = served.call, served.history.house.catalog
    handles = [call.register(TEXTS[0]) for _ in range(3)]
    assert served.source.count("ann") == 3
    served.source.open_consumer(handles[0], "warehouse")
    served.source.open_consumer(handles[1], "warehouse")
    call("DELETE", f"/v1/queries/{handles[0]}")
    unregister(served.history.house.site, handles[1])
    assert (served.source.count("ann"), served.source.count("bob")) == (1, 0)
    assert [answer_consumers_of(catalog, each) for each in handles] == [[], [], []]
    assert call("GET", f"/v1/queries/{handles[1]}").status_code == 404
