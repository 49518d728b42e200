"""What is said of mistakes in errata.yaml: each with its line, and a way to mend it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from errata.errors import UsageError
from fixtures.errata_yaml import Load, stream_text

GOLDEN = Path(__file__).with_name("mistakes.txt")


MISTAKES = {
    "an unknown key": stream_text(colums="{a: int}"),
    "a missing name": "streams: {}\n",
    "not a mapping": "- a\n",
    "a key twice": stream_text() + "    key: [time]\n",
    "a key that is no list": stream_text(key="time"),
    "a list in place of a value": stream_text(order="[time]"),
    "a value that is not there": stream_text(order="~"),
    "an unknown type": stream_text(columns="{time: timestmp, symbol: string}"),
    "a decimal that cannot be": stream_text(columns="{time: timestamp, symbol: 'decimal(50,2)'}"),
    "an unknown column in key": stream_text(key="[time, symbl]"),
    "an unknown column in group": stream_text(group="[sector]"),
    "an unknown column in order": stream_text(order="tme"),
    "an order of text": stream_text(order="symbol"),
    "a key of doubles": stream_text(key="[time, price]"),
    "a group that names a column twice": stream_text(group="[symbol, symbol]"),
    "an empty key": stream_text(key="[]"),
    "columns that differ in case": stream_text(columns="{time: timestamp, symbol: string, Time: int}"),
    "a column that Errata adds itself": stream_text(columns="{Arrived: timestamp, time: timestamp, symbol: string}"),
    "a column with a bad name": stream_text(columns="{time: timestamp, symbol: string, _op: string}"),
    "a stream with a bad name": stream_text().replace("quotes", "my-quotes"),
    "streams that differ in case": stream_text() + "  Quotes: {columns: {id: int}, key: [id]}\n",
    "no columns and no key": "project: p\nstreams:\n  s:\n",
    "a duration without a unit": stream_text(slack="5"),
    "a retention of nothing": stream_text(retention="0 hours"),
    "a retention in words": stream_text(retention="a day"),
    "a bigint and a duration": stream_text(
        columns="{time: bigint, symbol: string}", retention="24 hours", slack="5 seconds"
    ),
    "a bigint and a plain number": stream_text(columns="{time: bigint, symbol: string}", retention="1000"),
    "a bigint and the wall clock": stream_text(columns="{time: bigint, symbol: string}", max_ahead="1 day"),
    "a slack without an order": stream_text(order="", key="[symbol]", slack="5 seconds"),
    "buckets of nothing": stream_text(bucket_rows="0"),
    "an unknown choice": stream_text(on_revision="result"),
    "a landing without a path": stream_text(landing="{settle: 1 second, then: burn}"),
    "a landing that is a path": stream_text(landing="./landing"),
    "copies of everything and twice": stream_text(reduce="{copies: [50%, 0.5, 100%, 0%, 200%, some]}"),
    "too many copies": stream_text(reduce=f"{{copies: [{', '.join(f'{each}%' for each in range(1, 20))}]}}"),
    "copies on some reads": stream_text(reduce="{on_read: sometimes}"),
    "copies on read that drop": stream_text(reduce="{on_read: {drop_above: 150%, purge_after: 30, keep: 1}}"),
    "a summary of nothing": stream_text(reduce="{summaries: {hourly: {window: 0 hours, group: [symbl], when: now}}}"),
    "a summary without a window": stream_text(reduce="{summaries: {hourly: {select: {n: count(*), _m: max(price)}}}}"),
    "a summary with the name of its stream": stream_text(
        reduce="{summaries: {Quotes: {window: 1 hour, select: {n: count(*)}}}}"
    ),
    "summaries of one name": stream_text(
        reduce="{summaries: {a: {window: 1 hour, select: {n: count(*)}}, A: {window: 1 hour, select: {n: count(*)}}}}"
    ),
    "a relation at reduced resolution": (
        "project: p\nrelations:\n  c: {kind: nrr, columns: {id: int, at: timestamp}, key: [id], order: at,"
        " reduce: {copies: [10%]}}\n"
    ),
    "a relation in blocks": (
        "project: p\nrelations:\n  c: {kind: nrr, columns: {id: int, at: timestamp}, key: [id], order: at,"
        " layout: randomized}\n"
    ),
    "feeds that are not declared": stream_text(merge="{emit: first}", end="until", occurrence="n"),
    "feeds without a feed": stream_text(feeds="{}"),
    "feeds that differ in case": stream_text(feeds="{a: {}, A: {}}"),
    "a feed with a bad name": stream_text(feeds="{my-feed: {}}"),
    "a feed that is a path": stream_text(feeds="{a: landing/a}"),
    "a feed with every mistake": stream_text(
        feeds="{a: {landing: {settle: 5}, query: q, order: weak, ties: some, adjusts: maybe, complete: 1, stable: on,"
        " from: soon, slack: 5}}"
    ),
    "a feed from a folder and a query": stream_text(feeds="{a: {landing: in, query: q}, b: {}}"),
    "a feed with feedback and no query": stream_text(feeds="{a: {feedback: yes}}"),
    "a feed that is complete and skips": stream_text(feeds="{a: {query: q, complete: yes, feedback: yes}}"),
    "a feed with fixed ties and no order": stream_text(feeds="{a: {ties: fixed}}"),
    "a feed from a query that is not there": stream_text(feeds="{a: {query: quots}}") + "queries: {quotas: q.sql}\n",
    "a feed of a bigint from a date": stream_text(
        columns="{time: bigint, symbol: string}", feeds="{a: {from: 2026-01-01}}"
    ),
    "a merge with every mistake": stream_text(
        feeds="{a: {}, b: {}}", merge="{emit: last, disagreement: newest, quorum: 0, order: none}"
    ),
    "a merge that says too much": stream_text(
        feeds="{a: {}, b: {}}", merge="{emit: first 0.5, disagreement: leader version}"
    ),
    "a merge that says too little": stream_text(
        feeds="{a: {}, b: {}}", merge="{emit: fraction most, disagreement: latest}"
    ),
    "a quorum of more than there are": stream_text(feeds="{a: {}, b: {}}", merge="{quorum: 3}"),
    "feeds beside a landing folder": stream_text(feeds="{a: {}}", landing="{path: in}"),
    "feeds ordered by arrival": stream_text(feeds="{a: {}}", order=""),
    "feeds whose corrections are ignored": stream_text(feeds="{a: {}}", on_revision="ignore"),
    "a version that is not a column": stream_text(feeds="{a: {}}", merge="{disagreement: latest prise}"),
    "a version in the key": stream_text(feeds="{a: {}}", merge="{disagreement: latest symbol}"),
    "an end that is not a column": stream_text(feeds="{a: {}}", end="until"),
    "an end of another type": stream_text(feeds="{a: {}}", end="price"),
    "an end that is the order": stream_text(feeds="{a: {}}", end="time"),
    "an occurrence outside of the key": stream_text(feeds="{a: {}}", occurrence="price"),
    "an occurrence of text": stream_text(feeds="{a: {}}", occurrence="symbol"),
    "a relation with feeds": (
        "project: p\nrelations:\n  c: {kind: nrr, columns: {id: int, at: timestamp}, key: [id], order: at,"
        " feeds: {a: {}}, merge: {quorum: 1}}\n"
    ),
    "a variable that is not set": "project: p\ncatalog: ${ERRATA_CATALOG}\n",
    "a variable that leaves nothing": "project: ${NAME:-}\n",
    "a broken variable": "project: ${p\n",
    "a catalog of another kind": "project: p\ncatalog: mysql://me:secret@host/db\n",
    "a catalog in memory": "project: p\ncatalog: 'sqlite:///:memory:'\n",
    "master and remote": "project: p\nspark: {master: local, remote: 'sc://h'}\n",
    "near at times": "project: p\nspark: {near: sometimes}\n",
    "near with limits of nothing": "project: p\nspark: {near: {rows: 0, bytes: lots, size: 3}}\n",
    "not YAML": "project: p\nstreams: {a: b\n",
    "several at once": stream_text(colums="{a: int}", order="tme", slack="5", on_revision="all").replace(
        "project", "projct"
    ),
}


def test_mistakes_are_told_in_these_words(load: Load) -> None:
    """Compared with mistakes.txt beside this file; ERRATA_GOLDEN=write rewrites that."""
    told = []
    for name, text in MISTAKES.items():
        with pytest.raises(UsageError) as raised:
            load(text)
        told.append(f"# {name}\n{raised.value}\n")
    words = "\n".join(told)
    if os.environ.get("ERRATA_GOLDEN") == "write":
        GOLDEN.write_text(words, encoding="utf-8")
    assert words == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_has_a_line_and_a_way_to_mend_it(load: Load, name: str) -> None:
    with pytest.raises(UsageError, match=r"errata\.yaml:\d+") as raised:
        load(MISTAKES[name])
    assert "how to mend: " in str(raised.value)
    assert "secret" not in str(raised.value)
