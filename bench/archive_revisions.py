"""Corrections of a day of quotes: applying them, reading through them, and compaction, each beside plain Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from bench import errata_under_test as errata
from bench.archive_day import Amounts, Day, archived, plain, read_all, touched_by, with_corrections
from bench.corrections import Corrections, spread, write_corrections
from bench.measure import Metric, Outcome, Picture, Timings, interleaved, talk
from bench.report import bars
from errata.archive.upkeep.compaction import CompactionReport
from errata.generate.feed import IntArray
from errata.generate.quotes import QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.bucket import Bucket

HOURS = 24
"""Parts of the day; corrections of one of them show that compaction leaves the others alone."""


def revision_figures(amounts: Amounts, folder: Path) -> Outcome:
    """All figures of corrections of a day."""
    talk.print(f"a day of {amounts.day:,} quotes …")
    day = archived(amounts, folder)
    many = write_corrections(spread(amounts.corrections, 0, amounts.day), folder / "corrections" / "many.jsonl")
    talk.print(f"{amounts.corrections:,} corrections …")
    applied = many_times(day, many)
    talk.print(f"{amounts.few} corrections …")
    few = few_times(day)
    talk.print("compaction of an hour …")
    hour = one_hour(day)
    talk.print(f"scans through {amounts.corrections:,} corrections …")
    corrected = with_corrections(day, many)
    through, after, seconds = scan_times(corrected, many)
    talk.print("compaction of the day …")
    whole = compaction_times(corrected)
    metrics = [
        *many_metrics(amounts, applied),
        *few_metrics(amounts, few),
        *scan_metrics(amounts, through, after, seconds),
        *hour_metrics(amounts, *hour),
        *compaction_metrics(whole),
    ]
    return Outcome(metrics, [many_picture(amounts, applied)])


# Applying


def many_times(day: Day, many: Corrections) -> Timings:
    """Corrections spread over the day, from their file to the end; a scan of what they touch; as many new rows."""
    amounts = day.amounts
    spec = QuoteSpec(rows=amounts.corrections, after=amounts.day, format=FileFormat.JSON)
    new = generate_quotes(spec, day.folder.with_name("new")).files
    corrected, appended = day.copies("corrected"), day.copies("appended")
    touched = touched_by(errata.buckets_of(corrected[0]), many)
    return day.in_turns(
        correct=lambda number: errata.correct(corrected[number], many.file),
        scan=lambda number: read_all(plain(corrected[number], touched)),
        append=lambda number: errata.take_in(appended[number], new),
    )


_SCAN_AND_APPEND = {"scan": 1.0, "append": 1.0}


def many_metrics(amounts: Amounts, times: Timings) -> list[Metric]:
    what, goal = f"{amounts.corrections:,} corrections", "<= 1.5"
    beside = times.beside_sum("correct", _SCAN_AND_APPEND)
    return [
        Metric(f"{what}, beside a plain scan and an append of as many", beside, "times", goal),
        Metric(f"{what}, from a file until all are applied", times.median("correct"), "s"),
        Metric("plain Spark scan of the buckets that they touch", times.median("scan"), "s"),
        Metric(f"append of {amounts.corrections:,} rows", times.median("append"), "s"),
    ]


def many_picture(amounts: Amounts, times: Timings) -> Picture:
    def draw(axes: Axes) -> None:
        parts = times.median("scan") + times.median("append")
        values = {"corrections": times.median("correct"), "plain scan and append": parts}
        bars(axes, values, "seconds, median", goal=1.5 * parts)

    return Picture("corrections", f"{amounts.corrections:,} corrections of {amounts.day:,} quotes", draw)


def few_times(day: Day) -> Timings:
    """A few corrections, in as many buckets or in one; with the file taken in, and only applied."""
    amounts = day.amounts
    files = day.folder.with_name("corrections")
    apart = write_corrections(far_apart(amounts), files / "apart.jsonl")
    together = write_corrections(spread(amounts.few, 0, amounts.bucket_rows // 2), files / "together.jsonl")
    sites = {name: day.copies(name) for name in ("apart", "together", "read")}
    waiting = {
        name: day.copies(f"{name}-waiting", partial(errata.take_in_corrections, file=each.file))
        for name, each in (("apart", apart), ("together", together))
    }
    everything = errata.buckets_of(sites["read"][0])
    lie = [len(touched_by(everything, each)) for each in (apart, together)]
    if lie != [amounts.few, 1]:
        raise AssertionError(f"the corrections are to lie in {amounts.few} buckets and in one, they lie in {lie}")
    middle = everything[len(everything) // 2 :][:1]
    read_all(plain(sites["read"][0], middle))
    return day.in_turns(
        apart=lambda number: errata.correct(sites["apart"][number], apart.file),
        together=lambda number: errata.correct(sites["together"][number], together.file),
        apply_apart=lambda number: errata.apply_corrections(waiting["apart"][number], amounts.few),
        apply_together=lambda number: errata.apply_corrections(waiting["together"][number], amounts.few),
        read=lambda number: read_all(plain(sites["read"][number], middle)),
        commit=lambda number: errata.commit_nothing(sites["read"][number]),
    )


def far_apart(amounts: Amounts) -> IntArray:
    """The middle row of each of so many parts of the day, each part longer than a bucket."""
    return (2 * np.arange(amounts.few) + 1) * amounts.day // (2 * amounts.few)


_READS_AND_COMMIT = {"read": 3.0, "commit": 1.0}


def few_metrics(amounts: Amounts, times: Timings) -> list[Metric]:
    metrics = []
    for name, where in (("apart", f"in {amounts.few} buckets"), ("together", "in one bucket")):
        what = f"{amounts.few} corrections {where}"
        beside = times.beside_sum(name, _READS_AND_COMMIT)
        applying = times.beside_sum(f"apply_{name}", _READS_AND_COMMIT)
        metrics += [
            Metric(f"{what}, beside 3 plain reads of a bucket and a commit", beside, "times", "<= 1"),
            Metric("the same, once their file has been taken in", applying, "times"),
            Metric(f"{what}, from a file until all are applied", 1_000 * times.median(name), "ms"),
        ]
    read, commit = (1_000 * times.median(name) for name in ("read", "commit"))
    return [*metrics, Metric("plain Spark read of one bucket", read, "ms"), Metric("commit of nothing", commit, "ms")]


# Reading


def scan_times(corrected: Day, many: Corrections) -> tuple[Timings, Timings, float]:
    """Scans of everything as of before the corrections and as of now; the same after a compaction; its seconds."""
    site = corrected.copies("scans")[0]
    was = read_all(errata.scanned(site, as_of=corrected.commit))

    def now(_: int) -> None:
        found = read_all(errata.scanned(site))
        expected = was["prices"] + many.change
        if found["rows"] != was["rows"] or not math.isclose(found["prices"], expected, rel_tol=1e-9):
            raise AssertionError(f"{found} is not what the corrections make of {was}")

    def before(_: int) -> None:
        if read_all(errata.scanned(site, as_of=corrected.commit))["rows"] != was["rows"]:
            raise AssertionError("an old commit has lost rows")

    amounts = corrected.amounts
    rounds, warm_up = 2 * amounts.rounds + 1, amounts.warm_up
    through = interleaved(rounds, warm_up=warm_up, now=now, before=before)
    compacted = interleaved(1, warm_up=0, compact=lambda _: errata.compact_all(site))
    after = interleaved(rounds, warm_up=warm_up, now=now, before=before)
    corrected.clear()
    return through, after, compacted.median("compact")


def scan_metrics(amounts: Amounts, through: Timings, after: Timings, seconds: float) -> list[Metric]:
    what = f"scan of {amounts.day:,} rows"
    return [
        Metric(
            f"{what} through {amounts.corrections:,} corrections", through.ratio("now", "before"), "times", "<= 1.25"
        ),
        Metric("the same after compaction", after.ratio("now", "before"), "times", "<= 1.05"),
        Metric(f"{what} without any", through.median("before"), "s"),
        Metric("the compaction in between", seconds, "s"),
    ]


# Compaction


def one_hour(day: Day) -> tuple[list[Bucket], CompactionReport, list[Bucket]]:
    """What there was, what compaction did after corrections of one hour, and the buckets that it had to rewrite."""
    hour = day.amounts.day // HOURS
    rows = spread(max(1, day.amounts.corrections // HOURS), 12 * hour, 13 * hour)
    corrections = write_corrections(rows, day.folder.with_name("corrections") / "hour.jsonl")
    site = day.copies("hour")[0]
    everything = errata.buckets_of(site)
    errata.correct(site, corrections.file)
    report = errata.compact_all(site)
    day.clear()
    return everything, report, touched_by(everything, corrections)


def hour_metrics(
    amounts: Amounts, everything: Sequence[Bucket], report: CompactionReport, touched: Sequence[Bucket]
) -> list[Metric]:
    """What was rewritten and what had to be. Merging buckets that are not half full is work that is due as well."""
    replaced = {bucket.bucket_id: bucket for bucket in report.replaced}
    wanted = {bucket.bucket_id for bucket in touched}
    half_full = {number for number, bucket in replaced.items() if 2 * bucket.rows >= amounts.bucket_rows}
    return [
        Metric("corrections of one hour: buckets rewritten without need", len(half_full - wanted), "buckets", "<= 0"),
        Metric("the same: buckets not rewritten that needed it", len(wanted - replaced.keys()), "buckets", "<= 0"),
        Metric(f"the same: buckets rewritten, of {len(everything):,}", len(replaced), "buckets"),
    ]


def compaction_times(corrected: Day) -> Timings:
    """The day with its corrections worked in, beside plain Spark that reads and writes the same files."""
    sites = corrected.copies("compacted")
    found = errata.buckets_of(sites[0])

    def compact(number: int) -> None:
        if len(errata.compact_all(sites[number]).replaced) != len(found):
            raise AssertionError("corrections all over the day touch all of its buckets")

    def spark(number: int) -> None:
        plain(sites[number], found).write.parquet(str(corrected.scratch / f"plain-{number}"))

    return corrected.in_turns(compact=compact, spark=spark)


def compaction_metrics(times: Timings) -> list[Metric]:
    beside = times.ratio("compact", "spark")
    return [
        Metric("compaction of the day, beside plain Spark that reads and writes it", beside, "times", "<= 1.5"),
        Metric("compaction of the day", times.median("compact"), "s"),
        Metric("plain Spark: read, write", times.median("spark"), "s"),
    ]
