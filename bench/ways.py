"""How much code the three ways of data through Errata call: functions and files, counted by a profiler.

A row goes from its file to its commit, a correction from its file to a changed result and why it changed, a query from
its text to a published result. Each way runs in a process of its own, twice with other data, and the second time is
counted: what importing a module calls is not. A function counts once, however often it is called, in any thread. The
goals are three fifths of the first count: 335, 980 and 872 functions in 60, 163 and 154 files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Metric, Outcome, Scale
from bench.shell import Shell

ROWS = 20

TEXTS = {
    "known": "SELECT time, symbol, price FROM quotes WHERE price > 0",
    "new": "SELECT symbol, count(*) AS quotes FROM sliding(quotes, '1 minute') GROUP BY symbol",
}
"""A query of which a result is corrected, and one that is new."""


Commands = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Way:
    """Commands that together take something all the way, and the most functions and files they should call."""

    title: str
    warm_up: Commands
    """The same with other data: it imports all modules."""
    counted: Commands
    functions: int
    files: int


_PROFILED = """
import json, sys, threading
called = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and "/errata/" in code.co_filename and not code.co_name.startswith("<"):
        called.add((code.co_filename, code.co_firstlineno))
from errata.cli import main
warm_up, counted = json.loads(sys.argv[1])
for commands, profile in ((warm_up, None), (counted, note)):
    threading.setprofile(profile)
    for sys.argv[1:] in commands:
        sys.setprofile(profile)
        code = main()
        sys.setprofile(None)
        if code:
            sys.exit(code)
print(json.dumps(sorted(called)), file=sys.stderr)
"""
"""A program that runs the commands of a way and prints the functions that the counted ones call."""


def measure(_: Scale, folder: Path) -> Outcome:
    """The functions and files that each way calls."""
    shell = Shell(folder)
    metrics = []
    for name, way in ways(shell).items():
        called = called_functions(shell, way)
        files = len({file for file, _ in called})
        metrics.append(Metric(f"{name}: functions {way.title}", len(called), "functions", f"<= {way.functions}"))
        metrics.append(Metric(f"{name}: files {way.title}", files, "files", f"<= {way.files}"))
    loaded = shell.modules("ingest", "quotes", lines(shell, 3))
    metrics.append(Metric("modules of Errata that ingest loads", loaded, "modules", "< 60"))
    return Outcome(metrics)


def called_functions(shell: Shell, way: Way) -> set[tuple[str, int]]:
    """The functions that a way calls: file and line."""
    printed = shell.run(json.dumps([way.warm_up, way.counted]), door=_PROFILED).splitlines()[-1]
    return {(file, line) for file, line in json.loads(printed)}


def ways(shell: Shell) -> Mapping[str, Way]:
    """The three ways, in an order in which each finds what it needs."""
    shell.declare()
    declare(shell, "known")
    for command in ("apply", "--yes"), ("ingest", "quotes", lines(shell, 0)), ("run",):
        shell.run(*command)
    declare(shell, "new")
    rows = [[["ingest", "quotes", lines(shell, number)]] for number in (1, 2)]
    corrections = [corrected(shell, number) for number in (1, 2)]
    queries = [[["apply", "--yes"], ["run", name], ["results", name]] for name in ("known", "new")]
    return {
        "a row": Way("from its file to its commit", *rows, 201, 36),
        "a correction": Way("from its file to a changed result and why", *corrections, 588, 97),
        "a query": Way("from its text to a published result", *queries, 523, 92),
    }


def corrected(shell: Shell, number: int) -> Commands:
    """A row corrected, the results with it, and why."""
    file = shell.project / f"correction-{number}.csv"
    file.write_text(f"time,symbol,price,_op\n{moment(number)},IBM,9.00,replace\n")
    return [["ingest", "quotes", str(file)], ["sweep", "known"], ["why", "known", f"time={moment(number)},symbol=IBM"]]


def lines(shell: Shell, number: int) -> str:
    """A file of rows, one a second."""
    file = shell.project / f"rows-{number}.csv"
    made = (f"{moment(at)},IBM,10.00\n" for at in range(number * ROWS, (number + 1) * ROWS))
    file.write_text("".join(["time,symbol,price\n", *made]))
    return str(file)


def moment(second: int) -> str:
    return f"2026-11-18T00:{second // 60:02}:{second % 60:02}"


def declare(shell: Shell, name: str) -> None:
    """Write a query into the project."""
    (shell.project / "queries" / f"{name}.sql").write_text(f"{TEXTS[name]}\n")
    with (shell.project / "errata.yaml").open("a") as declared:
        declared.write(f"  {name}: queries/{name}.sql\n")
