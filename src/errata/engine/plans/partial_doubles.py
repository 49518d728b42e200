"""Sums and spreads of floating point numbers that rows can be taken away from again, as SQL.

Numbers of common sizes are added up exactly: as multiples of 2^-40 in a decimal, and what is smaller than that apart,
where the few bits of each are added up without loss, too. Numbers from 2^53 on are apart as well: as long as there are
any, those that are gone may have left a trace, and then none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from errata.engine.plans.partial_kept import INFINITE, NAN, Kept, Part

_UNIT = 1 << 40
_HUGE = f"{1 << 53}D"
_NOISE = 2.0**-48
"""Of differences between sums of squares, how much of the sums is nothing but rounding."""
_FINEST = 2.0**-57
"""Differences of squares that are told exactly are told to this."""


@dataclass(frozen=True, slots=True)
class Finite:
    """A sum of doubles, by its parts."""

    units: str
    """In 2^-40."""
    rest: str
    """What is less than a unit of each, in units."""
    any_far: str
    """How many are too large for units."""
    far: str

    @property
    def text(self) -> str:
        return f"((CAST({self.units} AS DOUBLE) + {self.rest}) / {_UNIT}D + IF({self.any_far} > 0, {self.far}, 0D))"


def sum_of_finite(kept: Kept, pieces: Sequence[str], *, centred: bool = False) -> Finite:
    """The sum of those doubles that are numbers, such that any can be taken away again. Each is given in pieces."""

    def part(of_piece: Callable[[str], str], only_if: str = "", kind: str = "DOUBLE") -> str:
        row = " + ".join(map(of_piece, pieces))
        if of_piece is _units:
            return kept.made(Part(f"CAST({row} AS DECIMAL(38,0))", "DECIMAL(38,0)", centred, only_if))
        return kept.made(Part(row, kind, centred, only_if))

    any_far = part(lambda of: f"IF({_far(of)}, 1L, 0L)", kind="BIGINT")
    return Finite(part(_units), part(_rest), any_far, part(lambda of: f"IF({_far(of)}, {of}, 0D)", any_far))


def _common(of: str) -> str:
    return f"abs({of}) < {_HUGE}"


def _far(of: str) -> str:
    return f"abs({of}) >= {_HUGE} AND abs({of}) < {INFINITE}"


def _units(of: str) -> str:
    whole = f"CAST(CAST({of} AS BIGINT) AS DECIMAL(20,0)) * {_UNIT}BD"
    return f"IF({_common(of)}, {whole} + CAST(CAST({_below(of)} AS BIGINT) AS DECIMAL(20,0)), 0BD)"


def _rest(of: str) -> str:
    return f"IF({_common(of)}, {_below(of)} - CAST({_below(of)} AS BIGINT), 0D)"


def _below(of: str) -> str:
    """What comes after the point, in units."""
    return f"({of} - CAST({of} AS BIGINT)) * {_UNIT}D"


def spread_of_doubles(kept: Kept, of: str) -> str:
    """The standard deviation, from sums of values less a number near them, and of their squares."""
    number, count = f"CAST({of} AS DOUBLE)", kept.count(of)
    away = kept.first(0, f"{number} - {kept.centre(number, count)}")
    if kept.for_ever:
        once, squares = (kept.some(row, of, "DOUBLE", centred=True) for row in (away, f"{away} * {away}"))
        infinite = f"isnan({squares}) OR {squares} = {INFINITE}"
        rough = kept.then(1, _roughly(once, squares, count))
        variance = _but_noise(rough, f"{squares} / {count} * {_NOISE!r}D")
        if kept.corrected:
            traces = kept.some(f"{away} * {away}", of, "DOUBLE", centred=True, ever=True)
            kept.traced(of, squares, traces, f"{count} > 1", f"({rough} * {count})")
    else:
        infinite = f"{kept.part(f'IF(abs({number}) >= {INFINITE}, 1L, 0L)')} > 0"
        squared = sum_of_finite(kept, _square(kept, away), centred=True)
        variance = _variance(kept, sum_of_finite(kept, [away], centred=True), squared, count)
    spread = f"sqrt({variance} * ({count} / ({count} - 1)))"
    return f"CASE WHEN {count} <= 1 THEN NULL WHEN {infinite} THEN {NAN} ELSE {spread} END"


def _square(kept: Kept, of: str) -> list[str]:
    """A square in pieces that no digit is lost of (Dekker, 1971)."""
    high = kept.first(1, f"IF({_common(of)}, CAST(CAST({of} AS FLOAT) AS DOUBLE), {of})")
    low = f"({of} - {high})"
    pieces = (
        f"{high} * {high}",
        *(f"IF({_common(of)}, {each}, 0D)" for each in (f"2D * {high} * {low}", f"{low} * {low}")),
    )
    return [kept.first(2, piece) for piece in pieces]


def _roughly(once: str, squares: str, count: str) -> str:
    """How far values are from their mean, squared, on average."""
    return f"IF({count} > 0, ({squares} - {once} * {once} / {count}) / {count}, NULL)"


def _but_noise(value: str, noise: str) -> str:
    """What is left of two sums that are almost the same is only how they were rounded."""
    return f"IF({value} < {noise}, 0D, {value})"


def product(one: str, other: str) -> str:
    """Of two whole decimals, where it has few enough digits."""
    return f"IF(abs(CAST({one} AS DOUBLE) * CAST({other} AS DOUBLE)) < 1e37D, {one} * {other}, NULL)"


def _variance(kept: Kept, once: Finite, squares: Finite, count: str) -> str:
    """The same without loss, where the values are far enough apart from zero for units and not too large for them."""
    some = f"nullif({count}, 0L)"
    mean = kept.then(0, f"CAST({once.units} / {some} AS DECIMAL(38,0))")
    sums = kept.then(0, once.text), kept.then(0, squares.text)
    more = f"((CAST({once.units} - {mean} * {count} AS DOUBLE) + {once.rest}) / {some})"
    apart = f"CAST({squares.units} / {some} - {product(mean, mean)} / {_UNIT}BD AS DOUBLE)"
    crossed = f"(2D * CAST({mean} AS DOUBLE) + {more}) * {more} / {_UNIT}D"
    exact = kept.then(1, f"({apart} + {squares.rest} / {some} - {crossed}) / {_UNIT}D")
    rough = kept.then(1, _roughly(*sums, count))
    roughly = _but_noise(rough, f"{sums[1]} / {count} * {_NOISE!r}D")
    small = f"{squares.any_far} > 0 OR {once.any_far} > 0 OR {sums[1]} < 0.01D * {count}"
    return f"IF({small} OR {exact} IS NULL, {roughly}, {_but_noise(exact, f'{_FINEST!r}D')})"
