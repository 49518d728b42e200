"""Quotes as they would come: a small file every few seconds up to the present moment, and now and then a correction.

Stopped and begun again it goes on with the present; what would have come meanwhile does not come.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from errata.clock import SYSTEM
from errata.generate.feed import QuoteFeed
from errata.generate.quotes import QuoteSpec, generate_quotes
from errata.model.time import MINUTE, SECOND, format_instant

EVERY = 20
"""Seconds between two files."""

CORRECTED_EVERY = 6
"""Every so many files a correction comes as well; the first one with the second file."""

SYMBOLS = 20
BEFORE = 15 * MINUTE
"""So much is there from the beginning."""

_MISTAKEN_EVERY = 15
_SETTLED = 60
"""A quote is corrected this many seconds after its time, or up to ten times as many."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the feed is, in numbers of quotes: they follow from time, so that the feed needs no other memory."""

    start: int
    seed: int
    sent: int
    """The first quote that has not been sent."""
    unbroken: int
    """Since which quote all have been sent."""
    files: int

    @property
    def feed(self) -> QuoteFeed:
        return QuoteFeed(self.seed, SYMBOLS, self.start)


def begun(kept: Path, moment: int) -> Position:
    """Where the feed is to go on at a moment: at the present one, or with some minutes before it the first time."""
    if not kept.exists():
        return Position((moment - BEFORE) // SECOND * SECOND, moment % 1_000, 0, 0, 0)
    position = Position(**json.loads(kept.read_text()))
    present = max(position.sent, _until(position, moment))
    return replace(position, sent=present, unbroken=present)


def land(position: Position, moment: int, landing: Path, kept: Path) -> Position:
    """Land what has come until a moment; the position from which the feed goes on."""
    until = _until(position, moment)
    if until <= position.sent:
        return position
    # Noted before it is sent: killed in between, some seconds are missing, and nothing ever comes twice.
    after = replace(position, sent=until, files=position.files + 1)
    kept.write_text(json.dumps(asdict(after)))
    spec = QuoteSpec(
        rows=until - position.sent,
        seed=position.seed,
        symbols=SYMBOLS,
        start=position.start,
        after=position.sent,
        disorder=0.02,
        mistakes=int(position.files % _MISTAKEN_EVERY == _MISTAKEN_EVERY - 1),
    )
    generate_quotes(spec, landing)
    if position.files % CORRECTED_EVERY == 1:
        _correct(after, landing)
    return after


def _correct(position: Position, landing: Path) -> None:
    """One quote of the last minutes turns out to have been wrong."""
    oldest = max(position.unbroken, position.sent - 10 * _SETTLED * SYMBOLS)
    newest = position.sent - _SETTLED * SYMBOLS
    if newest <= oldest:
        return
    feed = position.feed
    draw = int(feed.hashes("correction", np.array([position.files]))[0])
    quote = feed.rows_at(np.array([oldest + draw % (newest - oldest)]))
    was = int(quote.cents[0])
    shall = was + was // 20 * (1 if draw % 2 else -1)
    line = f"{format_instant(int(quote.time[0]))},{feed.names[int(quote.symbol[0])]}"
    text = f"time,symbol,price,_op,_old_price\n{line},{shall / 100:.2f},replace,{was / 100:.2f}\n"
    path = landing / f"correction-{position.sent:012d}.csv"
    writing = path.with_name(f"_{path.name}.tmp")
    writing.write_text(text)
    writing.replace(path)


def _until(position: Position, moment: int) -> int:
    return max(0, moment - position.start) // SECOND * SYMBOLS


def main(project: Path) -> None:
    """Go on until told to end."""
    landing, kept = project / "landing" / "quotes", project / "feed.json"
    landing.mkdir(parents=True, exist_ok=True)
    position = begun(kept, SYSTEM.now())
    while True:
        position = land(position, SYSTEM.now(), landing, kept)
        time.sleep(EVERY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
