"""`errata demo`: the commands as a person would type them, on a made-up feed, each with a word of explanation."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from errata.errors import EXIT_QUARANTINE, ErrataError, Refused
from errata.serve.formats import console_on

ROWS = 300_000
PER_FILE = ROWS // 2
FIRST, SECOND = "feed/quotes-000000000000.csv", f"feed/quotes-{PER_FILE:012d}.csv"
BORDER = ("--group", "symbol=IBM", "--from", "2026-11-18T00:12:27", "--to", "2026-11-18T00:12:33")

PROJECT = """\
project: demo
catalog: sqlite:///errata.db
warehouse: ./warehouse
spark: {master: "local[*]"}
streams:
  quotes:
    columns: {time: timestamp, symbol: string, price: double}
    key: [time, symbol]       # what identifies a quote
    order: time               # when it counts
    group: [symbol]           # what one looks for
    slack: 5 seconds          # disorder that is put right by waiting
    retention: 15 minutes     # a day in earnest; here the feed is 25 minutes long
    bucket_rows: 20000        # half a million in earnest
queries:
  ibm_1m: {sql: queries/ibm_1m.sql}
"""

QUERY = """\
SELECT symbol, window_start, count(*) AS quotes, round(avg(price), 4) AS mean
FROM quotes
WHERE symbol = 'IBM'
GROUP BY symbol, window(time, '1 minute')
"""

CORRECTIONS = """\
time,symbol,price,_op,_old_price
2026-11-18T00:05:01.552137,IBM,203.40,replace,203.44
2026-11-18T00:05:02.904677,IBM,,delete,203.41
2026-11-18T00:05:03.724529,IBM,203.49,replace,999.99
"""
WRONG = "symbol=IBM,time=2026-11-18T00:05:01.552137"
MOMENT = ("--at", "2026-11-18T00:07")
AROUND = ("--group", "symbol=IBM", "--from", "2026-11-18T00:05:01", "--to", "2026-11-18T00:05:04")


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, in words, and the commands that do it."""

    title: str
    words: str
    commands: Sequence[Sequence[str]] = ()
    shows: str | None = None
    """A file that is shown first."""


STEPS = (
    Step(
        "A feed",
        "A stock exchange sends quotes, 200 a second, in two files. As in life, some come out of order, some come "
        "far too late, and some are bad.",
        [
            [
                *("generate", "quotes", "--rows", str(ROWS), "--rows-per-file", str(PER_FILE)),
                *("--disorder", "0.02", "--late", "200", "--mistakes", "12", "--out", "feed"),
            ]
        ],
    ),
    Step(
        "Declare it",
        "A stream is declared in errata.yaml. Applying shows what would be made, and makes it.",
        [["apply", "--yes"]],
        shows="errata.yaml",
    ),
    Step(
        "Take it in",
        "The first file is sorted, cut into buckets and committed, all or nothing. Bad rows are set aside, the rest "
        "goes in. (Spark starts first, which takes some seconds.)",
        [["ingest", "quotes", FIRST]],
    ),
    Step(
        "What was wrong",
        "Each bad row is kept with its place, what it said, and why it was not taken.",
        [["quarantine", "ls", "quotes"]],
    ),
    Step(
        "The second file",
        "It brings rows that the first should have had. They lie behind the stable point, so they count as corrections "
        "of the past: they are numbered and kept as pending revisions.",
        [["ingest", "quotes", SECOND]],
    ),
    Step(
        "The same again",
        "A batch that was taken in before changes nothing. Whatever is killed half-way can simply be run again.",
        [["ingest", "quotes", SECOND]],
    ),
    Step(
        "The archive",
        "A bucket is a file of consecutive rows. The catalog knows what each one can hold, so a question about six "
        "seconds opens a bucket or two, and never the rest.",
        [["archive", "ls", "quotes"]],
    ),
    Step(
        "What was known when",
        "Every commit can be read again. One question, around the end of the first file: as of commit 2, with only "
        "that file taken in, and as of commit 3.",
        [
            ["archive", "scan", "quotes", *BORDER, "--as-of", "2"],
            ["archive", "scan", "quotes", *BORDER, "--as-of", "3"],
        ],
    ),
    Step(
        "Late rows find their place",
        "Applying what is pending puts the late rows into history, in one commit. Rows that say what is there already "
        "are dropped, and nothing is rewritten: corrections lie over the buckets.",
        [["revise", "quotes"]],
    ),
    Step(
        "A correction arrives",
        "The exchange says that one price was wrong and that another quote never was. It is mistaken about a third: "
        "the old value that it claims, in _old_price, is not the one that is there. First the story of the first one, "
        "before anything is changed.",
        [["history", "quotes", WRONG], ["revise", "quotes", "corrections.csv"]],
        shows="corrections.csv",
    ),
    Step(
        "Before and after",
        "The row has two versions now, and each tells where it came from. Who reads as of commit 4 still gets the old "
        "price and the quote that never was, today and in a week.",
        [
            ["history", "quotes", WRONG],
            ["archive", "scan", "quotes", *AROUND, "--as-of", "4"],
            ["archive", "scan", "quotes", *AROUND],
        ],
    ),
    Step(
        "A query",
        "The average price of IBM in each minute is declared, too. Its plan tells much before a row is read: when "
        "results come and whether they ever go, what has to be kept to answer it, and what a correction would touch.",
        [["explain", "ibm_1m"]],
        shows="queries/ibm_1m.sql",
    ),
    Step(
        "Its answer, before and after",
        "The answer at 00:07, as it was known in commit 4, and as it is known now: the minute that begins at 00:05 has "
        "a quote less and another average.",
        [["ask", "ibm_1m", *MOMENT, "--as-of", "4"], ["ask", "ibm_1m", *MOMENT]],
    ),
    Step(
        "Keeping fit",
        "Compaction works corrections into the buckets that they touch, and leaves all others alone. The doctor then "
        "looks at every file and every row.",
        [["archive", "compact", "--all"], ["doctor"]],
    ),
    Step(
        "Ageing",
        "The declaration keeps 15 minutes behind the stable point. What is older goes, by whole buckets; readers of "
        "earlier commits still see it until the horizon has passed.",
        [["archive", "age-out", "quotes"]],
    ),
    Step("How it stands", "What there is now, and what waits.", [["status"]]),
    Step("What happened", "Every step is a commit that says who made it and what it did.", [["log"]]),
)


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Work in this folder and leave all there.", show_default=False),
    ] = None,
) -> int:
    """See a stream taken in, archived, corrected, queried, aged and read back, in under two minutes."""
    if keep is not None:
        return _in_kept(keep)
    with tempfile.TemporaryDirectory(prefix="errata-demo-") as folder:
        code = _play(Path(folder))
    if code == 0:
        _tell("Everything was in a temporary folder and is gone. `errata demo --keep DIR` leaves it to play with;")
        _tell("`errata init` begins a project of your own.")
    return code


def _in_kept(folder: Path) -> int:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(
            f"{folder} is not an empty folder", why="the demo overwrites nothing", how="name a folder that is not there"
        )
    folder.mkdir(parents=True, exist_ok=True)
    code = _play(folder.resolve())
    if code == 0:
        _tell(f"Everything is in {folder}. Go there and try: errata archive scan quotes --format csv | head")
    return code


def _play(folder: Path) -> int:
    """Go through the steps in a folder."""
    _tell("Errata on a made-up feed, step by step. After each $ stands what one would type.")
    (folder / "errata.yaml").write_text(PROJECT, encoding="utf-8")
    (folder / "corrections.csv").write_text(CORRECTIONS, encoding="utf-8")
    (folder / "queries").mkdir()
    (folder / "queries" / "ibm_1m.sql").write_text(QUERY, encoding="utf-8")
    with chdir(folder):
        for number, step in enumerate(STEPS, 1):
            _head(f"{number}/{len(STEPS)}  {step.title}", step.words)
            if step.shows is not None:
                _command(f"cat {step.shows}")
                sys.stdout.write(Path(step.shows).read_text(encoding="utf-8"))
            for command in step.commands:
                _command(f"errata {' '.join(command)}")
                _run(command)
    sys.stdout.write("\n")
    return 0


def _run(command: Sequence[str]) -> None:
    # The door itself, so that the demo is what a person would see; it is loaded by the time that it is needed.
    from errata.cli.main import main  # noqa: PLC0415

    code = main(["--project", ".", *command])
    if code not in (0, EXIT_QUARANTINE):
        raise ErrataError(f"the demo ends here: `errata {' '.join(command)}` ended with exit code {code}")


def _head(title: str, words: str) -> None:
    screen = console_on(sys.stdout)
    screen.print()
    screen.print(title, style="bold cyan")
    screen.print(words, width=min(screen.width, 100))


def _command(text: str) -> None:
    screen = console_on(sys.stdout)
    screen.print(f"\n$ {text}", style="bold", soft_wrap=True)
    sys.stdout.flush()


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
