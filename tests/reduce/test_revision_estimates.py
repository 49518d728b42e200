"""`errata sweep --estimate`: what applied corrections will make of published windows, and what cannot be estimated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from errata.archive.approximations import ApproximationMethod
from errata.archive.revisions.apply import apply_revisions
from errata.cli.estimate import print_estimates
from errata.errors import UsageError
from errata.read.wording import OutputFormat
from errata.reduce.revision_estimates import EstimateRequest, estimate_corrections
from fixtures.runs import UNSWEPT, Answering

QUERIES = {
    "closed": "SELECT of, window_start, count(*) AS n, sum(price) AS s, max(price) AS top FROM quotes"
    " GROUP BY of, window(at, 4)",
    "totals": "SELECT window_start, count(*) AS n, avg(price) AS mean FROM quotes GROUP BY window(at, 4)",
    "above": "SELECT of, window_start, count(*) AS n FROM quotes WHERE price > 3 GROUP BY of, window(at, 4)",
    "over": "SELECT of, window_start, count(*) AS n FROM quotes GROUP BY of, window(at, 4, 2)",
}
DECLARED = UNSWEPT.replace(
    "key: [at, of], order: at}",
    "key: [at, of], order: at, reduce: {summaries: {fours: {window: 4 units, group: [of],"
    " select: {n: count(*), top: 'impact(price, 1)', spread: 'histogram(price, 0, 8, 4)'}}}}}",
    1,
)
ROWS = [f"{at},{of},{(at * 7 + len(of)) % 10}" for at in range(16) for of in ("a", "bb")]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    answering = Answering.begin(tmp_path_factory.mktemp("estimated"), QUERIES, {}, declared=DECLARED)
    answering.take(quotes=[*ROWS, "30,a,1"])
    answering.run()
    yield answering
    answering.close()


def test_what_corrections_will_make_of_windows_is_bounded(there: Answering) -> None:
    there.take(quotes=["5,a,99;replace", "6,bb,;delete", "13,a,0;replace"])
    pending = estimate_corrections(there.site, EstimateRequest(method=ApproximationMethod.IMPACT))
    assert (pending.values, pending.pending) == ([], {"quotes": 3})
    apply_revisions(there.site)
    rows = {(int(at), of): int(price) for at, of, price in (row.split(",") for row in ROWS)}
    rows |= {(5, "a"): 99, (13, "a"): 0}
    del rows[6, "bb"]
    for method in (ApproximationMethod.IMPACT, ApproximationMethod.HISTOGRAM):
        report = estimate_corrections(there.site, EstimateRequest(("closed",), method))
        assert {(each.start, *each.group) for each in report.values} == {(4, "a"), (4, "bb"), (12, "a")}
        for each in report.values:
            prices = [price for (at, of), price in rows.items() if (at // 4 * 4, of) == (each.start, *each.group)]
            truth = {"n": len(prices), "s": sum(prices), "top": max(prices)}[each.column]
            assert each.low <= truth <= each.high
            assert each.column != "n" or each.low == each.high == truth
    sampled = estimate_corrections(there.site, EstimateRequest(("totals",), rate=1.0))
    shown = {(each.start, each.column): each.value for each in sampled.values}
    window = [price for (at, _), price in rows.items() if 4 <= at < 8]
    assert shown[4, "n"] == len(window)
    assert shown[4, "mean"] == pytest.approx(sum(window) / len(window))
    assert sampled.size == sampled.exact_size > 0


@pytest.mark.parametrize(
    ("name", "method", "why"),
    [
        ("above", "impact", "is not SELECT"),
        ("over", "impact", "not one after the other"),
        ("totals", "impact", "no summary of quotes with this window and group"),
        ("closed", "sample", "beyond all that were"),
    ],
)
def test_what_cannot_be_estimated_is_passed_over_with_the_reason(
    there: Answering, name: str, method: str, why: str
) -> None:
    there.revise(quotes=["9,a,7;replace"])
    report = estimate_corrections(there.site, EstimateRequest((name,), ApproximationMethod(method)))
    assert report.values == []
    assert why in (report.passed_over[name].why or "")


def test_estimates_are_printed_with_what_they_were_computed_from(
    there: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    there.revise(quotes=["8,bb,70;replace"])
    print_estimates(there.site, ("closed",), ApproximationMethod.IMPACT, None, OutputFormat.TABLE)
    shown = capsys.readouterr()
    assert "of bb" in shown.out
    assert "at least" in shown.out
    assert "estimated by impact, bounds that hold" in shown.err
    print_estimates(there.site, ("above",), ApproximationMethod.SAMPLE, "50%", OutputFormat.TABLE)
    assert "above is not estimated: it cannot be estimated, since it is not SELECT" in capsys.readouterr().err
    with pytest.raises(UsageError, match="sampling rate of 0"):
        print_estimates(there.site, (), ApproximationMethod.SAMPLE, "0", OutputFormat.TABLE)
