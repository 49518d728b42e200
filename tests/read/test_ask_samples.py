"""One-time answers over samples: estimates beside the rows that a brute-force sample has, exactness at rate 1, pilots,
and what a reduced answer says of itself."""

from __future__ import annotations

import operator
import random
import warnings
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import errata
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_revisions
from errata.archive.sampling import last_hash, sampling_hashes
from errata.archive.scan_reading import scan_reading
from errata.catalog.buckets import buckets_of_roles
from errata.catalog.database import open_catalog
from errata.catalog.reduction_requests import recorded_requests
from errata.catalog.streams import stream_state
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.errors import UsageError
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.time import parse_instant
from errata.read import ask
from errata.read.ask import AnswerPlan, OneTimeQuery, open_answer
from errata.read.output import fetch_all
from errata.read.sampled_scans import mark_reduced, widest_interval
from fixtures.clock import FixedClock
from fixtures.projects import STREAMS, Written

NOW = parse_instant("2026-11-18T03:00:00")
COPIES = "    order: time\n    reduce: {copies: [50%, 10%]}\n"
ROWS = 1_200
QUIET = """import errata


@errata.reduction
def older_half(portion, rate):
    return rate if portion.start_time.minute < 10 else 1.0


@errata.reduction
def nothing(portion):
    return 0
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, near: SparkSession) -> Iterator[Site]:
    """A project with 1,200 quotes of 20 minutes, of which copies are kept, and ticks without copies; one quote in 40
    has been corrected."""
    del near  # it is kept while the module runs
    folder = tmp_path_factory.mktemp("sampled")
    declared = STREAMS.replace("    order: time\n", COPIES, 1)
    project = Written(folder).write({}, streams=declared)
    Written(folder).apply({}, streams=declared)
    catalog = open_catalog(project.catalog, FixedClock(NOW))
    site = Site(project, catalog, Warehouse(project.warehouse), Cause(""))
    rng = random.Random(11)
    prices = [rng.randrange(100, 200) for _ in range(ROWS)]
    lines = [f"{moment(number)},{'AB'[number % 3 % 2]},{price}" for number, price in enumerate(prices)]
    for part in range(4):
        took_in(site, "quotes", "time,symbol,price", *lines[part * 300 : (part + 1) * 300])
    took_in(site, "ticks", "at,of", *(f"{number},a" for number in range(50)))
    corrected = [f"replace,{moment(number)},{'AB'[number % 3 % 2]},999" for number in range(0, ROWS, 40)]
    fix = folder / "fix.csv"
    fix.write_text("\n".join(["_op,time,symbol,price", *corrected, ""]))
    ingest_batch(site, IngestRequest("quotes", [str(fix)]))
    apply_revisions(site, ["quotes"])
    (folder / "reductions").mkdir()
    (folder / "reductions" / "own.py").write_text(QUIET)
    yield site
    catalog.close()


def moment(number: int) -> str:
    return f"2026-11-18T02:{number // 60:02}:{number % 60:02}"


def took_in(site: Site, stream: str, *lines: str) -> None:
    file = site.project.root / f"{stream}.csv"
    file.write_text("\n".join([*lines, ""]))
    ingest_batch(site, IngestRequest(stream, [str(file)]))


def asked(site: Site, sql: str, *, with_error: bool = False) -> tuple[AnswerPlan, pa.Table]:
    with open_answer(site, OneTimeQuery(text=sql, with_error=with_error)) as found:
        rows = fetch_all(found.rows)
        assert rows.column_names == found.plan.columns
        return found.plan, rows


def refused(site: Site, sql: str) -> str:
    with pytest.raises(UsageError) as caught:
        asked(site, sql)
    return str(caught.value)


def every_quote(site: Site) -> pa.Table:
    return asked(site, "SELECT time, symbol, price FROM quotes")[1].sort_by([("time", "ascending")])


def sample_of(site: Site, rate: float) -> pa.Table:
    """A sample by brute force, over all rows as they are corrected."""
    rows = every_quote(site)
    return rows.filter(pa.array(sampling_hashes(rows, ["time", "symbol"]) <= last_hash(rate)))


@pytest.mark.parametrize("rate", [0.5, 0.3, 0.1, 0.05])
def test_the_rows_are_those_of_the_sample(site: Site, rate: float) -> None:
    plan, rows = asked(site, f"SELECT time, symbol, price FROM quotes TABLESAMPLE uniform({rate})")
    wanted = sample_of(site, rate)
    assert rows.sort_by([("time", "ascending")]).to_pylist() == wanted.to_pylist()
    assert 0 < wanted.num_rows < ROWS * rate * 1.5
    assert plan.remarks[1] == "reduced: the rows are those of the sample: nothing is scaled"


def bytes_read(plan: AnswerPlan) -> dict[str, int]:
    """The bytes that are read, by version."""
    (read,) = plan.reads.values()
    return {each.version: each.size for each in scan_reading([read[1]]).versions}


def test_a_condition_on_the_order_field_narrows_what_is_read(site: Site) -> None:
    state = stream_state(site.catalog, "quotes")
    stored = buckets_of_roles(site.catalog, state.stream_id, state.changed_in, (Role.BASE, Role.COPY))
    last = max((each for each in stored if each.role is Role.BASE), key=lambda each: each.vs_min)
    (copy,) = (each for each in stored if each.original == last.bucket_id and each.resolution.rate == 0.1)
    condition = f"WHERE time >= TIMESTAMP '{moment(900)}'"
    for clause, version, size in (
        ("", "originals", last.size),
        ("TABLESAMPLE (10 PERCENT)", "copies at 10%", copy.size),
    ):
        whole, _ = asked(site, f"SELECT time, symbol, price FROM quotes {clause}")
        plan, rows = asked(site, f"SELECT time, symbol, price FROM quotes {clause} {condition}")
        assert bytes_read(plan)[version] == size
        assert bytes_read(whole)[version] > 3 * size
        wanted = sample_of(site, 0.1 if clause else 1.0)
        expected = [row for row in wanted.to_pylist() if str(row["time"]) >= moment(900).replace("T", " ")]
        assert rows.sort_by([("time", "ascending")]).to_pylist() == expected
        assert expected


def test_whatever_the_condition_on_the_order_field_no_row_is_missing(site: Site, chance: random.Random) -> None:
    every = every_quote(site)
    times = [row["time"].strftime("%Y-%m-%dT%H:%M:%S") for row in every.to_pylist()]
    for _ in range(6):
        rate, (low, high) = chance.choice([0.1, 0.5, 1.0]), sorted(chance.sample(range(ROWS), 2))
        side, other = chance.choice([">", ">="]), chance.choice(["<", "<="])
        condition = f"time {side} TIMESTAMP '{moment(low)}' AND TIMESTAMP '{moment(high)}' {_MIRRORED[other]} time"
        outside = chance.choice(["", f" OR time = TIMESTAMP '{moment(chance.randrange(ROWS))}'"])
        _, rows = asked(site, f"SELECT time, price FROM quotes TABLESAMPLE uniform({rate}) WHERE {condition}{outside}")
        extra = outside[-20:-1]
        wanted = {
            at
            for at in times
            if at == extra or (_COMPARED[side](at, moment(low)) and _COMPARED[other](at, moment(high)))
        }
        sample = {row["time"] for row in sample_of(site, rate).to_pylist()}
        expected = {at for at in sample if at.strftime("%Y-%m-%dT%H:%M:%S") in wanted}
        assert {*rows["time"].to_pylist()} == expected, (condition, outside)


_MIRRORED = {"<": ">", "<=": ">="}
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def test_by_load_follows_the_machines_of_the_session_that_answers(
    site: Site, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "current_load", lambda: 0.75)
    assert asked(site, "SELECT count(*) AS n FROM quotes TABLESAMPLE by_load(0.2)")[0].samples[0].rates.uniform == 0.4
    monkeypatch.setattr(ask, "spark_load", {spark: 0.5}.__getitem__)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        errata.ask(spark, "SELECT count(*) AS n FROM quotes TABLESAMPLE by_load(0.2)", project=site.project.root)
    assert any("quotes at 60% by by_load(0.2)" in str(each.message) for each in told)


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.1])
def test_aggregates_are_scaled(site: Site, rate: float) -> None:
    aggregates = "count(*) AS n, sum(price) AS s, avg(price) AS m, max(price) AS h"
    sql = f"SELECT {aggregates} FROM quotes TABLESAMPLE ({rate * 100} PERCENT)"
    plan, rows = asked(site, sql, with_error=True)
    sample = sample_of(site, rate)["price"].to_pylist()
    (found,) = rows.to_pylist()
    assert found["n"] == round(len(sample) / rate)
    assert found["s"] == pytest.approx(sum(sample) / rate)
    assert found["m"] == pytest.approx(sum(sample) / len(sample))
    assert found["h"] == max(sample)
    for name in "nsm":
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
    assert plan.estimated.estimates == ("n", "s", "m")


def test_the_answer_says_what_was_read(site: Site) -> None:
    plan, _ = asked(site, "SELECT count(*) AS n FROM quotes TABLESAMPLE (10 PERCENT)")
    assert plan.reduced == "quotes at 10% by uniform(0.1)"
    (words,) = plan.remarks
    assert words.startswith("reduced: quotes at 10% by uniform(0.1); read ")
    assert "copies at 10% (4 buckets)" in words
    assert "saved nothing" not in words


def test_a_rate_on_a_stream_without_copies_says_that_it_saved_nothing(site: Site) -> None:
    plan, rows = asked(site, "SELECT of, at FROM ticks TABLESAMPLE (40 PERCENT)")
    assert 0 < rows.num_rows < 50
    assert "it saved nothing, as there is no smaller version" in plan.remarks[0]


def test_rate_1_is_exact_to_the_byte(site: Site) -> None:
    body = "symbol, count(*) AS n, sum(price) AS s, avg(price) AS m FROM {} GROUP BY symbol"
    _, exact = asked(site, "SELECT " + body.format("quotes"))
    plan, same = asked(site, "SELECT " + body.format("quotes TABLESAMPLE (100 PERCENT)"))
    by = [("symbol", "ascending")]
    assert same.sort_by(by).equals(exact.sort_by(by))
    assert plan.reduced is None
    assert plan.remarks == ["quotes TABLESAMPLE uniform(1): all rows were read, nothing is estimated of it"]
    _, bounded = asked(site, "SELECT " + body.format("quotes TABLESAMPLE (100 PERCENT)"), with_error=True)
    assert bounded["n"].equals(bounded["n_low"])
    assert bounded["s"].equals(bounded["s_high"])


def test_by_age_reads_new_rows_whole_and_old_ones_thin(site: Site) -> None:
    sql = "SELECT time, symbol FROM quotes TABLESAMPLE by_age('5 minutes', 0.2)"
    _, rows = asked(site, sql)
    minutes = [each.minute for each in rows["time"].to_pylist()]
    counts = [sum(low <= minute < low + 5 for minute in minutes) for low in (0, 5, 10, 15)]
    assert counts[3] == 300
    assert counts[0] < counts[1] < counts[2] < 130
    _, found = asked(site, "SELECT count(*) AS n FROM quotes TABLESAMPLE by_age('5 minutes', 0.2)", with_error=True)
    (estimate,) = found.to_pylist()
    assert estimate["n_low"] <= ROWS * 1.3
    assert estimate["n_high"] >= ROWS * 0.7


def test_by_value_samples_others_only(site: Site) -> None:
    sql = "SELECT symbol, count(*) AS n FROM quotes TABLESAMPLE by_value(symbol, 'A', 1, 0.2) GROUP BY symbol"
    _, rows = asked(site, sql, with_error=True)
    found = {each["symbol"]: each for each in rows.to_pylist()}
    assert (found["A"]["n_low"], found["A"]["n"], found["A"]["n_high"]) == (800, 800, 800)
    assert found["B"]["n_low"] < found["B"]["n"] < found["B"]["n_high"]


def test_a_function_of_the_user(site: Site) -> None:
    plan, rows = asked(site, "SELECT time FROM quotes TABLESAMPLE older_half(0.1)")
    minutes = [each.minute for each in rows["time"].to_pylist()]
    assert sum(each >= 10 for each in minutes) == 600
    assert 0 < sum(each < 10 for each in minutes) < 120
    assert plan.reduced == "quotes at 10% to 100% by older_half(0.1)"
    told = refused(site, "SELECT time FROM quotes TABLESAMPLE nothing()")
    assert "it gives 0, and a rate is the share of the rows that is read" in told


def test_by_error_reads_as_much_as_the_answer_needs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.read.sampled_scans.PILOT_ROWS", 300)
    for column, error in (("n", 0.05), ("m", 0.02)):
        clause = f"TABLESAMPLE by_error({error}, {column})"
        sql = f"SELECT count(*) AS n, avg(price) AS m FROM quotes {clause} WHERE symbol = 'A'"
        plan, rows = asked(site, sql, with_error=True)
        assert plan.reduced is not None
        assert widest_interval(rows, plan.estimated.estimates, column) < 1.5 * error
        assert plan.samples[0].rates.uniform < 0.95  # type: ignore[operator]
    assert "is called x" in refused(site, "SELECT count(*) AS n FROM quotes TABLESAMPLE by_error(0.1, x)")


def test_by_error_over_few_rows_reads_them_all(site: Site) -> None:
    plan, rows = asked(site, "SELECT count(*) AS n FROM quotes TABLESAMPLE by_error(0.1)")
    assert (plan.reduced, rows["n"].to_pylist()) == (None, [ROWS])


def test_a_sample_joined_with_the_whole_stream(site: Site) -> None:
    sql = (
        "SELECT count(*) AS n FROM quotes TABLESAMPLE (50 PERCENT) AS a JOIN quotes AS b"
        " ON a.time = b.time AND a.symbol = b.symbol"
    )
    plan, rows = asked(site, sql)
    assert rows["n"].to_pylist() == [2 * sample_of(site, 0.5).num_rows]
    assert [each.source.stream for each in plan.samples] == ["quotes"]


def test_readers_leave_what_they_asked_for(site: Site) -> None:
    sql = "SELECT count(*) AS n FROM quotes TABLESAMPLE uniform(0.37)"
    plan, _ = asked(site, sql)
    stream_id = plan.samples[0].scan.state.stream_id
    before = {each.asked.label: each.readers for each in recorded_requests(site.catalog, stream_id)}
    asked(site, sql)
    after = {each.asked.label: each.readers for each in recorded_requests(site.catalog, stream_id)}
    assert after["uniform(0.37)"] == before["uniform(0.37)"] + 1
    assert "uniform(1)" not in after


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT count(*) AS n FROM quotes TABLESAMPLE (0 PERCENT)", "a sampling rate of 0 cannot be read"),
        ("SELECT count(*) AS n FROM quotes TABLESAMPLE (150 PERCENT)", "a sampling rate of 1.5 cannot be read"),
        (
            "SELECT count(DISTINCT symbol) AS n FROM quotes TABLESAMPLE (10 PERCENT)",
            "cannot be estimated from a sample",
        ),
        ("SELECT count(*) AS n FROM quotes TABLESAMPLE thirds(3)", "there is no reduction thirds"),
        (
            "SELECT a.price FROM quotes TABLESAMPLE by_error(0.1) a JOIN quotes TABLESAMPLE by_error(0.2) b"
            " ON a.time = b.time",
            "the error of two samples cannot be shared out",
        ),
    ],
)
def test_what_is_refused(site: Site, sql: str, words: str) -> None:
    assert words in refused(site, sql)


def test_intervals_are_of_estimates(site: Site) -> None:
    with pytest.raises(UsageError, match="no column of the answer is an estimate"):
        asked(site, "SELECT count(*) AS n FROM quotes", with_error=True)


def test_a_reduced_answer_is_marked(site: Site) -> None:
    plan, rows = asked(site, "SELECT count(*) AS n FROM quotes TABLESAMPLE (10 PERCENT)")
    marked = mark_reduced(rows, plan.reduced or "")
    assert isinstance(marked, pa.Table)
    assert marked.column_names == ["n", "_reduced"]
    assert marked["_reduced"].to_pylist() == ["quotes at 10% by uniform(0.1)"]


def test_from_python_a_reduced_answer_warns(site: Site, spark: SparkSession) -> None:
    sql = "SELECT count(*) AS n FROM quotes TABLESAMPLE (10 PERCENT)"
    with pytest.warns(UserWarning, match=r"reduced: quotes at 10% by uniform\(0.1\)"):
        rows = errata.ask(spark, sql, with_error=True, project=site.project.root).collect()
    assert rows[0].n == sample_of(site, 0.1).num_rows * 10
    assert rows[0].n_low < rows[0].n < rows[0].n_high
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert errata.ask(spark, "SELECT count(*) AS n FROM quotes", project=site.project.root).collect() == [(ROWS,)]


def test_widest_intervals() -> None:
    rows = pa.table({"n": [10.0, -20.0], "n_low": [9.0, -24.0], "n_high": [11.0, -16.0]})
    assert widest_interval(rows, ["n"], None) == pytest.approx(0.2)
    unknown = replace_column(rows, "n_low", [None, -24.0])
    assert widest_interval(unknown, ["n"], "N") == float("inf")
    assert widest_interval(replace_column(rows, "n", [0.0, 1.0]), ["n"], None) == float("inf")
    assert widest_interval(rows.slice(0, 0), ["n"], None) == float("inf")


def replace_column(rows: pa.Table, name: str, values: list[float | None]) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, pa.array(values, pa.float64()))
