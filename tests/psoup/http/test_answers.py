"""Answers over HTTP: three forms, pages of one answer whatever is committed, each worked out once."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest

from errata.psoup.http.limits import ServiceLimits
from errata.psoup.http.pages import AnswerFormat, chosen_format
from errata.psoup.http.problems import MEDIA_TYPE
from fixtures.registered.service import ANN, BOB, ServiceCaller, called_service
from fixtures.registered.source import RecordedSource

ROWS = [(f"S{place:03d}", float(place)) for place in range(25)]


@pytest.fixture
def path(call: ServiceCaller, source: RecordedSource) -> str:
    """The answer of a query with 25 rows."""
    handle = call.register()
    source.history.commit(ROWS)
    return f"/v1/queries/{handle}/answer"


def test_json_says_which_answer_it_is(call: ServiceCaller, path: str) -> None:
    done = call("GET", path)
    told = done.json()
    assert (told["commit"], told["now"], told["total"], told["next"]) == (3, "1970-01-01T00:00:03.000000", 25, None)
    assert told["columns"] == [{"name": "symbol", "type": "string"}, {"name": "price", "type": "double"}]
    assert [(row["symbol"], row["price"]) for row in told["rows"]] == ROWS
    assert (done.headers["errata-commit"], done.headers["errata-now"]) == ("3", told["now"])


def test_csv_and_arrow_hold_the_same(call: ServiceCaller, path: str) -> None:
    text = call("GET", path, headers={"accept": "text/csv"})
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    header, *lines = csv.reader(io.StringIO(text.text, newline=""))
    assert header == ["symbol", "price"]
    assert [(symbol, float(price)) for symbol, price in lines] == ROWS
    arrow = call("GET", f"{path}?limit=10", headers={"accept": "application/vnd.apache.arrow.stream"})
    assert list(zip(*pa.ipc.open_stream(arrow.content).read_all().to_pydict().values(), strict=True)) == ROWS[:10]
    assert arrow.headers["errata-next-cursor"] == call("GET", f"{path}?limit=10").json()["next"]


def test_pages_are_of_one_answer_whatever_is_committed(call: ServiceCaller, source: RecordedSource, path: str) -> None:
    page = call("GET", f"{path}?limit=4").json()
    rows, commits = page["rows"], {page["commit"]}
    while page["next"] is not None:
        source.history.commit([("late", float(len(rows)))])
        page = call("GET", f"{path}?limit=4&cursor={page['next']}").json()
        rows += page["rows"]
        commits.add(page["commit"])
    assert [(row["symbol"], row["price"]) for row in rows] == ROWS
    assert commits == {3}
    assert len(set(source.invoked)) == 1, "one answer is worked out for all of its pages"
    assert call("GET", path).json()["rows"] == [{"symbol": "late", "price": 24.0}]


def test_an_answer_is_worked_out_once_for_all_who_ask(call: ServiceCaller, source: RecordedSource, path: str) -> None:
    found = call.gather([("GET", path)] * 50)
    assert {each.text for each in found} == {found[0].text}
    assert found[0].status_code == 200
    assert len(source.invoked) == 1
    source.history.commit(ROWS[:1])
    assert call("GET", path).json()["total"] == 1
    assert len(source.invoked) == 2


def test_earlier_answers_are_there_by_commit_and_by_time(call: ServiceCaller, path: str) -> None:
    assert call("GET", f"{path}?as_of=1").json()["rows"] == [{"symbol": "IBM", "price": 100.5}]
    assert call("GET", f"{path}?at=xx").json()["now"] == "1970-01-01T00:00:02.000000"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("as_of=99", 400),
        ("as_of=0", 422),
        ("as_of=x", 422),
        ("at=" + "9" * 12, 400),
        ("at=" + "9" * 41, 422),
        ("limit=0", 422),
        ("limit=10001", 422),
        ("limit=-1%3B DROP TABLE pins", 422),
        ("cursor=nonsense", 400),
        ("cursor=1.2.3.4", 400),
        ("cursor=99.0.0", 400),
        ("cursor=1.9999999999999999999.0", 400),
        ("cursor=1.-9223372036854775808.0", 400),
        ("cursor=1.0.0' OR '1'='1", 400),
        ("cursor=" + "1" * 81, 422),
        ("cursor=1.0.0&as_of=1", 400),
        ("cursor=1.0.0&at=x", 400),
        ("cursor=%D9%A1.%D9%A1.%D9%A1", 400),  # digits of another script
    ],
)
def test_what_is_asked_wrongly_is_told(call: ServiceCaller, path: str, query: str, code: int) -> None:
    done = call("GET", f"{path}?{query}")
    assert (done.status_code, done.headers["content-type"]) == (code, MEDIA_TYPE), done.text
    assert done.json()["what"]


def test_a_page_behind_the_end_is_empty(call: ServiceCaller, path: str) -> None:
    page = call("GET", f"{path}?cursor=3.3000000.{10**17}").json()
    assert (page["rows"], page["total"], page["next"]) == ([], 25, None)


def test_what_lies_behind_the_horizon_contradicts_the_state(
    call: ServiceCaller, source: RecordedSource, path: str
) -> None:
    source.history.forget_before(3)
    done = call("GET", f"{path}?as_of=2")
    assert (done.status_code, done.json()["what"]) == (409, "commit 2 lies behind the horizon")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, AnswerFormat.JSON),
        ("*/*", AnswerFormat.JSON),
        ("text/*", AnswerFormat.CSV),
        ("text/html, text/csv;q=0.5, application/json;q=0.4", AnswerFormat.CSV),
        ("application/json;q=0, text/csv", AnswerFormat.CSV),
        ("Application/VND.apache.arrow.stream", AnswerFormat.ARROW),
        ("text/html,*/*;q=0.8", AnswerFormat.JSON),
        ("text/html", None),
        ("application/json;q=x", None),
        ("", AnswerFormat.JSON),
    ],
)
def test_the_form_that_is_wanted_most_is_sent(accept: str | None, form: AnswerFormat | None) -> None:
    assert chosen_format(accept) is form


def test_no_form_that_is_accepted_is_told(call: ServiceCaller, path: str) -> None:
    done = call("GET", path, headers={"accept": "text/html"})
    assert (done.status_code, done.headers["content-type"]) == (406, MEDIA_TYPE)


def test_for_a_moment_the_answer_before_is_sent_while_the_new_one_is_worked_out(source: RecordedSource) -> None:
    with called_service(source, ServiceLimits(stale_seconds=1_000.0)) as (_, call):
        handle = call.register()
        path = f"/v1/queries/{handle}/answer"
        assert call("GET", path).json()["commit"] == 2
        source.history.commit(ROWS)
        assert call("GET", path).json()["commit"] == 2, "the answer says which commit it is as of"
        assert call("GET", path, headers={"cache-control": "no-cache"}).json()["commit"] == 3
        assert call("GET", path).json()["total"] == 25, "what is worked out is sent"
        source.history.commit(ROWS[:1])
        assert call("GET", f"{path}?as_of=4").json()["total"] == 1
        call("DELETE", f"/v1/queries/{handle}")
        assert call("GET", path).status_code == 404
    with called_service(source, ServiceLimits(stale_seconds=0.0)) as (_, call):
        path = f"/v1/queries/{call.register()}/answer"
        seen = []
        for place in range(3):
            source.history.commit(ROWS[:place])
            seen.append(call("GET", path).json()["total"])
        assert seen == [0, 1, 2]


@pytest.mark.parametrize("accept", [*AnswerFormat, "*/*", "text/html"])
@pytest.mark.parametrize("token", [ANN, BOB, "nonsense", None])
def test_the_quick_way_gives_what_the_other_one_does(
    call: ServiceCaller, path: str, accept: str, token: str | None
) -> None:
    quick, slow = (call("GET", f"{path}{query}", token, headers={"accept": accept}) for query in ("", "?limit=1000"))
    assert (quick.status_code, quick.content) == (slow.status_code, slow.content)
    assert quick.headers == slow.headers
