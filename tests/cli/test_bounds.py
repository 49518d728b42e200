"""Hostile input: told in words, within a bound of time and memory, before anything is planned or done."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from errata.intake.source import LINE_BYTES
from fixtures.commands import Errata

DECLARED = """\
project: p
catalog: {catalog}
warehouse: {warehouse}
streams:
  q:
    columns: {{at: bigint, of: string, price: {type}}}
    key: [of, at]
    order: at
    slack: {slack}
    retention: {retention}
    bucket_rows: {bucket_rows}
    landing: {{path: {landing}, settle: {settle}}}
  other:
    columns: {{at: bigint}}
    key: [at]
    order: at
    landing: {{path: ./landing/other}}
queries:
  total: {query}
"""
SOUND = {
    "catalog": '"sqlite:///errata.db"',
    "warehouse": "./warehouse",
    "type": "int",
    "slack": "0",
    "retention": "1000 rows",
    "bucket_rows": "1000",
    "landing": "./landing/q",
    "settle": "0 seconds",
    "query": "total.sql",
}
DIGITS = "9" * 5_000
LETTERS = "x" * 5_000
MEMORY = 3 << 30
"""Bytes that a command may map; what reads without a bound needs more."""


def write(folder: Path, **changes: str) -> None:
    (folder / "errata.yaml").write_text(DECLARED.format(**{**SOUND, **changes}))
    (folder / "total.sql").write_text("SELECT sum(price) AS total FROM q")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    write(tmp_path)
    return tmp_path


def bounded(*argv: str, seconds: int = 60, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which may take so much memory and time."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, "-c", "import sys; from errata.cli import main; sys.exit(main())", *argv],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        preexec_fn=limits,
    )


@pytest.mark.parametrize(
    ("what", "value", "says"),
    [
        ("type", f'"decimal({DIGITS},2)"', "has 5,000 digits"),
        ("slack", DIGITS, "has 5,000 digits"),
        ("retention", f"{DIGITS} rows", "has 5,000 digits"),
        ("retention", f"{DIGITS} units", "has 5,000 digits"),
        ("bucket_rows", DIGITS, "has 5,000 digits"),
        ("settle", f"{DIGITS} days", "has 5,000 digits"),
        ("settle", "999999999999999999 days", "too long a duration"),
        ("catalog", "postgresql://u:secret@localhost:port/db", "its port is a number"),
        ("catalog", '"postgresql://u:secret@[::1/db"', "the catalog's URL cannot be read"),
        ("catalog", '"sqlite:///a\\0b"', "a path has no NUL in it"),
        ("catalog", f"sqlite:///{LETTERS}", "too long for a path"),
        ("catalog", "sqlite:////proc/errata.db", "the catalog cannot be at /proc/errata.db"),
        ("warehouse", '"a\\0b"', "a path has no NUL in it"),
        ("warehouse", LETTERS, "too long for a path"),
        ("warehouse", "~nobody-of-this-name/w", "is nobody's home folder here"),
        ("warehouse", "http://host/w", "a warehouse cannot be at http://"),
        ("warehouse", "s3://bucket/w", "its driver is not installed"),
        ("warehouse", "nosuch://host/w", "this cannot be a path"),
        ("warehouse", "./total.sql/w", "total.sql is no folder"),
        ("landing", '"a\\0b"', "a path has no NUL in it"),
        ("landing", LETTERS, "too long for a path"),
        ("landing", "/", "it is the whole disk"),
        ("landing", "./warehouse/in", "it is in the warehouse"),
        ("landing", ".", "the warehouse is in it"),
        ("landing", "/proc/self", "/proc is the system's own"),
        ("landing", "/sys/in", "/sys is the system's own"),
        ("landing", "/dev/shm/in", "/dev is the system's own"),
        ("landing", "http://host/in", "what lands at http:// cannot be watched"),
        ("landing", "s3://bucket/in", "its driver is not installed"),
        ("landing", "./landing/other/deeper", "files land for q in"),
        ("landing", "./total.sql", "total.sql is no folder"),
        ("query", '"a\\0.sql"', "a path has no NUL in it"),
        ("query", f"{LETTERS}.sql", "too long for a path"),
        ("query", "/dev/zero", "/dev/zero is no regular file"),
        ("query", "./pipe.sql", "./pipe.sql is no regular file"),
        ("query", "./endless.sql", "./endless.sql is longer than 4 MiB"),
    ],
)
def test_apply_refuses_before_it_shows_a_plan(folder: Path, errata: Errata, what: str, value: str, says: str) -> None:
    os.mkfifo(folder / "pipe.sql")
    with (folder / "endless.sql").open("wb") as file:
        file.truncate(64 << 30)  # sparse: it takes no room
    write(folder, **{what: value})
    before = sorted(path.name for path in folder.iterdir())
    done = errata("apply", "--yes")
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "create stream" not in done.err
    assert "unexpectedly" not in done.err
    assert "secret" not in done.err
    assert max(map(len, done.err.splitlines())) < 1_500
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing was made"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT cast(price AS decimal({DIGITS},2)) AS x FROM q",
        f"SELECT {DIGITS} AS x FROM q",
        f"SELECT {DIGITS}L AS x FROM q",
        f"SELECT substring(of, {DIGITS}) AS x FROM q",
        f"SELECT sum(price) AS x FROM sliding(q, {DIGITS})",
        f"SELECT sum(price) AS x FROM q GROUP BY row_window({DIGITS})",
        "SELECT sum(price) AS x FROM sliding(q, ²)",
        "SELECT price \0 FROM q",
    ],
)
def test_a_query_of_endless_numbers_is_refused_with_its_place(folder: Path, errata: Errata, sql: str) -> None:
    (folder / "total.sql").write_text(sql)
    done = errata("apply", "--yes")
    assert (done.code, "unexpectedly" in done.err) == (2, False)
    assert "total.sql:1" in done.err


@pytest.fixture
def applied(folder: Path, errata: Errata) -> Path:
    assert errata("apply", "--yes").code == 0
    return folder


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("ingest", "q", f"{LETTERS}.csv"), "File name too long"),
        (("ingest", "q", "s3://bucket/x.csv"), "s3:// cannot be opened here: its driver is not installed"),
        (("ingest", "q", "http://user:secret@127.0.0.1:9/x.csv"), "http:// cannot be opened here"),
        (("ingest", "q", "nosuch://host/x.csv"), "this cannot be a path"),
        (("ingest", "q", "pipe.csv"), "this is a pipe, and no regular file"),
        (("ingest", "q", "device.csv"), "this is a device, and no regular file"),
        (("ask", LETTERS), "neither a query's name nor a file"),
        (("explain", LETTERS), "neither a query's name nor a file"),
        (("ask", "/dev/zero"), "neither a query's name nor a file"),
        (("ask", "endless.sql"), "endless.sql is longer than 4 MiB"),
        (("--project", LETTERS, "status"), "there is no file"),
        (("--project", "/dev/zero", "status"), "there is no file"),
        (("--project", "endless.sql", "status"), "endless.sql is longer than 16 MiB"),
        (("ask", "total", "--as-of", DIGITS), "has 5,000 digits"),
        (("archive", "scan", "q", "--as-of", DIGITS), "has 5,000 digits"),
        (("archive", "vacuum", "--grace", f"{DIGITS} days"), "has 5,000 digits"),
        (("archive", "scan", "q", "--format", "parquet", "--out", LETTERS), "cannot have this name"),
    ],
)
def test_arguments_without_bounds_are_refused_in_words(
    applied: Path, errata: Errata, argv: tuple[str, ...], says: str
) -> None:
    os.mkfifo(applied / "pipe.csv")
    (applied / "device.csv").symlink_to("/dev/zero")
    with (applied / "endless.sql").open("wb") as file:
        file.truncate(64 << 30)
    done = errata(*argv)
    assert done.code in (1, 2)
    assert says in done.err
    assert "unexpectedly" not in done.err
    assert "secret" not in done.err
    assert max(map(len, done.err.splitlines())) < 1_500


def test_an_input_without_end_is_read_within_a_bound(applied: Path) -> None:
    with Path("/dev/zero").open("rb") as zero:
        done = bounded("ask", "-", stdin=zero.fileno())
    assert (done.returncode, "the input is longer than 4 MiB" in done.stderr) == (2, True)


def _bomb(path: Path, head: bytes, ending: str, size: int) -> Path:
    """A gzipped file of one line that unpacks to so many bytes."""
    file = path / f"bomb{ending}"
    with gzip.open(file, "wb", compresslevel=1) as out:
        out.write(head)
        for _ in range(size >> 22):
            out.write(b"x" * (1 << 22))
    return file


@pytest.mark.parametrize(("ending", "head"), [(".csv.gz", b"at,of,price\n1,"), (".jsonl.gz", b'{"at": 1, "of": "')])
def test_a_gzipped_file_of_one_endless_line_is_refused_soon(
    applied: Path, errata: Errata, ending: str, head: bytes
) -> None:
    size = 512 << 20
    bomb = _bomb(applied, head, ending, size)
    assert bomb.stat().st_size < 40_000_000
    done = errata("ingest", "q", bomb.name)
    assert done.code == 1
    assert f"{bomb.name}: a line is longer than {LINE_BYTES >> 20} MiB" in done.err
    assert "how to mend" in done.err
    assert "java" not in done.err.lower()


@pytest.mark.parametrize("size", [LINE_BYTES, pytest.param(3 * LINE_BYTES, marks=pytest.mark.long)])
def test_a_line_is_bounded_wherever_it_stands(applied: Path, errata: Errata, size: int) -> None:
    """Also where it begins in one piece of the file and ends in another."""
    row = "1,a,1\n"
    before = "at,of,price\n" + "".join(f"{number},a,1\n" for number in range(1_000))
    with (applied / "long.csv").open("w") as file:
        file.write(before)
        file.write("7," + "y" * size + ",1\n")
        file.write(row)
    done = errata("ingest", "q", "long.csv")
    assert done.code == 1
    assert f"it begins at byte {len(before):,}," in done.err
    with (applied / "fits.csv").open("w") as file:
        file.write("at,of,price\n7," + "y" * (LINE_BYTES - 10) + ",1\n")
    fits = errata("ingest", "q", "fits.csv")
    assert (fits.code, "1 row appended" in fits.err) == (0, True)


def test_a_header_is_bounded(applied: Path, errata: Errata) -> None:
    (applied / "head.csv").write_text("at," * 1_000_000 + "of\n1,a\n")
    done = errata("ingest", "q", "head.csv")
    assert (done.code, "the header is longer than 1 MiB" in done.err) == (1, True)


def test_a_landed_bomb_is_set_aside_and_the_rest_goes_on(applied: Path, errata: Errata) -> None:
    landing = applied / "landing" / "q"
    landing.mkdir(parents=True)
    _bomb(landing, b"at,of,price\n1,", ".csv.gz", size=256 << 20)
    (landing / "1.csv").write_text("at,of,price\n1,a,1\n")
    done = errata("run")
    assert (done.code, "a line is longer than" in done.err) == (3, True)
    assert "1 row appended" in done.err
    (told,) = map(json.loads, errata("quarantine", "ls", "--format", "json").out.splitlines())
    assert told["file"].endswith("bomb.csv.gz")
