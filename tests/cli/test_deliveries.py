"""What makes a delivery the same one: corrections that say again what was said before, retries, and batches undone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.commands import Errata

YAML = """\
project: p
streams:
  sales:
    columns: {at: bigint, of: string, price: int}
    key: [of, at]
    order: at
    landing: {path: ./landing, settle: 0 seconds, then: %s}
queries:
  total: total.sql
"""
HEAD = "at,of,price,_op\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata) -> Path:
    return declared(tmp_path, monkeypatch, errata, "move")


def declared(folder: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata, then: str) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    (folder / "errata.yaml").write_text(YAML % then)
    (folder / "total.sql").write_text("SELECT sum(price) AS total FROM sales")
    (folder / "landing").mkdir()
    assert errata("apply", "--yes").code == 0
    return folder


def land(folder: Path, name: str, text: str, at: int) -> Path:
    path = folder / "landing" / name
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def total(errata: Errata) -> str:
    return errata("results", "total", "--format", "csv").out.splitlines()[1].split(",")[-1]


def prices(errata: Errata) -> list[str]:
    done = errata("archive", "scan", "sales", "--format", "csv")
    return done.out.splitlines()[1:]


@pytest.mark.parametrize("then", ["move", "delete", "keep"])
def test_a_correction_that_repeats_an_earlier_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata, then: str
) -> None:
    folder = declared(tmp_path, monkeypatch, errata, then)
    land(folder, "0.csv", HEAD + "1,a,10,\n1,b,5,\n", 1000)
    assert errata("run").code == 0
    said = [("1.csv", 11), ("2.csv", 10), ("3.csv", 11)]
    for number, (name, price) in enumerate(said):
        land(folder, name, HEAD + f"1,a,{price},replace\n", 1001 + number)
        assert errata("run").code == 0
        assert total(errata) == str(price + 5), name


def test_a_correction_under_the_same_name_counts_when_it_lands_again(folder: Path, errata: Errata) -> None:
    land(folder, "0.csv", HEAD + "1,a,10,\n1,b,5,\n", 1000)
    assert errata("run").code == 0
    for number, price in enumerate((11, 10, 11, 10)):
        land(folder, "fix.csv", HEAD + f"1,a,{price},replace\n", 1001 + number)
        assert errata("run").code == 0
        assert total(errata) == str(price + 5)
    assert len(list((folder / "landing" / "taken").iterdir())) == 5


def test_corrections_that_repeat_each_other_before_they_are_applied_count(folder: Path, errata: Errata) -> None:
    (folder / "0.csv").write_text(HEAD + "1,a,10,\n1,b,5,\n")
    assert errata("ingest", "sales", "0.csv").code == 0
    for name, price in (("1.csv", 11), ("2.csv", 10), ("3.csv", 11)):
        (folder / name).write_text(HEAD + f"1,a,{price},replace\n")
        assert errata("ingest", "sales", name).code == 0
    assert errata("run").code == 0
    assert total(errata) == "16"


def test_a_delivery_of_a_name_and_content_is_taken_in_once(folder: Path, errata: Errata) -> None:
    (folder / "0.csv").write_text(HEAD + "1,a,10,\n1,b,5,\n")
    assert errata("ingest", "sales", "0.csv").code == 0
    before = errata("log", "--format", "csv").out
    os.utime(folder / "0.csv", (1, 1))
    again = errata("ingest", "sales", "0.csv")
    assert again.code == 0
    assert "was taken in before, in commit 2; nothing was changed" in again.err
    assert "--again" in again.err
    assert errata("log", "--format", "csv").out == before


def test_equal_rows_under_another_name_are_dropped_and_counted(folder: Path, errata: Errata) -> None:
    (folder / "0.csv").write_text(HEAD + "1,a,10,\n1,b,5,\n")
    assert errata("ingest", "sales", "0.csv", "--batch-id", "monday").code == 0
    (folder / "1.csv").write_text((folder / "0.csv").read_text())
    again = errata("ingest", "sales", "1.csv")
    assert again.code == 0
    assert "2 rows dropped: the same is there already" in again.err
    assert "another delivery of what batch monday said before" in again.err
    assert prices(errata) == ["1,a,10", "1,b,5"]


def test_of_named_files_those_taken_in_before_are_left_out(folder: Path, errata: Errata) -> None:
    (folder / "0.csv").write_text(HEAD + "1,a,10,\n")
    (folder / "1.csv").write_text(HEAD + "2,b,5,\n")
    assert errata("ingest", "sales", "0.csv").code == 0
    done = errata("ingest", "sales", "0.csv", "1.csv")
    assert done.code == 0
    assert "0.csv left out, taken in before with batch" in done.err
    assert "1 row appended in commit 3" in done.err
    again = errata("ingest", "sales", "1.csv", "0.csv")
    assert (again.code, "nothing was changed" in again.err) == (0, True)


def test_the_same_id_is_the_same_delivery_and_another_id_another_one(folder: Path, errata: Errata) -> None:
    (folder / "0.csv").write_text(HEAD + "1,a,10,\n")
    assert errata("ingest", "sales", "0.csv", "--batch-id", "monday").code == 0
    assert "nothing was changed" in errata("ingest", "sales", "0.csv", "--batch-id", "monday").err
    tuesday = errata("ingest", "sales", "0.csv", "--batch-id", "tuesday")
    assert (tuesday.code, "1 row dropped" in tuesday.err) == (0, True)
    (folder / "0.csv").write_text(HEAD + "1,a,11,\n")
    refused = errata("ingest", "sales", "0.csv", "--batch-id", "monday")
    assert (refused.code, "with other content" in refused.err) == (1, True)


@pytest.mark.parametrize("given", [("--batch-id", "monday"), ()])
def test_a_batch_that_was_undone_can_be_taken_in_again(folder: Path, errata: Errata, given: tuple[str, ...]) -> None:
    (folder / "0.csv").write_text(HEAD + "1,a,10,\n1,b,5,\n9,c,1,\n")
    first = errata("ingest", "sales", "0.csv", *given)
    name = "monday" if given else first.err.split("(batch ")[1][:12]
    whole = prices(errata)
    for _ in range(2):
        undone = errata("undo", "sales", name, "--yes")
        assert (undone.code, prices(errata)) == (0, [])
        again = errata("ingest", "sales", "0.csv", *given)
        assert again.code == 0
        assert "had been undone in commit" in again.err
        assert errata("revise", "sales").code == 0
        assert prices(errata) == whole
        same = errata("ingest", "sales", "0.csv", *given)
        assert (same.code, "nothing was changed" in same.err) == (0, True)
    assert errata("doctor").code == 0


def test_a_landed_file_that_is_put_back_after_an_undo_is_taken_in_again(folder: Path, errata: Errata) -> None:
    land(folder, "0.csv", HEAD + "1,a,10,\n", 1000)
    batch = errata("ingest", "sales", "--landed").err.split("(batch ")[1][:12]
    assert errata("undo", "sales", batch, "--yes").code == 0
    assert (errata("ingest", "sales", "--landed").code, prices(errata)) == (0, [])
    (folder / "landing" / "taken" / "0.csv").rename(folder / "landing" / "0.csv")
    again = errata("ingest", "sales", "--landed")
    assert (again.code, "had been undone" in again.err) == (0, True)
    assert errata("revise").code == 0
    assert prices(errata) == ["1,a,10"]


def test_an_undo_outlasts_the_next_run_over_kept_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata
) -> None:
    folder = declared(tmp_path, monkeypatch, errata, "keep")
    land(folder, "0.csv", HEAD + "1,a,10,\n", 1000)
    batch = errata("ingest", "sales", "--landed").err.split("(batch ")[1][:12]
    assert errata("undo", "sales", batch, "--yes").code == 0
    assert errata("ingest", "sales", "--landed").code == 0
    assert prices(errata) == []
    named = errata("ingest", "sales", "landing/0.csv")
    assert (named.code, "had been undone" in named.err) == (0, True)


def test_a_landed_file_named_where_it_was_put_away_is_the_same_delivery(folder: Path, errata: Errata) -> None:
    land(folder, "0.csv", HEAD + "1,a,10,\n", 1000)
    assert errata("ingest", "sales", "--landed").code == 0
    again = errata("ingest", "sales", "landing/taken/0.csv")
    assert (again.code, "nothing was changed" in again.err) == (0, True)


def test_kept_files_are_known_when_their_project_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    folder = declared(before, monkeypatch, errata, "keep")
    land(folder, "0.csv", HEAD + "1,a,10,\n", 1000)
    assert errata("ingest", "sales", "--landed").code == 0
    after = before.rename(tmp_path / "after")
    monkeypatch.chdir(after)
    assert errata("apply", "--yes").code == 0
    assert "nothing has landed" in errata("ingest", "sales", "--landed").err
