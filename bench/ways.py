"""How much code there is on the three ways that data goes: how many functions and files of Errata are passed.

A row goes from its file to its commit, a correction from its file to a changed result and why it changed, a query from
its text to a published result. Each command runs in a process of its own. A function counts once, however often it is
called, also in other threads; what happens while modules are imported does not. The goals are three fifths of what was
counted first: 335, 980 and 872 functions in 60, 163 and 154 files.
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
    """Commands that one after the other take something all the way, and how much they should pass at most."""

    words: str
    first: Commands
    """The same with other data, which imports what there is to import."""
    then: Commands
    functions: int
    files: int


_PROFILED = """
import json, sys, threading
met = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and "/errata/" in code.co_filename and not code.co_name.startswith("<"):
        met.add((code.co_filename, code.co_firstlineno))
from errata.cli import main
first, then = json.loads(sys.argv[1])
for commands, profile in ((first, None), (then, note)):
    threading.setprofile(profile)
    for sys.argv[1:] in commands:
        sys.setprofile(profile)
        code = main()
        sys.setprofile(None)
        if code:
            sys.exit(code)
print(json.dumps(sorted(met)), file=sys.stderr)
"""
"""Commands twice, with other data: what is imported by the first is no part of the way."""


def measure(_: Scale, folder: Path) -> Outcome:
    """Functions and files that are passed on each way."""
    shell = Shell(folder)
    metrics = []
    for name, way in ways(shell).items():
        met = passed(shell, way)
        files = len({file for file, _ in met})
        metrics.append(Metric(f"{name}: functions {way.words}", len(met), "functions", f"<= {way.functions}"))
        metrics.append(Metric(f"{name}: files {way.words}", files, "files", f"<= {way.files}"))
    loaded = shell.modules("ingest", "quotes", lines(shell, 3))
    metrics.append(Metric("modules of Errata that ingest loads", loaded, "modules", "< 60"))
    return Outcome(metrics)


def passed(shell: Shell, way: Way) -> set[tuple[str, int]]:
    """The functions that are passed on a way: file and line."""
    told = shell.run(json.dumps([way.first, way.then]), door=_PROFILED).splitlines()[-1]
    return {(file, line) for file, line in json.loads(told)}


def ways(shell: Shell) -> Mapping[str, Way]:
    """The three ways, in an order in which they can be gone."""
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
