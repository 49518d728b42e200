"""`errata demo`: a project, and steps that run the commands as a person would type them, on a generated feed, each
with an explanation."""

from __future__ import annotations

import select
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from errata.errors import EXIT_QUARANTINE, ErrataError, RefusedError
from errata.read.tables import open_console

FIRST_FILE, SECOND_FILE, THIRD_FILE = (f"quotes-{begin:012d}.csv" for begin in (0, 100_000, 200_000))
WRONG_KEY = "symbol=IBM,time=2026-11-18T00:05:01.552137"
AROUND_OPTIONS = "--group symbol=IBM --from 2026-11-18T00:05:01 --to 2026-11-18T00:05:04"
ASK_COMMAND = (
    "errata ask --sql \"SELECT count(*) AS quotes, round(avg(price), 4) AS mean FROM sliding(quotes, '1 minute') "
    "WHERE symbol = 'IBM'\" --at 2026-11-18T00:06"
)

PROJECT_YAML = """\
project: demo
catalog: sqlite:///errata.db
warehouse: ./warehouse
spark: {master: "local[*]"}
streams:
  quotes:
    columns: {time: timestamp, symbol: string, price: "decimal(10,2)"}
    key: [time, symbol]       # what identifies a quote
    order: time               # when it counts
    group: [symbol]           # what one looks for
    slack: 5 seconds          # disorder that is put right by waiting
    retention: 15 minutes     # a day in earnest; here the feed is 25 minutes long
    bucket_rows: 20000        # half a million in earnest
    landing: {path: landing, settle: 0 seconds}   # where files land
queries:
  minutes: {sql: queries/minutes.sql, serve: {table: minutes}}
  lately: queries/lately.sql
  swings: queries/swings.sql
"""

MINUTES_SQL = """\
-- Of each company in each minute.
SELECT symbol, window_start AS minute, count(*) AS quotes, round(avg(price), 3) AS mean, min(price) AS low,
  max(price) AS high
FROM quotes
GROUP BY symbol, window(time, '1 minute')
"""

LAST_MINUTE_SQL = """\
-- Of the last minute, at every instant.
SELECT symbol, count(*) AS quotes, round(avg(price), 3) AS mean
FROM sliding(quotes, '1 minute')
WHERE symbol IN ('GE', 'IBM')
GROUP BY symbol
"""

SWINGS_SQL = """\
-- The minutes in which a price has moved by more than 0.8 percent.
SELECT symbol, minute, low, high, round(100 * (high - low) / low, 2) AS percent
FROM minutes
WHERE high - low > 0.008 * low
"""

CORRECTIONS_CSV = """\
time,symbol,price,_op,_old_price
2026-11-18T00:05:01.552137,IBM,203.40,replace,203.44
2026-11-18T00:05:02.904677,IBM,,delete,203.41
2026-11-18T00:05:03.724529,IBM,203.49,replace,999.99
"""

FILES: Mapping[str, str] = {
    "errata.yaml": PROJECT_YAML,
    "corrections.csv": CORRECTIONS_CSV,
    "queries/minutes.sql": MINUTES_SQL,
    "queries/lately.sql": LAST_MINUTE_SQL,
    "queries/swings.sql": SWINGS_SQL,
}
"""The files of the project."""


@dataclass(frozen=True, slots=True)
class DemoStep:
    """An explanation, and the commands of one step."""

    title: str
    words: str
    commands: Sequence[str] = ()
    beside: str | None = None
    """A command that runs in another window during the step, and is interrupted after its first output."""
    edits: Mapping[str, str] = field(default_factory=dict)
    """Files that are rewritten before the step."""


STEPS = (
    DemoStep(
        "A feed",
        "A stock exchange sends quotes, 200 a second, in three files. As in life, some come out of order, some come "
        "far too late, and some are bad.",
        [
            "errata generate quotes --rows 300000 --rows-per-file 100000 --disorder 0.02 --late 10 --mistakes 12 "
            "--out feed"
        ],
    ),
    DemoStep(
        "Declare it",
        "The stream is declared in errata.yaml, and three queries: one over the stream, one over what slides along "
        "it, and one over the results of the first. Applying shows what would be made, and makes it.",
        [
            "cat errata.yaml",
            *(f"cat queries/{name}.sql" for name in ("minutes", "lately", "swings")),
            "errata apply --yes",
        ],
    ),
    DemoStep(
        "Take it in",
        "The first file is sorted, cut into buckets and committed, all or nothing. Bad rows are set aside, each with "
        "its place, what it said and why it was not taken.",
        [f"errata ingest quotes feed/{FIRST_FILE}", "errata quarantine ls quotes"],
    ),
    DemoStep(
        "The first answers",
        "Every query is answered as far as the stream is stable. The answers are kept, and reading them works nothing "
        "out.",
        ["errata run", "errata results lately", "errata results swings"],
    ),
    DemoStep(
        "More comes, and the answers move",
        "The second file lands. `errata run` does all that is due: it takes the file in, and takes the answers further "
        "by what has come and what has expired, not from the beginning. Five rows that the first file should have had "
        "come now: they are put into history, and the results that should have had them are corrected first.",
        [f"mv feed/{SECOND_FILE} landing/", "errata run", "errata results lately", "errata results swings"],
    ),
    DemoStep(
        "The same again",
        "A batch that was taken in before changes nothing, and a run with nothing to do says so. Whatever is killed "
        "half-way can simply be run again.",
        [f"errata ingest quotes landing/taken/{SECOND_FILE}", "errata run"],
    ),
    DemoStep(
        "The archive",
        "A bucket is a file of consecutive rows. The catalog knows what each one can hold, so a question about three "
        "seconds opens one, and never the rest.",
        ["errata archive ls quotes"],
    ),
    DemoStep(
        "A correction arrives",
        "The exchange says that one price was wrong and that another quote never was. It is mistaken about a third: "
        "the old value that it claims, in _old_price, is not the one that is there. The answers have long gone on. "
        "What would it take to put them right?",
        ["cat corrections.csv", "errata ingest quotes corrections.csv", "errata sweep --plan"],
    ),
    DemoStep(
        "The correction reaches the answers",
        "A sweep makes the corrections part of history, and corrects the results that they invalidate: of some "
        "thousand it looks at a handful. A corrected minute is a correction for `swings`, which reads the minutes. The "
        "wrong correction is set aside.",
        ["errata sweep", "errata changes minutes --since 15"],
    ),
    DemoStep(
        "Why?",
        "Anyone can ask how a number came about: every value that it has had, when, because of what, and the rows "
        "behind it then and now.",
        ['errata why minutes "symbol=IBM,minute=2026-11-18T00:05"'],
    ),
    DemoStep(
        "Before and after",
        "The row has two versions now, and each tells where it came from. Who reads as of commit 14 still gets the old "
        "price, the quote that never was, and the answers of then, today and in a week.",
        [
            f"errata history quotes {WRONG_KEY}",
            f"errata archive scan quotes {AROUND_OPTIONS} --as-of 14",
            f"errata archive scan quotes {AROUND_OPTIONS}",
            f"{ASK_COMMAND} --as-of 14",
            ASK_COMMAND,
        ],
    ),
    DemoStep(
        "For whoever reads tables",
        "`minutes` is served as a table of the catalog's database, too, corrected in the same commit. And in doubt a "
        "range of results is worked out again from history, and found to be right.",
        [
            "sqlite3 errata.db \"SELECT minute, quotes, mean FROM minutes WHERE symbol = 'IBM' "
            'ORDER BY minute DESC LIMIT 3"',
            "errata replay --query minutes --from 2026-11-18T00:00 --to 2026-11-18T00:10",
        ],
    ),
    DemoStep(
        "Changes as they come",
        "Who wants to hear of changes follows them. In another window somebody waits for the next swing, while the "
        "third file lands.",
        [f"mv feed/{THIRD_FILE} landing/", "errata run"],
        beside="errata changes swings --since 18 --follow",
    ),
    DemoStep(
        "A query is edited",
        "Now 0.9 percent is what counts as a swing. Until the new form is answered, the results are those of the old "
        "one, and that is told. Then one commit switches, and the difference is published.",
        [
            "cat queries/swings.sql",
            "errata apply --yes",
            "errata results swings",
            "errata run",
            "errata results swings",
            "errata changes swings --since 27",
        ],
        edits={"queries/swings.sql": SWINGS_SQL.replace("0.8", "0.9").replace("0.008", "0.009")},
    ),
    DemoStep(
        "What a plan tells",
        "Much is known before a row is read: when results come and whether they ever go, what is kept to answer, and "
        "what a correction would touch.",
        ["errata explain minutes"],
    ),
    DemoStep(
        "Keeping fit",
        "Compaction works corrections into the buckets that they touch, and leaves all others alone. What is more than "
        "15 minutes behind the stable point goes, by whole buckets. The doctor looks at every file and every row.",
        ["errata archive compact --all", "errata archive age-out quotes", "errata doctor"],
    ),
    DemoStep(
        "How it stands, and what happened",
        "Every step was a commit that says who made it and what it did. These are the last five.",
        ["errata status", "errata log --last 5"],
    ),
)


# `errata demo`.

WAIT_SECONDS = 120
"""Seconds to wait for the first output of a command in another window."""

_COMMAND_PROGRAM = "import sys; from errata.cli import main; sys.exit(main())"


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Work in this folder and leave all there.", show_default=False),
    ] = None,
) -> int:
    """See a stream taken in, queries kept answered, the past corrected, and a query edited, in under three minutes."""
    if keep is not None:
        return _play_in(keep)
    with tempfile.TemporaryDirectory(prefix="errata-demo-") as folder:
        code = _play_steps(Path(folder))
    if code == 0:
        _print_text(
            "Everything was in a temporary folder and is gone. `errata demo --keep DIR` leaves it to play with;"
        )
        _print_text("`errata init` begins a project of your own.")
    return code


def _play_in(folder: Path) -> int:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RefusedError(
            f"{folder} is not an empty folder", why="the demo overwrites nothing", how="name a folder that is not there"
        )
    folder.mkdir(parents=True, exist_ok=True)
    code = _play_steps(folder.resolve())
    if code == 0:
        _print_text(f"Everything is in {folder}. Go there and try: errata results minutes --format csv | grep IBM")
    return code


def _play_steps(folder: Path) -> int:
    """Run the steps in a folder."""
    _print_text("Errata on a made-up feed, step by step. After each $ stands what one would type.")
    with chdir(folder):
        Path("landing").mkdir()
        _write_files(FILES)
        for number, step in enumerate(STEPS, 1):
            _print_title(f"{number}/{len(STEPS)}  {step.title}", step.words)
            _write_files(step.edits)
            with nullcontext() if step.beside is None else _run_beside(step.beside):
                for command in step.commands:
                    _print_command(command)
                    words = shlex.split(command)
                    _RUNNERS[words[0]](words[1:])
    sys.stdout.write("\n")
    return 0


def _write_files(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def _run_errata(words: Sequence[str]) -> None:
    # The door itself, so that the demo is what a person would see; it is loaded by the time that it is needed.
    from errata.cli.main import main  # noqa: PLC0415

    code = main(["--project", ".", *words])
    if code not in (0, EXIT_QUARANTINE):
        raise ErrataError(f"the demo ends here: `errata {shlex.join(words)}` ended with exit code {code}")


def _run_cat(words: Sequence[str]) -> None:
    for name in words:
        sys.stdout.write(Path(name).read_text(encoding="utf-8"))


def _run_mv(words: Sequence[str]) -> None:
    source, target = words
    shutil.move(source, target)


def _run_sqlite3(words: Sequence[str]) -> None:
    database, statement = words
    with closing(sqlite3.connect(database)) as connection:
        for row in connection.execute(statement):
            _print_text("|".join(str(value) for value in row))


_RUNNERS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "errata": _run_errata,
    "cat": _run_cat,
    "mv": _run_mv,
    "sqlite3": _run_sqlite3,
}


@contextmanager
def _run_beside(command: str) -> Iterator[None]:
    """Run a command in another window until it has printed something; then interrupt it and show its output."""
    _print_command(f"{command}    # in another window")
    words = [sys.executable, "-c", _COMMAND_PROGRAM, "--project", ".", *shlex.split(command)[1:]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, encoding="utf-8") as other:  # noqa: S603
        try:
            yield
            if not _has_output(other):
                raise ErrataError(f"the demo ends here: `{command}` has told nothing for {WAIT_SECONDS} seconds")
            other.send_signal(signal.SIGINT)
            told, _ = other.communicate(timeout=WAIT_SECONDS)
        finally:
            other.kill()
    if other.returncode != 0:
        raise ErrataError(f"the demo ends here: `{command}` ended with exit code {other.returncode}")
    _print_text("\nMeanwhile, in the other window:")
    _print_text(f"{told}^C")


def _has_output(other: subprocess.Popen[str]) -> bool:
    """Whether it prints something before WAIT_SECONDS have passed."""
    if other.stdout is None:
        raise AssertionError("it was started with a pipe")
    return bool(select.select([other.stdout], [], [], WAIT_SECONDS)[0])


def _print_title(title: str, words: str) -> None:
    screen = open_console(sys.stdout)
    screen.print()
    screen.print(title, style="bold cyan")
    screen.print(words, width=min(screen.width, 100))


def _print_command(text: str) -> None:
    screen = open_console(sys.stdout)
    screen.print(f"\n$ {text}", style="bold", soft_wrap=True)
    sys.stdout.flush()


def _print_text(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
