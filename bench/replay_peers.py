"""Corrected answers and the list of what changed, by Errata and by those who recompute: Spark, DuckDB, and delta-rs.

All have the same stretch of the feed, and the answer of Q1 over it. A file of corrections comes: afterwards everyone
has the corrected answer and what changed, in files that stay. Who recomputes keeps the corrections beside the rows, and
lays the new answer beside the one before; delta-rs merges them into a table by day, has the days that they touch
recomputed, and merges the result into a table of answers, whose change feed tells the rest.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from pyspark.sql import functions as sf

from bench import duck
from bench import errata_under_test as errata
from bench.bucket_index import newest_commit
from bench.corrections import Corrections, write_corrections
from bench.evaluate_day import frontier_of
from bench.evaluate_plain import differs
from bench.evaluate_queries import Engine
from bench.measure import Grid, Metric, Outcome, Picture, Timings, talk
from bench.replay_day import Archives, Contender, Stretch, base_files, corrected_quotes, in_turns, swept
from bench.replay_delta import Delta
from bench.replay_queries import QUERIES
from bench.report import BLUE, GREEN, INK, ORANGE, figure
from errata.declare.site import Site
from errata.model.technique import Technique
from errata.read.changes import ChangelogReader

Q1 = QUERIES[0]

AHEAD_FROM = 1_000_000
"""Rows from which on nobody is to be faster."""
_SAID = f"{errata.SPARK_SCHEMA}, _op string, _old_price double"
_OTHER = "abs(n.mean - o.mean) > 1e-9 * abs(o.mean)"
"""Averages are sums in some order: so much they may differ and are the same."""

_DIFFERENCE = f"""\
SELECT coalesce(n.symbol, o.symbol) AS symbol, coalesce(n.window_start, o.window_start) AS window_start,
  o.mean AS old_mean, n.mean AS mean
FROM new AS n FULL JOIN old AS o ON n.symbol = o.symbol AND n.window_start = o.window_start
WHERE n.mean IS NULL OR o.mean IS NULL OR {_OTHER}
"""


@dataclass(frozen=True, slots=True)
class PeerAmounts:
    """How much of everything is measured."""

    stretches: Sequence[Stretch]
    corrections: int
    rounds: int
    warm_up: int = 1
    ahead: bool = False
    """Whether Errata is to be ahead of all others over the longest stretch."""


class Peer(Protocol):
    """Someone who corrects answers."""

    def correct(self, corrections: Corrections) -> None:
        """Correct the answer, and tell what changed, in files."""

    def changed(self) -> pa.Table:
        """What changed the last time: symbol, window_start, old_mean, mean."""


@dataclass
class Errata:
    """A sweep."""

    site: Site
    before: int = 0

    def correct(self, corrections: Corrections) -> None:
        self.before = newest_commit(self.site.catalog)
        errata.take_in_corrections(self.site, corrections.file)
        swept(self.site, Q1.name, Technique.AUTO)

    def changed(self) -> pa.Table:
        (told,) = ChangelogReader(self.site, Q1.name, self.before).read_new()
        rows = told.rows if isinstance(told.rows, pa.Table) else told.rows.toArrow()
        key, old, new = (rows[name].combine_chunks() for name in ("key", "old", "new"))
        return pa.table(
            {
                **{name: key.field(name) for name in ("symbol", "window_start")},
                "old_mean": old.field("mean"),
                "mean": new.field("mean"),
            }
        )


@dataclass
class Spark:
    """Plain Spark over the archive's files and all corrections that have come."""

    site: Site
    folder: Path
    corrections: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = base_files(self.site)
        self.text = Q1.query.recomputed(Engine.SPARK, frontier_of(self.site))
        self._answer()

    def correct(self, corrections: Corrections) -> None:
        self.corrections.append(str(corrections.file))
        self._answer()
        session, number = self.site.session(), len(self.corrections)
        for name, place in (("new", number), ("old", number - 1)):
            session.read.parquet(str(self._place("answer", place))).createOrReplaceTempView(name)
        session.sql(_DIFFERENCE).write.parquet(str(self._place("changed", number)))

    def _answer(self) -> None:
        session = self.site.session()
        rows = session.read.schema(errata.SPARK_SCHEMA).parquet(*self.files)
        if self.corrections:
            said = session.read.schema(_SAID).json(self.corrections)
            mended = said.select("time", "symbol", sf.col("price").alias("mended"))
            rows = rows.join(sf.broadcast(mended), ["time", "symbol"], "left").select(
                "time", "symbol", sf.coalesce("mended", "price").alias("price")
            )
        rows.createOrReplaceTempView("quotes")
        session.sql(self.text).write.parquet(str(self._place("answer", len(self.corrections))))

    def _place(self, what: str, number: int) -> Path:
        return self.folder / f"{what}-{number}"

    def changed(self) -> pa.Table:
        return pq.read_table(self._place("changed", len(self.corrections)))


@dataclass
class DuckDB:
    """The same by DuckDB."""

    site: Site
    folder: Path
    corrections: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.files = base_files(self.site)
        self.text = Q1.query.recomputed(Engine.DUCKDB, frontier_of(self.site))
        with duck.connect() as connection:
            self._answer(connection)

    def correct(self, corrections: Corrections) -> None:
        self.corrections.append(corrections.file)
        number = len(self.corrections)
        with duck.connect() as connection:
            self._answer(connection)
            for name, place in (("new", number), ("old", number - 1)):
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{self._place('answer', place)}'")
            connection.execute(f"COPY ({_DIFFERENCE}) TO '{self._place('changed', number)}' (FORMAT parquet)")

    def _answer(self, connection: duckdb.DuckDBPyConnection) -> None:
        corrected_quotes(connection, self.files, self.corrections)
        place = self._place("answer", len(self.corrections))
        connection.execute(f"COPY ({self.text}) TO '{place}' (FORMAT parquet)")

    def _place(self, what: str, number: int) -> Path:
        return self.folder / f"{what}-{number}.parquet"

    def changed(self) -> pa.Table:
        return pq.read_table(self._place("changed", len(self.corrections)))


# Measuring


OTHERS = {"Spark": "plain Spark, recompute and diff", "DuckDB": "DuckDB, recompute and diff", "delta-rs": "delta-rs"}


def peer_figures(amounts: PeerAmounts, archives: Archives, folder: Path) -> Outcome:
    """All of them over each stretch."""
    times = {each.rows: peer_times(amounts, archives, each, folder / str(each.rows)) for each in amounts.stretches}
    longest = max(times)
    metrics = []
    for rows, each in times.items():
        for name, told in OTHERS.items():
            goal = "> 1" if amounts.ahead and rows == longest else ">= 1" if rows >= AHEAD_FROM else None
            what = f"{amounts.corrections} corrections of {rows:,} rows: {told}, beside a sweep"
            metrics.append(Metric(what, each.ratio(name, "Errata"), "times as long", goal))
    return Outcome(metrics, [picture(amounts, times)], [grid(amounts, times)])


def peer_times(amounts: PeerAmounts, archives: Archives, stretch: Stretch, folder: Path) -> Timings:
    """Seconds of each of them for a file of corrections, over the same rows; all must tell the same changes."""
    count = amounts.warm_up + amounts.rounds
    rows = stretch.picked(count * amounts.corrections)
    # Every file has corrections from all over the stretch.
    some = [
        write_corrections(rows[number::count], folder / "corrections" / f"{number}.jsonl") for number in range(count)
    ]
    talk.print(f"{stretch.rows:,} rows and who corrects answers over them …")
    plain = archives.copy(stretch)
    text = Q1.query.recomputed(Engine.DUCKDB, frontier_of(plain))
    peers: dict[str, Peer] = {
        "Errata": Errata(archives.copy(stretch)),
        "Spark": Spark(plain, folder / "spark"),
        "DuckDB": DuckDB(plain, folder / "duckdb"),
        "delta-rs": Delta(base_files(plain), text, folder / "delta"),
    }
    contenders = {name: Contender(_correcting(peer, some)) for name, peer in peers.items()}
    times = in_turns(amounts.rounds, contenders, warm_up=amounts.warm_up)
    check_changes(peers)
    archives.clear()
    shutil.rmtree(folder)
    return times


def _correcting(peer: Peer, some: Sequence[Corrections]) -> Callable[[int], None]:
    return lambda number: peer.correct(some[number])


def check_changes(peers: Mapping[str, Peer]) -> None:
    """That all tell the same changes."""
    first, *others = ((name, _ordered(peer.changed())) for name, peer in peers.items())
    for name, rows in others:
        difference = differs(first[1], rows)
        if difference is not None or not rows.num_rows:
            raise AssertionError(f"{first[0]} and {name} do not tell the same changes: {difference}")


def _ordered(rows: pa.Table) -> pa.Table:
    moments = rows["window_start"].cast(pa.timestamp("us", "UTC"))
    return pa.table({**{name: rows[name] for name in ("symbol", "old_mean", "mean")}, "window_start": moments})


# What is told


def grid(amounts: PeerAmounts, times: Mapping[int, Timings]) -> Grid:
    names = ["Errata", *OTHERS]
    title = f"Q1 corrected, and what changed: {amounts.corrections} corrections, seconds, medians"
    return Grid(
        "peers", title, names, {f"{rows:,} rows": [each.median(name) for name in names] for rows, each in times.items()}
    )


def crossing(rows: Sequence[int], ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """At how many rows the others begin to take longer, on straight lines between what was measured; None if they do
    not change places."""
    ahead = [math.log(one / other) for one, other in zip(theirs, ours, strict=True)]
    for place in range(1, len(rows)):
        before, after = ahead[place - 1], ahead[place]
        if before < 0 <= after:
            low, high = math.log(rows[place - 1]), math.log(rows[place])
            return math.exp(low + (high - low) * before / (before - after))
    return None


def picture(amounts: PeerAmounts, times: Mapping[int, Timings]) -> Picture:
    """Seconds against rows, with the places where the lines cross."""

    def draw(axes: Axes) -> None:
        rows = sorted(times)
        ours = [times[each].median("Errata") for each in rows]
        axes.plot(rows, ours, color=INK, marker="o", linewidth=2, label="Errata")
        for name, colour in zip(OTHERS, (BLUE, ORANGE, GREEN), strict=True):
            theirs = [times[each].median(name) for each in rows]
            axes.plot(rows, theirs, color=colour, marker="s", label=name)
            at = crossing(rows, ours, theirs)
            if at is not None:
                height = math.exp(float(np.interp(math.log(at), np.log(rows), np.log(ours))))
                axes.plot([at], [height], marker="o", markersize=11, fillstyle="none", color=colour)
                axes.annotate(f"{figure(at / 1e6)}M", (at, height), textcoords="offset points", xytext=(8, -12))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("rows")
        axes.set_ylabel("seconds, median")
        axes.legend(frameon=False, fontsize=8)

    return Picture("peers", f"{amounts.corrections} corrections: the answer corrected, and what changed", draw)
