"""Commands that change something: init, apply, generate, ingest, age-out."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.declare.project import load_project
from fixtures.commands import Errata, lines


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


def test_init_writes_what_loads_and_says_what_is_next(
    errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = errata("init", "my-shop", "--project", "shop")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "made my-shop/errata.yaml, my-shop/landing/quotes/, my-shop/queries/avg_5m.sql, my-shop/.gitignore\n"
        "next:\n"
        "  cd my-shop\n"
        "  errata apply\n"
        "  errata generate quotes --rows 100000 --out feed\n"
        "  errata ingest quotes feed\n"
    )
    project = load_project(tmp_path / "my-shop")
    assert (project.name, list(project.streams)) == ("shop", ["quotes"])
    assert (tmp_path / "my-shop" / "landing" / "quotes").is_dir()


def test_what_init_has_commented_out_works(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    errata("init", "--project", "shop")
    text = (tmp_path / "errata.yaml").read_text()
    examples = re.sub(r"^# ((?:relations|queries):|  )", r"\1", text, flags=re.MULTILINE)
    assert "\nrelations:\n  companies:\n    kind: nrr" in examples
    (tmp_path / "errata.yaml").write_text(examples)
    done = errata("apply", "--yes")
    assert done.code == 0
    assert "+ create relation companies\n" in done.err
    assert "+ create query avg_5m of quotes\n" in done.err


def test_init_overwrites_nothing(errata: Errata, project: Path) -> None:
    before = (project / "errata.yaml").read_text()
    done = errata("init")
    assert done.code == 1
    assert "errata.yaml is there already" in done.err
    assert [path.name for path in project.iterdir()] == ["errata.yaml"]
    (project / "errata.yaml").unlink()
    (project / ".gitignore").write_text("mine\n")
    assert errata("init", "--project", "x").code == 0
    assert (project / ".gitignore").read_text() == "mine\n"
    assert before != (project / "errata.yaml").read_text()


def test_init_takes_the_folders_name_or_refuses_a_bad_one(errata: Errata, tmp_path: Path) -> None:
    assert errata("init", str(tmp_path / "my shop")).code == 0
    assert load_project(tmp_path / "my shop").name == "my_shop"
    assert errata("init", str(tmp_path / "other"), "--project", "a b").code == 2
    assert not (tmp_path / "other").exists()


PLAN = """\
+ create stream quotes
    columns time timestamp, symbol string, price double
    key time, symbol, ordered by time, grouped by symbol
    kept: 1 minute behind the stable point
"""


def test_apply_shows_the_plan_does_it_and_then_has_nothing_to_do(errata: Errata, project: Path) -> None:
    done = errata("apply", "--yes")
    assert (done.code, done.out) == (0, "")
    first, _, rest = done.err.partition("\n")
    assert first.startswith(f"+ make or bring up to date the catalog sqlite:///{project}/errata.db")
    assert rest == f"{PLAN}done in commit 1\n"
    again = errata("apply")
    assert (again.code, again.err) == (0, "nothing to do: the catalog agrees with what is declared\n")


REDUCE = """
    reduce:
      copies: [50%, 10%]
      on_read: {purge_after: 30 days}
      summaries:
        hourly: {window: 1 hour, group: [symbol], select: {n: count(*)}, when: read}
"""

REDUCED_PLAN = """\
    copies 50%, 10%
    on_read dropped above 50%, originals purged after 30 days
    summaries hourly: count(*) AS n by symbol, 1 hour, on read
"""


def test_apply_says_what_it_keeps_of_a_new_stream_at_reduced_resolution(errata: Errata, project: Path) -> None:
    file = project / "errata.yaml"
    file.write_text(file.read_text().rstrip() + REDUCE)
    done = errata("apply", "--yes")
    assert done.err.partition("\n")[2] == f"{PLAN}{REDUCED_PLAN}done in commit 1\n"


def test_apply_asks(errata: Errata, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = errata("apply")
    assert done.code == 2
    assert "there is no terminal to ask at" in done.err
    assert "--yes" in done.err
    assert not (project / "errata.db").exists()
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    done = errata("apply")
    assert (done.code, (project / "errata.db").exists()) == (1, False)
    assert done.err.endswith("do this? [y/N] nothing was done\n")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert errata("apply").code == 0
    assert (project / "errata.db").exists()


def test_apply_tells_changes_and_drops_in_words(errata: Errata, project: Path) -> None:
    assert errata("apply", "--yes").code == 0
    declared = project / "errata.yaml"
    whole = declared.read_text()
    declared.write_text(whole.replace("price: double", "price: double, venue: string").replace("1 minute", "2 hours"))
    assert errata("apply", "--yes").err == (
        "~ change stream quotes\n"
        "    column venue string added; older rows read NULL\n"
        "    retention 1 minute -> 2 hours\n"
        "done in commit 2\n"
    )
    declared.write_text(whole[: whole.index("streams:")])
    assert errata("apply", "--yes").err == "- drop stream quotes with no rows\ndone in commit 3\n"


def test_a_refused_change_says_how_to_mend_it(errata: Errata, taken: Path, tmp_path: Path) -> None:
    changed = tmp_path / "errata.yaml"
    text = (taken / "errata.yaml").read_text().replace("price: double", "price: string")
    changed.write_text(text.replace("sqlite:///errata.db", f"sqlite:///{taken}/errata.db"))
    done = errata("apply", "--yes", "--project", str(changed))
    assert done.code == 1
    assert "column price would change from double to string" in done.err
    assert "how to mend" in done.err


def test_generate_tells_what_it_wrote(errata: Errata, project: Path) -> None:
    done = errata("generate", "quotes", "--rows", "1000", "--rows-per-file", "500", "--mistakes", "2", "--late", "1")
    assert (done.code, done.out) == (0, "")
    assert done.err == "wrote 1,000 quotes, 1 late row, 2 mistakes, in 2 files in feed\n"
    assert len(list((project / "feed").iterdir())) == 2


def test_generate_takes_revisions_in_either_case(errata: Errata, project: Path) -> None:
    assert errata("generate", "quotes", "--rows", "10", "--revisions", "high", "--format", "JSON").code == 0
    done = errata("generate", "quotes", "--rows", "10", "--revisions", "HIHG")
    assert done.code == 2
    assert "did you mean HIGH?" in done.err


def test_generate_writes_several_feeds_of_the_same_events(errata: Errata, project: Path) -> None:
    options = ["--rows", "500", "--feeds", "2", "--files", "3", "--disorder", "0", "--adjusted", "0", "--stable", "0"]
    done = errata("generate", "feeds", *options, "--lag", "1 second")
    assert (done.code, done.out) == (0, "")
    assert done.err == "wrote 500 events as 1,002 elements of 2 feeds, in feeds\n"
    assert sorted(path.name for path in (project / "feeds").iterdir()) == ["feed_1", "feed_2"]
    assert len(list((project / "feeds" / "feed_2").iterdir())) == 3
    assert errata("generate", "feeds", "--rows", "5", "--missing", "2").code == 2


def test_ingest_reports_in_plain_words(errata: Errata, project: Path, spark: SparkSession) -> None:
    assert errata("apply", "--yes").code == 0
    (project / "one.csv").write_text(lines(range(20)) + "2026-11-18T02:00:19,IBM,104.75\n")
    done = errata("ingest", "quotes", "one.csv", "--batch-id", "first")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "quotes: 20 rows appended in commit 2 (batch first, 1 file)\n"
        "  1 row dropped: the same is there already\n"
        "  stable point 2026-11-18T02:00:14.000000: what comes from before it is late\n"
    )
    again = errata("ingest", "quotes", "one.csv", "--batch-id", "first")
    assert (again.code, again.err) == (
        0,
        "quotes: batch first was taken in before, in commit 2; nothing was changed\n",
    )
    bad = "".join(f"2026-11-18T02:00:{second},IBM,x\n" for second in range(30, 37))
    (project / "two.csv").write_text(lines([1, 2, 25]) + bad)
    done = errata("ingest", "quotes", "two.csv", "--batch-id", "second")
    assert done.code == 3
    assert done.err == (
        "quotes: 1 row appended in commit 3 (batch second, 1 file)\n"
        "  2 rows late or correcting earlier ones: kept as pending revisions\n"
        "  7 rows in quarantine:\n"
        + "".join(f"    two.csv:{line}: price: 'x' is not a double\n" for line in range(5, 10))
        + "    and 2 more: errata quarantine ls quotes\n"
        "  stable point 2026-11-18T02:00:20.000000: what comes from before it is late\n"
    )
    again = errata("ingest", "quotes", "two.csv", "--batch-id", "second")
    assert (again.code, "taken in before" in again.err) == (0, True)


def test_a_strict_batch_is_refused_whole(errata: Errata, project: Path, spark: SparkSession) -> None:
    assert errata("apply", "--yes").code == 0
    (project / "bad.csv").write_text(lines([1]) + "2026-11-18T02:00:30,IBM,x\n")
    done = errata("ingest", "quotes", "bad.csv", "--strict")
    assert done.code == 1
    assert "1 of 2 rows are bad, and the batch is strict" in done.err
    assert len(errata("log", "--format", "json").out.splitlines()) == 1


def test_landed_files_are_taken_once_they_have_settled(errata: Errata, project: Path, spark: SparkSession) -> None:
    assert errata("apply", "--yes").code == 0
    done = errata("ingest", "quotes", "--landed")
    assert (done.code, done.err) == (0, "quotes: nothing has landed\n")
    (project / "landing").mkdir()
    (project / "landing" / "a.csv").write_text(lines([1, 2]))
    assert "1 file of quotes landed: errata ingest quotes --landed" in errata("status").err
    done = errata("ingest", "quotes", "--landed")
    assert (done.code, done.err.startswith("quotes: 2 rows appended in commit 2")) == (0, True)
    assert [path.name for path in (project / "landing").rglob("*.csv")] == ["a.csv"]
    declared = project / "errata.yaml"
    declared.write_text(declared.read_text().replace("settle: 0 seconds", "settle: 1 hour"))
    assert errata("apply", "--yes").code == 0
    (project / "landing" / "b.csv").write_text(lines([3]))
    done = errata("ingest", "quotes", "--landed")
    assert (done.code, done.err) == (
        0,
        "quotes: nothing to take yet; 1 file changed a moment ago and is left until settled "
        "(`settle` in errata.yaml)\n",
    )


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["quots", "x.csv"], 2, "did you mean quotes?"),
        (["quotes"], 2, "name files, or take what has landed with --landed"),
        (["quotes", "absent.csv"], 2, "there is no file absent.csv"),
    ],
)
def test_bad_input_is_told(errata: Errata, taken: Path, argv: list[str], code: int, told: str) -> None:
    done = errata("ingest", *argv, "--project", str(taken))
    assert done.code == code
    assert told in done.err


def test_ageing_drops_what_is_past_the_retention(errata: Errata, project: Path, spark: SparkSession) -> None:
    assert errata("apply", "--yes").code == 0
    (project / "one.csv").write_text(lines(range(3)))
    (project / "two.csv").write_text(lines([59], minute=5))
    assert errata("archive", "age-out").err == "quotes: nothing is past the retention\n"
    assert errata("ingest", "quotes", "one.csv").code == errata("ingest", "quotes", "two.csv").code == 0
    done = errata("archive", "age-out", "quotes")
    assert (done.code, done.err) == (
        0,
        "quotes: 1 bucket with 3 rows up to 2026-11-18T02:00:02.000000 dropped in commit 4\n",
    )
    assert errata("archive", "scan", "quotes", "--format", "csv", "--limit", "9").out.count("IBM") == 1
    assert errata("archive", "scan", "quotes", "--format", "csv", "--limit", "9", "--as-of", "3").out.count("IBM") == 4
    assert errata("archive", "age-out", "nothing").code == 2
