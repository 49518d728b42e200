"""What is delivered of a query's results: a reader who takes the rows of all deliveries in holds the results that are
published, with every end of a lifetime, after each delivery."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.answer.delivered_rows import STABLE_OP
from errata.answer.due_delivery import QueryDelivery
from errata.answer.feed_deliveries import delivered_tables
from errata.declare.query_feeds import check_query_feed, order_lag
from errata.intake.layout import OP
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.feed import Feed, MergedFeeds
from errata.model.results import VE, VS
from errata.model.stream import Stream
from errata.model.time import HIGHEST
from fixtures.runs import FIRST, QUERIES, SECOND, Answering

BIGINT, INT, STRING = (ColumnType(kind) for kind in (TypeKind.BIGINT, TypeKind.INT, TypeKind.STRING))


def merged(columns: dict[str, ColumnType], key: tuple[str, ...], order: str, query: str) -> Stream:
    """A stream that a query feeds; its rows end with the results."""
    every = (*(Column(*each) for each in columns.items()), Column("until", BIGINT))
    return Stream(f"of_{query}", every, key, order, merged=MergedFeeds((Feed("one", query=query),), end="until"))


STREAMS = [
    merged({"at": BIGINT, "of": STRING, "price": INT}, ("at", "of"), "at", "dear"),
    merged({"since": BIGINT, "of": STRING, "n": BIGINT, "s": BIGINT}, ("since", "of"), "since", "sums"),
    merged({"since": BIGINT, "top": BIGINT}, ("since",), "since", "most"),
    merged({"window_start": BIGINT, "of": STRING, "s": BIGINT}, ("window_start", "of"), "window_start", "closed"),
    merged({"since": BIGINT, "of": STRING}, ("since", "of"), "since", "kinds"),
]
"""One for each way in which results come and end."""
TEXTS = {name: QUERIES[name] for name in ("dear", "sums", "most", "closed", "kinds")}


class Held:
    """A reader of deliveries. What is replaced or deleted has to be there, and what is inserted must not."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.after, self.stable = stream, 0, None
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def take(self, there: Answering) -> None:
        (feed,) = self.stream.merged.feeds
        assert feed.query is not None
        due = QueryDelivery(self.stream, feed, there.of(feed.query), self.after)
        rows = pa.concat_tables(delivered_tables(there.site, due)).to_pylist()
        for row in rows[:-1]:
            self._take(row)
        assert rows[-1][OP] == STABLE_OP
        self.stable, self.after = rows[-1][self.stream.order], due.up_to

    def _take(self, row: dict[str, Any]) -> None:
        op, key = row.pop(OP), tuple(row[name] for name in self.stream.key)
        assert (key in self.rows) == (op != "insert"), f"{op} of {key}"
        if op == "delete":
            del self.rows[key]
        else:
            self.rows[key] = row

    def check(self, there: Answering) -> None:
        name = str(self.stream.merged.feeds[0].query)
        lag = order_lag(there.plans()[name], self.stream)
        right = []
        for row in there.rows(name):
            known = {**row, self.stream.order: row[VS] - lag, "until": None if row[VE] == HIGHEST else row[VE]}
            right.append({each: known[each] for each in self.stream.names})
        assert sorted(self.rows.values(), key=repr) == sorted(right, key=repr), name
        assert self.stable == there.of(name).frontier - lag


@pytest.fixture
def readers() -> list[Held]:
    return [Held(each) for each in STREAMS]


def take_and_check(readers: list[Held], there: Answering) -> None:
    for each in readers:
        each.take(there)
        each.check(there)


def test_the_streams_fit_their_queries(tmp_path: Path) -> None:
    there = Answering.begin(tmp_path, TEXTS)
    for stream in STREAMS:
        check_query_feed(stream, there.plans()[str(stream.merged.feeds[0].query)])


def test_who_takes_all_deliveries_holds_the_results(tmp_path: Path, spark: SparkSession, readers: list[Held]) -> None:
    there = Answering.begin(tmp_path, TEXTS)
    there.take(quotes=FIRST["quotes"])
    there.run()
    take_and_check(readers, there)
    # More of the last instant, which may change results that begin there.
    there.take(quotes=["6,c,9", "6,d,4"])
    there.run()
    there.take(quotes=SECOND["quotes"])
    there.run()
    take_and_check(readers, there)
    # Corrections far behind, and what comes next.
    there.revise(quotes=["2,a,9", "3,a,;delete", "7,a,8;replace"])
    there.run()
    take_and_check(readers, there)
    there.revise(quotes=["1,b,;delete", "20,a,5"])
    there.run()
    take_and_check(readers, there)
    late = [Held(each) for each in STREAMS]
    take_and_check(late, there)


def test_another_form_of_a_query_is_delivered_as_changes(
    tmp_path: Path, spark: SparkSession, readers: list[Held]
) -> None:
    there = Answering.begin(tmp_path, TEXTS)
    there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
    there.run()
    take_and_check(readers, there)
    there.edit({**TEXTS, "dear": "SELECT of, price, at FROM quotes WHERE price > 4"})
    there.run()
    take_and_check(readers, there)


def test_random_courses(tmp_path: Path, spark: SparkSession, readers: list[Held], chance: Random) -> None:
    there, known, at = Answering.begin(tmp_path, TEXTS), set[tuple[int, str]](), 0
    for _ in range(6):
        rows, fixes = [], []
        for _ in range(chance.randint(1, 5)):
            at += chance.choice((0, 1, 1, 3))
            of = chance.choice("abc")
            if (at, of) not in known:
                known.add((at, of))
                rows.append(f"{at},{of},{chance.randint(1, 9)}")
        for place, of in chance.sample(sorted(known), min(len(known), chance.randint(0, 3))):
            fixes.append(
                f"{place},{of},;delete" if chance.random() < 0.3 else f"{place},{of},{chance.randint(1, 9)};replace"
            )
            if fixes[-1].endswith("delete"):
                known.discard((place, of))
        if rows:
            there.take(quotes=rows)
        if fixes:
            there.revise(quotes=fixes)
        there.run()
        if chance.random() < 0.7:
            take_and_check(readers, there)
    take_and_check(readers, there)
