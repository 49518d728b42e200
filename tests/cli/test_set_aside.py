"""Landed files that cannot be taken in: each is set aside and named, and holds up no other file, stream or query."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.commands import Errata
from fixtures.kills import kill_while_running

HOUSE = Path(__file__).resolve().parents[2]

YAML = """\
project: p
streams:
  bad:
    columns: {at: bigint, of: string, price: int}
    key: [of, at]
    order: at
    landing: {path: ./landing/bad, settle: 0 seconds, then: move}
  good:
    columns: {at: bigint, of: string, price: int}
    key: [of, at]
    order: at
    landing: {path: ./landing/good, settle: 0 seconds, then: move}
queries:
  goods: {sql: goods.sql}
  bads: {sql: bads.sql}
"""
HEAD = "at,of,price\n"
SOUND = HEAD + "1,a,10\n1,b,5\n2,a,1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    (tmp_path / "errata.yaml").write_text(YAML)
    for name in ("good", "bad"):
        (tmp_path / f"{name}s.sql").write_text(f"SELECT sum(price) AS total FROM {name}")
        (tmp_path / "landing" / name).mkdir(parents=True)
    assert errata("apply", "--yes").code == 0
    return tmp_path


def _cut(path: Path) -> Path:
    text = HEAD + "".join(f"{number},x,{number * 7919 % 10_007}\n" for number in range(20_000))
    file = path / "x.csv.gz"
    file.write_bytes(gzip.compress(text.encode())[:-500])
    return file


def _cut_and_large(path: Path) -> Path:
    """Too large to be read without Spark."""
    text = HEAD + "".join(f"{number},{os.urandom(30).hex()},1\n" for number in range(60_000))
    file = path / "x.csv.gz"
    file.write_bytes(gzip.compress(text.encode())[:-500])
    return file


def _wrong_header(path: Path) -> Path:
    file = path / "x.csv"
    file.write_text("at,whom,price\n1,a,1\n")
    return file


def _not_utf8(path: Path) -> Path:
    file = Path(os.fsdecode(os.fsencode(path) + b"/x\xff.csv"))
    file.write_text(SOUND)
    return file


def _pipe(path: Path) -> Path:
    os.mkfifo(path / "x.csv")
    return path / "x.csv"


def _device(path: Path) -> Path:
    (path / "x.csv").symlink_to("/dev/zero")
    return path / "x.csv"


def _no_parquet(path: Path) -> Path:
    (path / "x.parquet").write_text("at,of")
    return path / "x.parquet"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_cut, "the gzip file is cut off"),
        (_cut_and_large, "the gzip file is cut off"),
        (_wrong_header, "unknown column 'whom'"),
        (_not_utf8, "the file's name is not UTF-8"),
        (_pipe, "this is a pipe, and no regular file"),
        (_device, "this is a device, and no regular file"),
        (_no_parquet, "this is not a Parquet file"),
    ],
)
def test_one_bad_file_is_set_aside_and_the_rest_goes_on(
    folder: Path, errata: Errata, make: Callable[[Path], Path], reason: str
) -> None:
    landing = folder / "landing"
    file = make(landing / "bad")
    for name in ("good/1.csv", "bad/1.csv"):
        (landing / name).write_text(SOUND)
    done = errata("run")
    assert done.code == 3
    assert "bad: 1 file set aside, nothing of which can be taken in" in done.err
    assert reason in done.err
    assert "Traceback" not in done.err
    for query in ("goods", "bads"):
        assert errata("results", query, "--format", "csv").out.splitlines()[1].endswith("16")
    assert os.path.lexists(file), "the file is left where it lies"

    held = errata("quarantine", "ls", "--format", "json")
    (told,) = map(json.loads, held.out.splitlines())
    assert (told["stream"], told["form"], told["state"], told["line"]) == ("bad", "file", "held", None)
    assert told["reason"].startswith(reason)
    assert "set aside" in errata("quarantine", "ls").err
    status = errata("status")
    assert "1 landed file of bad set aside: errata quarantine ls bad" in status.err

    again = errata("run")
    assert (again.code, again.err) == (0, "nothing is due: 2 queries are answered as far as the streams reach\n")


def test_a_file_that_is_mended_is_taken_in_by_the_next_run(folder: Path, errata: Errata) -> None:
    bad = _wrong_header(folder / "landing" / "bad")
    assert errata("run").code == 3
    bad.write_text(SOUND)
    assert errata("run").code == 0
    assert errata("quarantine", "ls").err == "nothing in quarantine\n"
    assert errata("results", "bads", "--format", "csv").out.splitlines()[1].endswith("16")


def test_a_file_that_was_set_aside_can_be_retried(folder: Path, errata: Errata) -> None:
    (folder / "landing" / "bad" / "x.csv").write_text("at,of,whom\n1,a,1\n")
    (folder / "landing" / "bad" / "y.csv").write_text("at,price\n1,1\n")
    assert errata("ingest", "bad", "--landed").code == 3
    still = errata("quarantine", "retry", "bad", "--file", "x.csv")
    assert (still.code, "1 file set aside" in still.err) == (3, True)
    (folder / "errata.yaml").write_text(YAML.replace("price: int}", "price: int, whom: string}", 1))
    assert errata("apply", "--yes").code == 0
    assert errata("run").code == 0, "it is not tried again by itself"
    done = errata("quarantine", "retry", "bad", "--reason", "whom")
    assert (done.code, "1 row appended" in done.err) == (0, True)
    (told,) = map(json.loads, errata("quarantine", "ls", "--format", "json").out.splitlines())
    assert told["file"].endswith("/y.csv")
    (folder / "landing" / "bad" / "y.csv").unlink()
    gone = errata("quarantine", "retry", "bad")
    assert (gone.code, gone.err) == (0, "bad: the file is gone\n")
    assert errata("quarantine", "ls").err == "nothing in quarantine\n"


def test_a_file_that_was_dropped_is_not_tried_again_and_stays(folder: Path, errata: Errata) -> None:
    bad = _wrong_header(folder / "landing" / "bad")
    assert errata("run").code == 3
    dropped = errata("quarantine", "drop", "bad", "--yes")
    assert (dropped.code, "1 file dropped from quarantine in commit" in dropped.err) == (0, True)
    assert errata("run").code == 0
    assert bad.exists()
    assert errata("quarantine", "ls").err == "nothing in quarantine\n"
    assert '"state":"dropped"' in errata("quarantine", "ls", "--all", "--format", "json").out
    assert "1 file dropped from quarantine" in errata("log").out
    assert "set aside" not in errata("status").err


def test_a_strict_batch_with_a_bad_file_takes_nothing_in(folder: Path, errata: Errata) -> None:
    _wrong_header(folder / "landing" / "bad")
    (folder / "landing" / "bad" / "1.csv").write_text(SOUND)
    done = errata("ingest", "bad", "--landed", "--strict")
    assert (done.code, "the batch is strict: nothing was taken in" in done.err) == (1, True)
    assert errata("log").out.count("append") == 0


def test_a_file_in_place_of_taken_is_trouble_of_its_stream_alone(folder: Path, errata: Errata) -> None:
    landing = folder / "landing"
    (landing / "bad" / "taken").write_text("")
    for name in ("good", "bad"):
        (landing / name / "1.csv").write_text(SOUND)
    done = errata("run")
    assert done.code == 1
    assert "landing/bad/taken is a file" in done.err
    for query in ("goods", "bads"):
        assert errata("results", query, "--format", "csv").out.splitlines()[1].endswith("16")
    assert (landing / "good" / "taken" / "1.csv").exists()
    # Nothing is taken in twice while it stands there, and all is well when it is gone.
    before = errata("log").out
    assert errata("run").code == 1
    assert errata("log").out == before
    (landing / "bad" / "taken").unlink()
    assert errata("run").code == 0
    assert (landing / "bad" / "taken" / "1.csv").exists()


def test_a_file_in_place_of_a_landing_folder_is_trouble_of_its_stream_alone(folder: Path, errata: Errata) -> None:
    shutil.rmtree(folder / "landing" / "bad")
    (folder / "landing" / "bad").write_text("")
    (folder / "landing" / "good" / "1.csv").write_text(SOUND)
    done = errata("run")
    assert (done.code, "the landing folder is a file" in done.err) == (1, True)
    assert errata("results", "goods", "--format", "csv").out.splitlines()[1].endswith("16")
    status = errata("status")
    assert (status.code, "what has landed of bad cannot be looked at" in status.err) == (0, True)


def test_programs_are_told_of_files_set_aside(folder: Path, errata: Errata) -> None:
    _wrong_header(folder / "landing" / "bad")
    records = [json.loads(line) for line in errata("run", "--format", "json").out.splitlines()]
    (told,) = [each for each in records if each["what"] == "file"]
    assert (told["name"], told["outcome"]) == ("bad", "set aside")
    assert told["fault"]["file"].endswith("landing/bad/x.csv")
    status = [json.loads(line) for line in errata("status", "--format", "json").out.splitlines()]
    assert {each["stream"]: each["set_aside"] for each in status} == {"bad": 1, "good": 0}


def test_the_job_of_airflow_takes_in_the_other_streams(folder: Path, errata: Errata) -> None:
    landing = folder / "landing"
    _cut(landing / "bad")
    for name in ("good/1.csv", "bad/1.csv"):
        (landing / name).write_text(SOUND)
    (landing / "good" / "taken").write_text("")
    job = [sys.executable, str(HOUSE / "jobs" / "append.py"), "--project", "errata.yaml", "--landed", "good", "bad"]
    done = subprocess.run(job, capture_output=True, text=True, timeout=120, check=False)
    # Rows of both are in; that files of one stream cannot be put away is a failure, and the last that is said.
    assert done.returncode == 1
    assert "x.csv.gz is set aside: the gzip file is cut off" in done.stderr
    assert done.stderr.count("3 rows appended") == 2
    assert "landing/good/taken is a file" in done.stderr.splitlines()[-2]
    (landing / "good" / "taken").unlink()
    _wrong_header(landing / "bad")
    for accepted, code in ((("--accept-quarantine",), 0), ((), 3)):
        os.utime(landing / "bad" / "x.csv", (code + 1, code + 1))
        done = subprocess.run([*job, *accepted], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        assert "unknown column 'whom'" in done.stderr


def test_a_run_that_is_killed_after_it_set_a_file_aside_loses_nothing(folder: Path, errata: Errata) -> None:
    bad = _wrong_header(folder / "landing" / "bad")
    (folder / "landing" / "bad" / "1.csv").write_text(SOUND)
    kill_while_running(folder, 1)
    assert "unknown column 'whom'" in errata("quarantine", "ls").out
    assert errata("run").code == 0
    assert errata("results", "bads", "--format", "csv").out.splitlines()[1].endswith("16")
    assert bad.exists()
    assert "1 landed file of bad set aside" in errata("status").err
