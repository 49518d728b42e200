"""Random corrections, in place and not, of queries whose results keep their lineage: after each sweep what is published
is the one-time answer over the corrected history, and what queries with derived lineage publish."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from errata.answer import lineage_lookup
from errata.answer.runs import sweep
from errata.archive.upkeep import result_compaction
from errata.archive.upkeep.compaction import compact_streams
from errata.model.bucket import Role
from fixtures.chance import seeds
from fixtures.runs import STREAMS, Answering

TEXTS = {
    # Windows that overlap by more and less, and that follow one another.
    "sums": "SELECT of, window_no, sum(price) AS s FROM quotes GROUP BY of, row_window(4, 1)",
    "twos": "SELECT of, max(price) AS m FROM quotes GROUP BY of, row_window(2)",
    "some": "SELECT of, first(price) AS f, count(*) AS n FROM quotes GROUP BY of, row_window(5, 3)",
    # Rows of one time in different windows.
    "all": "SELECT window_no * 10 AS w, sum(price) AS s FROM quotes GROUP BY row_window(3, 2)",
    # Columns that have a say in which results there are.
    "dear": "SELECT of, sum(at) AS t, max(price) AS m FROM quotes WHERE price > 2 GROUP BY of, row_window(3, 1)",
    "late": "SELECT of, sum(price) AS s FROM quotes GROUP BY of, row_window(3, 2) HAVING max(price) > 4",
    # Two windows of rows one upon the other.
    "fours": "SELECT of, sum(s) AS s FROM sums GROUP BY of, row_window(2)",
    "met": "SELECT q.of, sum(q.price) AS s FROM quotes AS q JOIN ticks AS t ON t.at BETWEEN q.at - 1 AND q.at + 1 "
    "AND q.of = t.of GROUP BY q.of, row_window(2, 1)",
    "pairs": "SELECT q.price, t.at AS then FROM quotes AS q JOIN ticks AS t ON q.at < t.at AND q.of = t.of",
}
COURSES = 2 if (LONG := settings().max_examples) <= 25 else LONG // 25
NOT_WORTH_ASKING = 2879290636
"""A course in which stored lineage would nowhere be asked for its own sake."""


class Past:
    """Rows of a stream as they are, so that they can be corrected."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now = rng, 0
        self.rows: dict[tuple[int, str], int] = {}

    def more(self, count: int) -> list[str]:
        """Rows that come next."""
        found = []
        for _ in range(count):
            self.now += self.rng.choice((1, 1, 2))
            found += [self._put(self.now, of) for of in self.rng.sample("abc", self.rng.choice((1, 2, 3)))]
        return found

    def many(self) -> tuple[list[str], str]:
        """Rows of one group that come next, and a replacement of one in their midst, with another value."""
        places = range(self.now + 1, self.now + 9)
        self.now = places[-1]
        rows = [self._put(at, "a") for at in places]
        self.rows[places[3], "a"] += 1
        return rows, f"{places[3]},a,{self.rows[places[3], 'a']};replace"

    def _put(self, at: int, of: str) -> str:
        self.rows[at, of] = self.rng.randrange(9)
        return f"{at},{of},{self.rows[at, of]}"

    def corrections(self) -> list[str]:
        """Replacements mostly; sometimes deletions and late rows, too."""
        found = []
        kinds = ["replace"] if self.rng.random() < 0.5 else ["replace", "replace", "delete", "insert"]
        for _ in range(self.rng.choice((1, 2, 4, 40))):
            at, of = self.rng.choice(sorted(self.rows))
            kind = self.rng.choice(kinds)
            if kind == "insert":
                at, of = self.rng.randrange(1, self.now), self.rng.choice("abc")
                if (at, of) in self.rows:
                    continue
            if kind == "delete":
                del self.rows[at, of]
                found.append(f"{at},{of},;delete")
            else:
                found.append(f"{self._put(at, of)};{kind}")
        return found


def always_worth_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so few rows it would often not be worth it to ask stored lineage."""
    monkeypatch.setattr(lineage_lookup, "rows_to_read", lambda _inputs, needed, _until: needed.stored is None)


@pytest.mark.parametrize("seed", [NOT_WORTH_ASKING, *seeds(__name__, COURSES)])
def test_a_course_of_random_corrections(
    tmp_path: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_compaction, "BUCKETS_PER_MERGE", 3)
    if seed % 4:
        always_worth_asking(monkeypatch)
    rng = random.Random(seed)
    twin = rng.choice(("sums", "all", "pairs"))
    texts = {name: TEXTS[name] for name in ("sums", twin, *rng.sample(sorted(TEXTS), 2))}
    options = dict.fromkeys(texts, "lineage: stored")
    texts["derived"] = TEXTS[twin]
    there = Answering.begin(tmp_path, texts, options, declared=STREAMS)
    past, ticks = Past(rng), 0
    for step in range(3):
        quotes = past.more(rng.choice((6, 15)))
        came = [f"{at},{of}" for at in range(ticks + 1, past.now) for of in "ab" if rng.random() < 0.2]
        there.take(quotes=quotes, ticks=[*came, f"{past.now},a"])
        ticks = past.now
        there.run()
        there.take(quotes=past.corrections())
        if step == 1:
            compact_streams(there.site)
        report = sweep(there.site)
        assert not report.stopped, f"seed {seed}, step {step}"
        there.check()
        assert there.rows("derived") == there.rows(twin), f"seed {seed}, step {step}, {twin}"
    # What chance has corrected need not have been in place. This is, in windows that are there for certain.
    always_worth_asking(monkeypatch)
    rows, correction = past.many()
    there.take(quotes=rows, ticks=[f"{past.now},a"])
    there.run()
    there.take(quotes=[correction])
    asked = [each.name for each in sweep(there.site).swept if each.swept and each.swept.why.startswith("by stored")]
    assert "sums" in asked, f"seed {seed}: stored lineage was not asked"
    there.check()
    assert there.rows("derived") == there.rows(twin), f"seed {seed}, at the end, {twin}"
    assert all(there.buckets(name, Role.LINEAGE) for name in options)
    there.close()
