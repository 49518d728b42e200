"""Whoever wants to know is told of each fault once, and once more when it is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

from errata.answer.fault_notices import notify_faults
from errata.catalog import queries as told
from errata.catalog.tables import told_faults as table
from fixtures.runs import Answering

TEXTS = {"inverse": "SELECT of, 12 / price AS r, at FROM quotes", "top": "SELECT max(r) AS top FROM inverse"}


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    found = Answering.begin(tmp_path, TEXTS, {})
    found.take(quotes=["1,a,5", "3,a,4", "6,b,0"])
    assert [name for name, _ in found.run().stopped] == ["inverse"]
    yield found
    found.close()


class Heard(list[Mapping[str, Any]]):
    """What somebody has been told."""

    def tell(self, there: Answering) -> list[tuple[str, str]]:
        """Tell what there is to tell, and what that was."""
        before = len(self)
        assert notify_faults(there.site, self.append) == len(self) - before
        return [(each["event"], each["query"]) for each in self[before:]]


def test_a_fault_is_told_once_and_once_when_it_is_over(there: Answering) -> None:
    heard = Heard()
    assert heard.tell(there) == [("stopped", "inverse")]
    (first,) = heard
    assert first["project"] == "p"
    assert first["words"].startswith(
        "query inverse stopped: 12 / quotes.price cannot be computed for the row at=6, of=b"
    )
    assert first["fault"]["row"] == {"at": "6", "of": "b"}
    for _ in range(2):
        there.run()
        assert heard.tell(there) == []
    # It is tried again because something has come, stops at the same row, and is no news.
    there.take(quotes=["7,a,3"])
    assert there.run().stopped
    assert heard.tell(there) == []
    there.revise(quotes=["6,b,2;replace"])
    assert not there.run().stopped
    assert heard.tell(there) == [("over", "inverse")]
    assert heard[1]["fault_id"] == first["fault_id"]
    assert "is no longer stopped at 12 / quotes.price" in heard[1]["words"]
    assert heard.tell(there) == []
    assert rows(there) == []


def test_another_row_is_another_fault(there: Answering) -> None:
    heard = Heard()
    heard.tell(there)
    there.revise(quotes=["6,b,2;replace"])
    there.take(quotes=["8,c,0"])
    assert there.run().stopped
    assert heard.tell(there) == [("over", "inverse"), ("stopped", "inverse")]
    assert heard[2]["fault_id"] != heard[0]["fault_id"]
    assert heard[2]["fault"]["row"] == {"at": "8", "of": "c"}


def test_the_same_fault_again_is_another_one(there: Answering) -> None:
    heard = Heard()
    heard.tell(there)
    for price in (2, 0):
        there.revise(quotes=[f"6,b,{price};replace"])
        assert bool(there.run().stopped) == (price == 0)
        heard.tell(there)
    assert [each["event"] for each in heard] == ["stopped", "over", "stopped"]
    assert heard[2]["fault_id"] != heard[0]["fault_id"]


def test_a_fault_that_nobody_was_told_of_is_not_told_to_be_over(there: Answering) -> None:
    told.due_fault_notices(there.site.catalog)
    there.revise(quotes=["6,b,2;replace"])
    there.run()
    assert Heard().tell(there) == []
    assert rows(there) == []


def test_a_query_that_is_dropped_has_no_fault_any_more(there: Answering) -> None:
    heard = Heard()
    heard.tell(there)
    there.edit({name: text.replace("12 / price", "price") for name, text in TEXTS.items()})
    assert heard.tell(there) == [("over", "inverse")]


class LostError(Exception):
    """Nobody hears."""


def test_who_is_told_twice_because_of_a_kill_is_told_the_same_id(there: Answering) -> None:
    ids: list[str] = []

    def dies(record: Mapping[str, Any]) -> None:
        ids.append(record["fault_id"])
        raise LostError

    for _ in range(2):
        with pytest.raises(LostError):
            notify_faults(there.site, dies)
    heard = Heard()
    assert heard.tell(there) == [("stopped", "inverse")]
    assert ids == [heard[0]["fault_id"]] * 2
    there.revise(quotes=["6,b,2;replace"])
    there.run()
    with pytest.raises(LostError):
        notify_faults(there.site, dies)
    assert heard.tell(there) == [("over", "inverse")]
    assert set(ids) == {heard[1]["fault_id"]}


def rows(there: Answering) -> list[Any]:
    with there.site.catalog.reading() as connection:
        return list(connection.execute(select(table)))
