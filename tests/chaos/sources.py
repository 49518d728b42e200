"""Sources: rows, late rows, corrections and repetitions, and what the streams hold once all of it has been taken in."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLACK = 3
LAND = "land"
HEADS = {"quotes": "at,of,price", "ticks": "at,of"}


class Tide:
    """The event time that all sources share, so that none of them is late for good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0

    def forth(self, by: int) -> range:
        """The next instants."""
        with self._lock:
            since, self.now = self.now + 1, self.now + by
            return range(since, self.now + 1)


@dataclass(frozen=True)
class Delivery:
    """A batch that is delivered until it is taken in."""

    name: str
    stream: str
    path: Path
    way: str
    """The command that it is handed to; or it is landed."""


@dataclass
class Source:
    """Who speaks of some keys, and is the only one."""

    name: str
    groups: str
    begins: str
    """The stream that it speaks of first, with so many rows that queries over it have something to answer."""
    folder: Path
    tide: Tide
    chance: random.Random
    held: dict[str, dict[tuple[int, str], int | None]] = field(default_factory=lambda: {"quotes": {}, "ticks": {}})
    """By stream and key what its rows say, once all has been taken in."""
    delivered: int = 0
    last: Delivery | None = None

    def next(self) -> Delivery:
        """What it delivers next; sometimes once more what it delivered last."""
        if self.last is not None and self.last.way != LAND and self.chance.random() < 0.1:
            return self.last
        if self.last is None:
            return self._written(self.begins, self._first_rows(), corrects=False)
        stream = self.chance.choice(("quotes", "quotes", "ticks"))
        kind = self.chance.choice(("rows", "rows", "corrections", "mixed"))
        lines: dict[tuple[int, str], str] = {}
        if kind != "corrections" or not self.held[stream]:
            self._add_rows(stream, lines)
        if kind != "rows":
            self._add_corrections(stream, lines)
        return self._written(stream, lines, corrects=kind == "corrections")

    def _first_rows(self) -> dict[tuple[int, str], str]:
        keys = [(at, of) for at in self.tide.forth(3 * SLACK) for of in self.groups]
        return {key: self._put(self.begins, key) + ",insert" for key in keys}

    def _add_rows(self, stream: str, lines: dict[tuple[int, str], str]) -> None:
        for at in self.tide.forth(self.chance.randint(1, 4)):
            for of in self.groups:
                if self.chance.random() < 0.7:
                    lines[at, of] = self._put(stream, (at, of)) + ",insert"

    def _add_corrections(self, stream: str, lines: dict[tuple[int, str], str]) -> None:
        held = self.held[stream]
        for _ in range(self.chance.choice((1, 1, 2, 5, 20))):
            kind = self.chance.choice(("replace", "replace", "delete", "insert"))
            # Mostly of late, so that windows that are still open are corrected as well as old ones.
            reach = self.chance.choice((5, 30, 10_000))
            known = [key for key in held if key not in lines and key[0] > self.tide.now - reach]
            if kind == "insert":
                key = (self.chance.randint(1, max(1, self.tide.now)), self.chance.choice(self.groups))
                if key not in held and key not in lines:
                    lines[key] = self._put(stream, key) + ",insert"
            elif known:
                key = self.chance.choice(known)
                if kind == "delete":
                    del held[key]
                    lines[key] = _line(stream, key, None) + ",delete"
                else:
                    lines[key] = self._put(stream, key) + ",replace"

    def _put(self, stream: str, key: tuple[int, str]) -> str:
        value = self.chance.randrange(9) if stream == "quotes" else None
        self.held[stream][key] = value
        return _line(stream, key, value)

    def _written(self, stream: str, lines: dict[tuple[int, str], str], *, corrects: bool) -> Delivery:
        self.delivered += 1
        name = f"{self.name}-{self.delivered:05}"
        path = self.folder / f"{stream}-{name}.csv"
        path.write_text("\n".join([f"{HEADS[stream]},_op", *lines.values(), ""]))
        way = self.chance.choice(("ingest", "ingest", LAND, "revise" if corrects and lines else LAND))
        self.last = Delivery(name, stream, path, way)
        return self.last


def _line(stream: str, key: tuple[int, str], value: int | None) -> str:
    at, of = key
    return f"{at},{of}" if stream == "ticks" else f"{at},{of},{'' if value is None else value}"


def all_held(sources: list[Source]) -> dict[str, list[dict[str, Any]]]:
    """The rows that the streams have to hold."""
    return {
        "quotes": [
            {"at": at, "of": of, "price": price}
            for each in sources
            for (at, of), price in sorted(each.held["quotes"].items())
        ],
        "ticks": [{"at": at, "of": of} for each in sources for at, of in sorted(each.held["ticks"])],
    }
