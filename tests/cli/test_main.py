"""The door: arguments, exit codes, failures in words, and a start that waits for nothing it does not need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import errata as package
from errata.cli.main import LazyCommand, program
from errata.errors import ErrataError
from fixtures.commands import Errata, lines

MAX_INGEST_MODULES = 70
"""Modules of this package that a process has loaded after taking in a small file. Each costs about a millisecond of the
command's start, and is a place that a reader of the code may have to know."""


def doors() -> dict[str, LazyCommand]:
    found = {}
    for name, command in program().commands.items():
        below = command.commands if isinstance(command, TyperGroup) else {"": command}
        found |= {f"{name} {inner}".strip(): each for inner, each in below.items()}
    return {name: each for name, each in found.items() if isinstance(each, LazyCommand)}


def test_help_lists_the_commands(errata: Errata) -> None:
    done = errata("--help")
    assert done.code == 0
    assert "..." not in done.out.split("Commands:")[1], "each purpose fits in its line"
    listed = "init apply generate ingest run quarantine archive log status bench demo"
    for name in listed.split():
        assert f"\n  {name} " in done.out


@pytest.mark.parametrize("name", doors())
def test_each_command_has_help_of_its_own(errata: Errata, name: str) -> None:
    done = errata(*name.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Usage: errata {name} " in done.out


def test_the_version(errata: Errata) -> None:
    assert errata("--version").out == f"errata {package.__version__}\n"


def test_no_command_is_a_question_of_usage(errata: Errata) -> None:
    assert errata().code == 2
    assert errata("archive").code == 2


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["stats"], "Did you mean 'status'?"),
        (["archive", "scann"], "Did you mean 'scan'?"),
        (["log", "--lost", "1"], "--last"),
        (["log", "--last", "many"], "'--last'"),
        (["log", "--format", "xml"], "'table', 'json', 'csv'"),
        (["ingest"], "STREAM"),
    ],
)
def test_wrong_usage_exits_2_and_names_what_was_meant(errata: Errata, argv: list[str], told: str) -> None:
    done = errata(*argv)
    assert done.code == 2
    assert done.out == ""
    assert told in done.err


def test_a_folder_without_a_project_says_so(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    done = errata("status")
    assert done.code == 2
    assert "there is no errata.yaml" in done.err
    assert "how to mend: `errata init`" in done.err


@pytest.mark.parametrize("place", ["before", "after", "joined"])
def test_the_project_may_be_named_anywhere(
    errata: Errata, project: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir("/")
    said = [f"--project={project}"] if place == "joined" else ["--project", str(project)]
    done = errata(*said, "apply", "--yes") if place == "before" else errata("apply", *said, "--yes")
    assert (done.code, (project / "errata.db").exists()) == (0, True)


def failing(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make every command end by an error."""

    def prepare(error: BaseException) -> None:
        def load(_: LazyCommand) -> object:
            app = typer.Typer(add_completion=False)
            app.command()(failing(error))
            return typer.main.get_command(app)

        monkeypatch.setattr(LazyCommand, "load", load)

    return prepare


def test_an_unforeseen_failure_is_one_sentence(errata: Errata, fail: Callable[[BaseException], None]) -> None:
    fail(ZeroDivisionError("division by zero\nmore"))
    done = errata("log")
    assert done.code == 1
    assert done.err == (
        "errata failed unexpectedly: ZeroDivisionError: division by zero; --debug (or ERRATA_DEBUG=1) shows where\n"
    )


def test_debug_shows_where(
    errata: Errata, fail: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(ErrataError("no", why="because"))
    assert errata("log").err == "no\n  why: because\n"
    done = errata("log", "--debug")
    assert "Traceback" in done.err
    assert done.err.endswith("no\n  why: because\n")
    monkeypatch.setenv("ERRATA_DEBUG", "1")
    assert "Traceback" in errata("log").err


def test_an_interrupt_is_one_line(errata: Errata, fail: Callable[[BaseException], None]) -> None:
    fail(KeyboardInterrupt())
    done = errata("log")
    assert done.code == 130
    assert done.err.count("\n") == 1
    assert done.err.startswith("stopped")


def test_a_failure_that_an_interrupt_led_to_is_an_interrupt(
    errata: Errata, fail: Callable[[BaseException], None]
) -> None:
    cancelled = ErrataError("the Spark job failed")
    cancelled.__cause__ = RuntimeError("cancelled")
    cancelled.__cause__.__context__ = KeyboardInterrupt()
    fail(cancelled)
    done = errata("log")
    assert (done.code, done.err.startswith("stopped"), "failed" in done.err) == (130, True, False)


def run_python(program_text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program_text], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


STARTED = """
import sys
from errata.cli import main
for argv in {commands}:
    assert main(argv) == 0, argv
print(sorted({heavy} & sys.modules.keys()), file=sys.stderr)
"""


def test_help_loads_neither_spark_nor_the_catalog(tmp_path: Path) -> None:
    commands = [["--help"], ["archive", "--help"], ["--version"]]
    text = STARTED.format(commands=commands, heavy={"pyspark", "sqlalchemy", "pyarrow", "numpy", "pandas"})
    done = run_python(text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_commands_that_need_no_spark_load_none(project: Path) -> None:
    commands = [
        ["apply", "--yes"],
        ["log", "--format", "csv"],
        ["status", "--format", "json"],
        ["quarantine", "ls"],
        ["quarantine", "drop", "quotes"],
        ["archive", "ls", "quotes"],
        ["archive", "stats"],
        ["archive", "age-out"],
        ["archive", "vacuum"],
        ["explain", "--sql", "SELECT symbol FROM quotes"],
        ["generate", "quotes", "--rows", "10"],
    ]
    done = run_python(STARTED.format(commands=commands, heavy={"pyspark", "pandas"}), project)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "[]"), done.stderr


def loaded_after(commands: list[list[str]], folder: Path) -> set[str]:
    """The modules that a fresh process has loaded when the commands are done."""
    text = f"""import sys
from errata.cli import main
for argv in {commands}:
    assert main(argv) == 0, argv
print(*sorted(sys.modules), file=sys.stderr)"""
    done = run_python(text, folder)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_ingesting_a_small_file_loads_few_modules_and_no_spark(project: Path, errata: Errata) -> None:
    assert errata("apply", "--yes").code == 0
    (project / "one.csv").write_text(lines(range(20)))
    loaded = loaded_after([["ingest", "quotes", "one.csv"]], project)
    assert not {"pyspark", "sqlglot", "alembic"} & loaded
    own = {each for each in loaded if each.split(".")[0] == "errata"}
    assert len(own) <= MAX_INGEST_MODULES, sorted(own)


def test_reading_rows_and_ageing_load_no_parser(project: Path, errata: Errata) -> None:
    assert errata("apply", "--yes").code == 0
    (project / "one.csv").write_text(lines(range(20)))
    assert errata("ingest", "quotes", "one.csv").code == 0
    key = "symbol=IBM,time=2026-11-18T02:00:00"
    commands = [["archive", "scan", "quotes"], ["archive", "age-out"], ["history", "quotes", key]]
    assert "sqlglot" not in loaded_after(commands, project)


def test_importing_errata_loads_next_to_nothing(tmp_path: Path) -> None:
    heavy = {"pyspark", "pyarrow", "sqlalchemy", "numpy", "typer"}
    done = run_python(f"import sys, errata; errata.table; print(sorted({heavy} & sys.modules.keys()))", tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_reader_that_has_gone_is_no_failure(project: Path, errata: Errata) -> None:
    assert errata("apply", "--yes").code == 0
    program_text = (
        "import os, sys\nfrom errata.cli import main\nreading, writing = os.pipe()\nos.close(reading)\n"
        "os.dup2(writing, 1)\nsys.exit(main(['log', '--format', sys.argv[1]]))"
    )
    for kind in ("table", "csv"):
        done = subprocess.run(
            [sys.executable, "-c", program_text, kind],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
