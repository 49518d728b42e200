"""What `errata demo` goes through: its project, and each step with a word of explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FIRST, SECOND, THIRD = (f"quotes-{begin:012d}.csv" for begin in (0, 100_000, 200_000))
WRONG = "symbol=IBM,time=2026-11-18T00:05:01.552137"
AROUND = "--group symbol=IBM --from 2026-11-18T00:05:01 --to 2026-11-18T00:05:04"
ASKED = (
    "errata ask --sql \"SELECT count(*) AS quotes, round(avg(price), 4) AS mean FROM sliding(quotes, '1 minute') "
    "WHERE symbol = 'IBM'\" --at 2026-11-18T00:06"
)

PROJECT = """\
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

MINUTES = """\
-- Of each company in each minute.
SELECT symbol, window_start AS minute, count(*) AS quotes, round(avg(price), 3) AS mean, min(price) AS low,
  max(price) AS high
FROM quotes
GROUP BY symbol, window(time, '1 minute')
"""

LATELY = """\
-- Of the last minute, at every instant.
SELECT symbol, count(*) AS quotes, round(avg(price), 3) AS mean
FROM sliding(quotes, '1 minute')
WHERE symbol IN ('GE', 'IBM')
GROUP BY symbol
"""

SWINGS = """\
-- The minutes in which a price has moved by more than 0.8 percent.
SELECT symbol, minute, low, high, round(100 * (high - low) / low, 2) AS percent
FROM minutes
WHERE high - low > 0.008 * low
"""

CORRECTIONS = """\
time,symbol,price,_op,_old_price
2026-11-18T00:05:01.552137,IBM,203.40,replace,203.44
2026-11-18T00:05:02.904677,IBM,,delete,203.41
2026-11-18T00:05:03.724529,IBM,203.49,replace,999.99
"""

FILES: Mapping[str, str] = {
    "errata.yaml": PROJECT,
    "corrections.csv": CORRECTIONS,
    "queries/minutes.sql": MINUTES,
    "queries/lately.sql": LATELY,
    "queries/swings.sql": SWINGS,
}
"""What a person would have written."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, in words, and the commands that do it."""

    title: str
    words: str
    commands: Sequence[str] = ()
    beside: str | None = None
    """A command that goes on in another window meanwhile, and is interrupted when it has told something."""
    edits: Mapping[str, str] = field(default_factory=dict)
    """Files that are written anew before."""


STEPS = (
    Step(
        "A feed",
        "A stock exchange sends quotes, 200 a second, in three files. As in life, some come out of order, some come "
        "far too late, and some are bad.",
        [
            "errata generate quotes --rows 300000 --rows-per-file 100000 --disorder 0.02 --late 10 --mistakes 12 "
            "--out feed"
        ],
    ),
    Step(
        "Declare it",
        "The stream is declared in errata.yaml, and three queries: one over the stream, one over what slides along "
        "it, and one over the results of the first. Applying shows what would be made, and makes it.",
        [
            "cat errata.yaml",
            *(f"cat queries/{name}.sql" for name in ("minutes", "lately", "swings")),
            "errata apply --yes",
        ],
    ),
    Step(
        "Take it in",
        "The first file is sorted, cut into buckets and committed, all or nothing. Bad rows are set aside, each with "
        "its place, what it said and why it was not taken.",
        [f"errata ingest quotes feed/{FIRST}", "errata quarantine ls quotes"],
    ),
    Step(
        "The first answers",
        "Every query is answered as far as the stream is stable. The answers are kept, and reading them works nothing "
        "out.",
        ["errata run", "errata results lately", "errata results swings"],
    ),
    Step(
        "More comes, and the answers move",
        "The second file lands. `errata run` does all that is due: it takes the file in, and takes the answers further "
        "by what has come and what has expired, not from the beginning. Five rows that the first file should have had "
        "come now: they are put into history, and the results that should have had them are corrected first.",
        [f"mv feed/{SECOND} landing/", "errata run", "errata results lately", "errata results swings"],
    ),
    Step(
        "The same again",
        "A batch that was taken in before changes nothing, and a run with nothing to do says so. Whatever is killed "
        "half-way can simply be run again.",
        [f"errata ingest quotes landing/taken/{SECOND}", "errata run"],
    ),
    Step(
        "The archive",
        "A bucket is a file of consecutive rows. The catalog knows what each one can hold, so a question about three "
        "seconds opens one, and never the rest.",
        ["errata archive ls quotes"],
    ),
    Step(
        "A correction arrives",
        "The exchange says that one price was wrong and that another quote never was. It is mistaken about a third: "
        "the old value that it claims, in _old_price, is not the one that is there. The answers have long gone on. "
        "What would it take to put them right?",
        ["cat corrections.csv", "errata ingest quotes corrections.csv", "errata sweep --plan"],
    ),
    Step(
        "The correction reaches the answers",
        "A sweep makes the corrections part of history, and corrects the results that they invalidate: of some "
        "thousand it looks at a handful. A corrected minute is a correction for `swings`, which reads the minutes. The "
        "wrong correction is set aside.",
        ["errata sweep", "errata changes minutes --since 15"],
    ),
    Step(
        "Why?",
        "Anyone can ask how a number came about: every value that it has had, when, because of what, and the rows "
        "behind it then and now.",
        ['errata why minutes "symbol=IBM,minute=2026-11-18T00:05"'],
    ),
    Step(
        "Before and after",
        "The row has two versions now, and each tells where it came from. Who reads as of commit 14 still gets the old "
        "price, the quote that never was, and the answers of then, today and in a week.",
        [
            f"errata history quotes {WRONG}",
            f"errata archive scan quotes {AROUND} --as-of 14",
            f"errata archive scan quotes {AROUND}",
            f"{ASKED} --as-of 14",
            ASKED,
        ],
    ),
    Step(
        "For whoever reads tables",
        "`minutes` is served as a table of the catalog's database, too, corrected in the same commit. And in doubt a "
        "range of results is worked out again from history, and found to be right.",
        [
            "sqlite3 errata.db \"SELECT minute, quotes, mean FROM minutes WHERE symbol = 'IBM' "
            'ORDER BY minute DESC LIMIT 3"',
            "errata replay --query minutes --from 2026-11-18T00:00 --to 2026-11-18T00:10",
        ],
    ),
    Step(
        "Changes as they come",
        "Who wants to hear of changes follows them. In another window somebody waits for the next swing, while the "
        "third file lands.",
        [f"mv feed/{THIRD} landing/", "errata run"],
        beside="errata changes swings --since 18 --follow",
    ),
    Step(
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
        edits={"queries/swings.sql": SWINGS.replace("0.8", "0.9").replace("0.008", "0.009")},
    ),
    Step(
        "What a plan tells",
        "Much is known before a row is read: when results come and whether they ever go, what is kept to answer, and "
        "what a correction would touch.",
        ["errata explain minutes"],
    ),
    Step(
        "Keeping fit",
        "Compaction works corrections into the buckets that they touch, and leaves all others alone. What is more than "
        "15 minutes behind the stable point goes, by whole buckets. The doctor looks at every file and every row.",
        ["errata archive compact --all", "errata archive age-out quotes", "errata doctor"],
    ),
    Step(
        "How it stands, and what happened",
        "Every step was a commit that says who made it and what it did. These are the last five.",
        ["errata status", "errata log --last 5"],
    ),
)
