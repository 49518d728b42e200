"""Rows as they will be once pending revisions are applied, beside the revisions applied one after the other."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from errata.archive.bucket_files import POS
from errata.archive.ingest.merge_archive import _as_applied
from errata.archive.schemas import BATCH, GIVEN, OPERATION
from errata.intake.types import arrow_schema
from fixtures.chance import seeds
from fixtures.quotes import quotes

STREAM = quotes()
PLACE = [pa.field(BATCH, pa.int64()), pa.field(POS, pa.int64())]
ROWS = pa.schema([*arrow_schema(STREAM), *PLACE])
WAITING = pa.schema([pa.field(OPERATION, pa.string()), pa.field(GIVEN, pa.string()), *ROWS])
CASES = 300


def one_after_the_other(rows: list[dict[str, Any]], waiting: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    there = {(row["who"], row["at"]): row for row in rows}
    for each in waiting:
        key = each["who"], each["at"]
        if each[OPERATION] == "delete":
            there.pop(key, None)
        elif each[OPERATION] == "insert":
            there.setdefault(key, {name: each[name] for name in ROWS.names})
        elif key in there:
            changed = {*each[GIVEN].split(","), BATCH, POS}
            there[key] = {name: each[name] if name in changed else there[key][name] for name in ROWS.names}
    return there


@pytest.mark.parametrize("seed", seeds(__name__, 3))
def test_columns_have_the_last_value_that_was_given(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(CASES):
        keys = [(who, at) for who in "xy" for at in range(chance.randrange(1, 4))]
        rows = [_row(*key, chance) for key in keys if chance.random() < 0.5]
        waiting = [_revision(chance.choice(keys), chance) for _ in range(chance.randrange(12))]
        found = _as_applied(
            STREAM, pa.Table.from_pylist(rows, schema=ROWS), pa.Table.from_pylist(waiting, schema=WAITING)
        )
        assert {(row["who"], row["at"]): row for row in found.to_pylist()} == one_after_the_other(rows, waiting)
        assert found.num_rows == len({(row["who"], row["at"]) for row in found.to_pylist()})


def _row(who: str, at: int, chance: random.Random) -> dict[str, Any]:
    until = chance.choice([None, at + 1, at + 9])
    place = {BATCH: chance.randrange(9), POS: chance.randrange(99)}
    return {"who": who, "at": at, "price": chance.choice([None, 1.0, 2.0]), "until": until, **place}


def _revision(key: tuple[str, int], chance: random.Random) -> dict[str, Any]:
    operation = chance.choice(["insert", "replace", "replace", "delete"])
    given = STREAM.names
    if operation == "replace" and chance.random() < 0.7:
        given = (*STREAM.key, *(name for name in ("until", "price") if chance.random() < 0.5))
    return {OPERATION: operation, GIVEN: ",".join(given), **_row(*key, chance)}
