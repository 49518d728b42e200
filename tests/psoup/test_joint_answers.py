"""Joins that are made as one give each query what its own join gives, after any change of the streams."""

from __future__ import annotations

from pathlib import Path

from errata.model.registered import AnswerRoute, RegisteredPlan, ResultStrategy
from errata.psoup.joint_answers import joint_groups
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, registered_queries
from fixtures.chance import random_for
from fixtures.registered.archives import History

JOINS = (
    "a.sym = b.sym",
    "a.sym = b.sym AND a.size < b.size",
    "a.at < b.at",
)
ITEMS = ("a.no, b.no AS other", "a.sym, b.bid, b.note", "DISTINCT a.sym", "count(*) AS n, sum(a.size) AS total")
CONDITIONS = ("", " AND a.bid > 0", " AND b.ask >= 1 AND a.size > 0", " AND a.firm")
WINDOWS = (
    "BEGIN (NOW - '10 minutes') END (NOW)",
    "BEGIN (NOW - 7 ROWS) END (NOW)",
    "FOR a BEGIN (NOW - '1 hour') END (NOW), FOR b BEGIN (NOW - '2 minutes') END (NOW)",
)


def test_queries_of_one_join_are_answered_together_as_each_alone(tmp_path: Path) -> None:
    random = random_for(__name__)
    history = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", random)
    site = history.house.site
    history.arrive("quotes")
    plans: dict[str, RegisteredPlan] = {}
    for join in JOINS:
        for items in ITEMS:
            where = f"WHERE {join}{random.choice(CONDITIONS)} {random.choice(WINDOWS)}"
            (made,) = register(site, [f"SELECT {items} FROM quotes a, quotes b {where}"], owner="me")
            plans[made.handle] = made.plan
    history.note()
    asked = random.sample(list(plans), len(plans))
    routes: set[AnswerRoute] = set()
    with RegisteredReader(site) as reader:
        for _ in range(6):
            random.choice((history.arrive, history.arrive, history.revise, history.compact))("quotes")
            history.note()
            found = reader.invoke_all([*asked, asked[0]])
            assert [each.handle for each in found] == [*asked, asked[0]]
            assert {each.commit_id for each in found} == {history.commit}
            assert {each.route for each in found} <= {AnswerRoute.JOINT, AnswerRoute.WINDOW}
            routes |= {each.route for each in found}
            for each in found:
                assert history.newest.is_answered_by(each.rows, plans[each.handle], each.now)
                assert each.rows.schema == (alone := reader.invoke(each.handle)).rows.schema
                assert (each.matched, each.windows) == (alone.matched, alone.windows)
                assert str(each.rows.to_pylist()) == str(alone.rows.to_pylist())  # in the same order
            earlier = random.choice(list(history.at))
            for each in reader.invoke_all(asked, as_of=earlier):
                assert history.at[earlier].is_answered_by(each.rows, plans[each.handle], each.now)
    assert AnswerRoute.JOINT in routes
    site.catalog.close()


def test_queries_whose_rows_have_nothing_in_common_are_joined_alone(tmp_path: Path) -> None:
    """One join of all rows would make pairs that nobody asked for."""
    history = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", random_for(__name__))
    site = history.house.site
    for _ in range(3):
        history.arrive("quotes")
    history.note()
    join = "SELECT a.no, b.no AS other FROM quotes a, quotes b WHERE a.no < b.no AND a.size = {0} AND b.size = {0}"
    texts = [f"{join.format(each)} BEGIN (NOW - '1 hour') END (NOW)" for each in (1, 2, 0, 3, 50)]
    made = [register(site, [each], owner="me")[0] for each in texts]
    history.note()
    with RegisteredReader(site) as reader:
        for query, each in zip(made, reader.invoke_all([each.handle for each in made]), strict=True):
            assert each.route is AnswerRoute.WINDOW
            assert history.at[each.commit_id].is_answered_by(each.rows, query.plan, each.now)
    site.catalog.close()


def test_only_joins_alike_of_which_nothing_else_is_kept_are_made_as_one(tmp_path: Path) -> None:
    history = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", random_for(__name__))
    site = history.house.site
    history.arrive("quotes")
    join = "SELECT a.no FROM quotes a, quotes b WHERE a.sym = b.sym BEGIN (NOW - '10 minutes') END (NOW)"
    other = join.replace("a.sym = b.sym", "a.no = b.no")
    alone = "SELECT no FROM quotes BEGIN (NOW - '10 minutes') END (NOW)"
    partial = [join, join.replace("10", "11"), other, alone, alone]
    asked = [(text, ResultStrategy.PARTIAL) for text in partial]
    asked += [(join, ResultStrategy.NONE), (join, ResultStrategy.COMPLETE)]
    handles = [register(site, [text], owner="me", strategy=strategy)[0].handle for text, strategy in asked]
    with RegisteredReader(site) as reader:
        routes = [each.route for each in reader.invoke_all(handles)]
        window, joint = AnswerRoute.WINDOW, AnswerRoute.JOINT
        assert routes == [joint, joint, window, window, window, AnswerRoute.SCAN, AnswerRoute.KEPT]
        assert reader.invoke_all([]) == []
    assert sorted(map(len, joint_groups(registered_queries(site)))) == [1, 2, 4]
    site.catalog.close()
