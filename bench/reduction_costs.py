"""Table 1 of the paper: what writing and reading a stream costs with each storage mechanism, in blocks
(oscar-archives-2004, 4.1.4), and in seconds as figures 9 and 10 draw it.

A stream has B blocks. A read at reduction r wants the share f = 1 - r of its rows; that share is the same everywhere in
the paper's experiments, so the sums over blocks and runs are products. The index is left out, as in the paper's plots:
an entry of 20 bytes is nothing beside a block.

    mechanism            writes                 reads
    strawman             B                      B
    copies on write      B * (1 + sum of rates) B * (rate of the next finer copy)
    modify on read       B, with a copy 2B      first 2B, second B, after vacuum B * f
    randomise then sort  B                      ceil(R * f) of every run of R blocks
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

RUN_LENGTHS = (10, 100, 500)
"""Blocks in a run of randomise-then-sort, as the experiments have them."""

COPY_RATES = (0.8, 0.6, 0.4, 0.2)
"""Rates of the copies on write: reduction levels of 20, 40, 60 and 80%."""

PAPER_BLOCKS = 108_000
PAPER_BLOCK_BYTES = 8_192
PAPER_ROWS = 20_000_000
PAPER_INSERT_SECONDS = 430.0
"""What the strawman took to write 20 million tuples: the measured parameter of figure 9."""
PAPER_COUNT_SECONDS = 20.0
"""What a count(*) over them took: the measured parameter of figure 10."""

_EPSILON = 1e-9
"""R * f in floating numbers may be above the whole number that it is."""


class Mechanism(StrEnum):
    """The storage mechanisms, in the states in which the paper measures them."""

    STRAWMAN = "strawman"
    COPIES = "copies on write"
    FIRST_READ = "modify on read, first read"
    SECOND_READ = "modify on read, second read"
    VACUUMED = "modify on read, after vacuum"
    RANDOMISED = "randomise then sort"


@dataclass(frozen=True, slots=True)
class Costs:
    """Table 1 for one stream."""

    blocks: float = PAPER_BLOCKS
    copies: Sequence[float] = COPY_RATES
    run: int = 100
    """Blocks in a run."""

    def writes(self, mechanism: Mechanism) -> float:
        """Blocks written to insert the stream."""
        match mechanism:
            case Mechanism.COPIES:
                return self.blocks * (1 + sum(self.copies))
            case Mechanism.VACUUMED:  # what arrives is written to the copy, too
                return 2 * self.blocks
            case _:
                return self.blocks

    def reads(self, mechanism: Mechanism, reduction: float) -> float:
        """Blocks read, and at the first read written, by a scan at a reduction."""
        kept = 1 - reduction
        match mechanism:
            case Mechanism.COPIES:
                return self.blocks * next_finer(self.copies, kept)
            case Mechanism.FIRST_READ:
                return self.blocks * (2 if reduction > 0 else 1)
            case Mechanism.VACUUMED:
                return self.blocks * kept
            case Mechanism.RANDOMISED:
                return self.blocks / self.run * math.ceil(self.run * kept - _EPSILON)
            case _:
                return self.blocks

    def insert_seconds(self, mechanism: Mechanism, strawman: float = PAPER_INSERT_SECONDS) -> float:
        """Figure 9: the time to insert, if the strawman takes so long."""
        return strawman * self.writes(mechanism) / self.blocks

    def read_seconds(self, mechanism: Mechanism, reduction: float, strawman: float = PAPER_COUNT_SECONDS) -> float:
        """Figure 10: the time of a count, if the strawman takes so long."""
        return strawman * self.reads(mechanism, reduction) / self.blocks


def next_finer(copies: Sequence[float], kept: float) -> float:
    """The least rate of a copy that has all rows of a sample, or 1, which the original has."""
    return min((each for each in copies if each >= kept - _EPSILON), default=1.0)
