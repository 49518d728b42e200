"""Threads share a reader while rows come and are corrected: every answer is the oracle's as of the commit that it
names, whichever strategy gave it, and however far another thread had carried what is kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import sleep

from errata.model.registered import RegisteredPlan, ResultStrategy
from errata.psoup.invoke import Invocation
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register
from fixtures.chance import random_for
from fixtures.registered.archives import History

TEXTS = (
    "SELECT * FROM quotes WHERE bid >= 0.5 BEGIN (NOW - '10 minutes') END (NOW)",
    "SELECT count(*) AS n, sum(size) AS total, max(bid) AS most FROM quotes BEGIN (NOW - '10 minutes') END (NOW)",
    "SELECT a.no, b.no AS other FROM quotes a, quotes b WHERE a.sym = b.sym AND a.size < b.size"
    " BEGIN (NOW - '5 minutes') END (NOW)",
    "SELECT sym, size FROM quotes WHERE size > 0 BEGIN (NOW - 9 ROWS) END (NOW)",
)
THREADS = 4
STEPS = 10
CHECKED = 400
"""Answers that are compared, out of all."""


def test_threads_that_share_a_reader_get_the_answers_of_the_commits_they_name(tmp_path: Path) -> None:
    random = random_for(__name__)
    history = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", random, rows=150)
    site = history.house.site
    history.arrive("quotes")
    plans: dict[str, RegisteredPlan] = {}
    for text in TEXTS:
        for strategy in ResultStrategy:
            (made,) = register(site, [text], owner="me", strategy=strategy)
            plans[made.handle] = made.plan
    history.note()
    ended = threading.Event()

    def ask(seed: int) -> list[Invocation]:
        own, found = Random(seed), []
        while not ended.is_set():
            found.append(reader.invoke(own.choice(list(plans))))
            sleep(0.005)
        return found

    with RegisteredReader(site) as reader, reader.maintained(0.02), ThreadPoolExecutor(THREADS) as pool:
        asking = [pool.submit(ask, random.randrange(1_000)) for _ in range(THREADS)]
        try:
            for _ in range(STEPS):
                random.choice((history.arrive, history.arrive, history.revise, history.compact))("quotes")
                history.note()
        finally:
            ended.set()
        answers = [each for done in asking for each in done.result()]
    # A step may make several commits, of which the last is noted.
    noted = [each for each in answers if each.commit_id in history.at]
    for each in random.sample(noted, min(len(noted), CHECKED)):
        moment = history.at[each.commit_id]
        assert moment.is_answered_by(each.rows, plans[each.handle], each.now), (each.handle, each.commit_id, each.route)
    assert len({(each.handle, each.commit_id) for each in noted}) > 2 * len(plans)
    site.catalog.close()
