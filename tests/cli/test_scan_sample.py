"""`errata archive scan --rate` and `--reduce`: a sample of a stream's rows, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from errata.cli import main
from fixtures.commands import Errata, lines

COPIES = "    reduce: {copies: [50%]}\n    landing:"


@pytest.fixture
def applied(project: Path) -> Path:
    assert main(["apply", "--yes"]) == 0
    return project


@pytest.fixture
def filled(applied: Path, errata: Errata) -> Path:
    """Rows of two minutes, the second of them in a stream that has copies by then."""
    file = applied / "first.csv"
    file.write_text(lines(range(60)))
    assert errata("ingest", "quotes", str(file)).code == 0
    return applied


def scanned(errata: Errata, *options: str) -> list[dict[str, object]]:
    done = errata("archive", "scan", "quotes", "--format", "json", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_sample_is_part_of_all_rows_and_says_what_it_is(filled: Path, errata: Errata) -> None:
    every = [row["time"] for row in scanned(errata)]
    half, few = scanned(errata, "--rate", "50%"), scanned(errata, "--reduce", "uniform(0.2)")
    assert {row["time"] for row in few} < {row["time"] for row in half} < set(every)
    assert all(str(row["_reduced"]).startswith("quotes at 50%") for row in half)
    assert scanned(errata, "--rate", "0.5") == half
    by_age = scanned(errata, "--reduce", "by_age('10 seconds', 0.5)")
    assert {row["time"] for row in by_age} >= set(every[-10:])
    done = errata("archive", "scan", "quotes", "--rate", "0.001%")
    assert (done.code, "it saved nothing" in done.err) == (0, True)


def test_all_rows_are_what_they_are_without_a_rate(filled: Path, errata: Errata) -> None:
    assert scanned(errata, "--rate", "100%") == scanned(errata)
    assert "all rows were read" in errata("archive", "scan", "quotes", "--rate", "1").err


def test_copies_that_are_declared_are_read(filled: Path, errata: Errata) -> None:
    before = {row["time"] for row in scanned(errata, "--rate", "0.3")}
    declared = (filled / "errata.yaml").read_text()
    (filled / "errata.yaml").write_text(declared.replace("    landing:", COPIES, 1))
    done = errata("apply", "--yes")
    assert done.code == 0
    assert "copies none -> 50%" in done.out + done.err
    (filled / "second.csv").write_text(lines(range(60), minute=1))
    assert errata("ingest", "quotes", str(filled / "second.csv")).code == 0
    done = errata("archive", "scan", "quotes", "--rate", "0.3")
    assert "copies at 50% (1 bucket)" in done.err
    assert "originals (1 bucket)" in done.err
    assert before < {row["time"] for row in scanned(errata, "--rate", "0.3")}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "0"), "a sampling rate of 0 cannot be read"),
        (("--rate", "150%"), "a sampling rate of 1.5 cannot be read"),
        (("--rate", "some"), "is not a sampling rate"),
        (("--rate", "0.1", "--reduce", "uniform(0.1)"), "are both given"),
        (("--reduce", "by_agge('1 day', 0.5)"), "did you mean by_age"),
        (("--reduce", "uniform(0.1) WHERE price > 1"), "not expected behind a reduction"),
    ],
)
def test_a_wrong_reduction_is_refused(applied: Path, errata: Errata, options: tuple[str, ...], said: str) -> None:
    done = errata("archive", "scan", "quotes", *options)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "how to mend" in done.err
