"""The feed of quotes as arithmetic: the time, symbol and price of any row are computed from its number alone.

No state is kept from row to row, so a correction can quote the price of a row written a day ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from errata.model.time import SECOND

_NAMES = """
IBM AAPL MSFT AMZN GOOG META NVDA TSLA ORCL INTC AMD CSCO ADBE CRM NFLX QCOM TXN AVGO MU AMAT
LRCX KLAC ADI NXPI MRVL HPQ HPE DELL WDC STX JPM BAC WFC C GS MS BK STT PNC USB
TFC COF AXP V MA PYPL BLK SCHW SPGI MCO ICE CME NDAQ AON MMC TRV ALL PGR CB AIG
MET PRU AFL HIG JNJ PFE MRK ABBV LLY BMY AMGN GILD BIIB REGN VRTX MRNA ABT MDT SYK BSX
BDX ZBH EW ISRG TMO DHR A WAT PKI UNH CVS CI HUM CNC HCA MCK XOM CVX COP EOG
OXY SLB HAL BKR VLO MPC PSX HES DVN APA KMI WMB OKE NEE DUK SO D AEP EXC SRE
XEL ED PEG ES WEC AWK LIN APD SHW ECL DD DOW LYB NUE FCX NEM GE HON MMM CAT
DE EMR ETN ITW PH ROK CMI PCAR BA LMT RTX NOC GD LHX UPS FDX UNP CSX NSC DAL
UAL AAL LUV WM RSG KO PEP PG CL KMB GIS K HSY MDLZ MO PM WMT COST TGT KR
HD LOW MCD SBUX YUM NKE TJX ROST BKNG MAR HLT GM F DIS CMCSA T VZ TMUS EA TTWO
"""
_LISTED_NAMES = _NAMES.split()


def ticker_names(count: int) -> tuple[str, ...]:
    """The first names; after the listed ones come further share classes: IBM.B, AAPL.B, …"""
    return tuple(_ticker_name(number) for number in range(count))


def _ticker_name(number: int) -> str:
    again, place = divmod(number, len(_LISTED_NAMES))
    return _LISTED_NAMES[place] if again == 0 else f"{_LISTED_NAMES[place]}.{chr(ord('A') + again)}"


# The rows.

IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]

BLOCK = 1_024
"""Seconds of a price's walk that are computed together."""

CHUNK_ROWS = 200_000
"""Rows held in memory at a time, about."""

MAX_SYMBOLS = 2_000

_SCALES = 12
_MIN_CENTS = 100
_MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class QuoteRows:
    """Some rows: their times in microseconds, the numbers of their symbols, their prices in cents."""

    time: IntArray
    symbol: IntArray
    cents: IntArray

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, which: slice | IntArray | npt.NDArray[np.bool_]) -> QuoteRows:
        return QuoteRows(self.time[which], self.symbol[which], self.cents[which])

    def append(self, other: QuoteRows) -> QuoteRows:
        return QuoteRows(
            np.concatenate((self.time, other.time)),
            np.concatenate((self.symbol, other.symbol)),
            np.concatenate((self.cents, other.cents)),
        )

    @classmethod
    def empty(cls) -> QuoteRows:
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty)


@dataclass(frozen=True)
class QuoteFeed:
    """Every symbol reports once a second, at a moment of its own; row numbers follow time."""

    seed: int
    symbols: int
    start: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        return ticker_names(self.symbols)

    @property
    def slot(self) -> int:
        """The microseconds of a second that belong to one quote: no two quotes share a moment."""
        return SECOND // self.symbols

    @property
    def chunk(self) -> int:
        """Rows computed together: whole blocks of seconds of all symbols."""
        return BLOCK * self.symbols * max(1, CHUNK_ROWS // (BLOCK * self.symbols))

    def rows_between(self, first: int, end: int) -> QuoteRows:
        """The rows numbered from `first` up to and without `end`."""
        row = np.arange(first, end, dtype=np.int64)
        second, time, symbol = self._place(row)
        blocks = np.arange(second[0] // BLOCK, second[-1] // BLOCK + 1)
        everyone = np.arange(self.symbols)
        walks = self._walk(np.repeat(blocks, self.symbols), np.tile(everyone, len(blocks)))
        cents = walks[(second // BLOCK - blocks[0]) * self.symbols + symbol, second % BLOCK]
        return QuoteRows(time, symbol, cents)

    def rows_at(self, row: IntArray) -> QuoteRows:
        """The rows of the given numbers, wherever in the feed they are."""
        second, time, symbol = self._place(row)
        walks = self._walk(second // BLOCK, symbol)
        return QuoteRows(time, symbol, walks[np.arange(len(row)), second % BLOCK])

    def hashes(self, what: str, number: IntArray) -> HashArray:
        """Reproducible randomness: 64 bits for each number, unlike those for any other purpose."""
        tag = np.uint64((self.seed * 1_000_003 + int.from_bytes(what.encode(), "little")) % 2**64)
        return mix_hash(mix_hash(np.atleast_1d(tag)) + number.astype(np.uint64))

    def _place(self, row: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        second, place = np.divmod(row, self.symbols)
        symbol = self._order[(place + self._turn(second)) % self.symbols]
        # The last microsecond of a slot stays free, so that a made-up row can stand beside any quote.
        jitter = (self.hashes("moment", row) % np.uint64(self.slot - 1)).astype(np.int64)
        return second, self.start + second * SECOND + place * self.slot + jitter, symbol

    def _turn(self, second: IntArray) -> IntArray:
        """The rotation of the order of symbols in a second. There are few seconds and many rows, so it is computed per
        second."""
        first, last = int(second.min()), int(second.max())
        if last - first > len(second):
            return (self.hashes("turn", second) % np.uint64(self.symbols)).astype(np.int64)
        turns = self.hashes("turn", np.arange(first, last + 1)) % np.uint64(self.symbols)
        return turns.astype(np.int64)[second - first]

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.hashes("order", np.arange(self.symbols)), kind="stable").astype(np.int64)

    @cached_property
    def _base(self) -> IntArray:
        return 1_000 + (self.hashes("base", np.arange(self.symbols)) % np.uint64(49_000)).astype(np.int64)

    def _walk(self, block: IntArray, symbol: IntArray) -> IntArray:
        """Cents in each second of a block, one line per (block, symbol).

        Between two anchors the steps are summed and bent so that they arrive (a Brownian bridge); the anchors are a
        walk themselves. Reflected at a dollar and at twice the base price, all in whole numbers.
        """
        base = self._base[symbol]
        most = 1 + base // 4_000
        cell = (block * self.symbols + symbol)[:, None] * BLOCK + np.arange(BLOCK)
        steps = _uniform_integers(self.hashes("step", cell.reshape(-1)).reshape(cell.shape), most[:, None])
        path = np.cumsum(steps, axis=1) - steps
        total = path[:, -1] + steps[:, -1]
        begin, end = self._anchor(block, symbol), self._anchor(block + 1, symbol)
        bend = ((end - begin - total)[:, None] * np.arange(BLOCK)) // BLOCK
        height = base[:, None] + begin[:, None] + path + bend
        period = 4 * base[:, None]
        cents: IntArray = _MIN_CENTS + np.abs((height + period // 2) % period - period // 2)
        return cents

    def _anchor(self, block: IntArray, symbol: IntArray) -> IntArray:
        """The price of a symbol's walk at the beginning of a block: noise at scales that double, the slow ones larger.

        It is a sum over scales and not over all earlier blocks, so that every place of the feed is equally cheap to
        compute.
        """
        most = 32 * (1 + self._base[symbol] // 4_000)
        height = np.zeros(len(block), np.int64)
        for scale in range(_SCALES):
            knot = (block >> scale) * MAX_SYMBOLS + symbol
            here = _uniform_integers(self.hashes(f"knot{scale}", knot), most * (scale + 1))
            there = _uniform_integers(self.hashes(f"knot{scale}", knot + MAX_SYMBOLS), most * (scale + 1))
            height += here + ((there - here) * (block & ((1 << scale) - 1)) >> scale)
        return height


def mix_hash(number: HashArray) -> HashArray:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the number."""
    mixed = number * np.uint64(_GOLDEN)
    mixed ^= mixed >> np.uint64(30)
    mixed *= _MIXERS[0]
    mixed ^= mixed >> np.uint64(27)
    mixed *= _MIXERS[1]
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _uniform_integers(hashes: HashArray, most: IntArray) -> IntArray:
    """Whole numbers from -most to most."""
    return (hashes % (2 * most + 1).astype(np.uint64)).astype(np.int64) - most
