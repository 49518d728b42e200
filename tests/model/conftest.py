"""Streams that the tests of the model speak of."""

from __future__ import annotations

import pytest

from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.parse(kind)) for name, kind in types.items())


@pytest.fixture
def quotes() -> Stream:
    """Prices by a whole-numbered minute; five minutes of slack."""
    return Stream(
        name="quotes",
        columns=columns(time="bigint", symbol="string", price="double"),
        key=("time", "symbol"),
        order="time",
        group=("symbol",),
        slack=5,
        max_ahead=None,
    )


@pytest.fixture
def orders() -> Stream:
    """Orders whose key does not contain the order field."""
    return Stream(
        name="orders",
        columns=columns(id="string", day="bigint", amount="int"),
        key=("id",),
        order="day",
        max_ahead=None,
    )
