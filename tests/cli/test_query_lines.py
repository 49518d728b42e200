"""What `errata status` says of queries whose corrections wait, were refused, or are not to reach the results."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from errata.cli.status import print_queries, query_hints
from errata.model.commit import RefusedRevisions
from errata.model.query import CheckedQuery, Query
from errata.model.results import UpdatePattern
from errata.model.stream import RevisionPolicy
from errata.read.status import DeclarationState, QueryProgress, QueryStatus
from errata.read.wording import OutputFormat


def checked(policy: RevisionPolicy) -> CheckedQuery:
    return CheckedQuery(Query("q", "SELECT", ""), (), (), ("quotes",), UpdatePattern.WEAK, policy, "", "")


PLAIN = QueryStatus("q", DeclarationState.AGREED, checked(RevisionPolicy.RESULTS), QueryProgress.CURRENT, pending=2)
REFUSED = RefusedRevisions("quotes", 4, 6, 3, "the results are made of rows of quotes that have been aged out")


def printed(capsys: pytest.CaptureFixture[str], each: QueryStatus) -> tuple[list[str], dict[str, object]]:
    """The columns that a person is shown, and what a program is told."""
    print_queries([each], OutputFormat.TABLE, None)
    header = capsys.readouterr().out.splitlines()[0].split("  ")
    print_queries([each], OutputFormat.JSON, None)
    return [name.strip() for name in header if name.strip()], json.loads(capsys.readouterr().out)


def test_what_says_nothing_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    columns, told = printed(capsys, PLAIN)
    assert not {"corrections", "refused", "on_revision", "left out"} & set(columns)
    assert (told["deferred"], told["refused"], told["on_revision"]) == (None, [], "results")
    assert list(query_hints([PLAIN])) == []


def test_corrections_that_wait(capsys: pytest.CaptureFixture[str]) -> None:
    waits = replace(PLAIN, deferred="waits until 3 revisions have come; 2 have")
    columns, told = printed(capsys, waits)
    assert "corrections" in columns
    assert told["deferred"] == "waits until 3 revisions have come; 2 have"
    assert list(query_hints([waits])) == [
        "query q: 2 corrections pending; it waits until 3 revisions have come; 2 have, or for errata sweep q"
    ]
    applied = replace(waits, missing_revisions={"quotes": 1}, deferred="waits for `errata sweep`")
    assert list(query_hints([applied])) == [
        "query q: 1 correction of quotes is not in the answers; it waits for `errata sweep`"
    ]
    due = replace(PLAIN, missing_revisions={"quotes": 2})
    assert list(query_hints([due])) == ["query q: 2 corrections of quotes are not in the answers: errata sweep q"]


def test_corrections_that_were_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused = replace(PLAIN, refused=(REFUSED,))
    columns, told = printed(capsys, refused)
    assert "refused" in columns
    assert told["refused"] == [{"source": "quotes", "first": 4, "last": 6, "count": 3, "reason": REFUSED.reason}]
    assert list(query_hints([refused])) == [
        f"q: 3 corrections of quotes (4 to 6) cannot be taken up: {REFUSED.reason}",
    ]
    lines = list(query_hints([refused] * 7))
    assert lines[-1] == "and of 2 more queries: errata status --queries --format json"
    assert len(lines) == 6


@pytest.mark.parametrize("policy", [RevisionPolicy.HISTORY, RevisionPolicy.IGNORE])
def test_a_policy_that_is_weaker_than_it_could_be(capsys: pytest.CaptureFixture[str], policy: RevisionPolicy) -> None:
    columns, told = printed(capsys, replace(PLAIN, checked=checked(policy)))
    assert "on_revision" in columns
    assert told["on_revision"] == policy.value
