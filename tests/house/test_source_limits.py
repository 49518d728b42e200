"""The source keeps the limits of size that CONTRIBUTING.md states, and a class name means one thing.

Sizes are counted on the syntax tree. The functions that a command line is made of are not bound by the limit on
parameters, since each parameter is an option; nor are constructors.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from errata.cli.commands import COMMANDS, GROUPS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "errata"
MODULE_LINES = 400
FUNCTION_LINES = 60
PARAMETERS = 6

MANY_PARAMETERS = {
    "answer.runs.sweep": 7,
    "catalog.quarantine.quarantined_rows": 8,
    "catalog.declarations.apply_changes": 7,
    "cli.results.print_rows": 7,
    "model.compaction.due_compaction": 7,
    "read.stream_scan.stream_frame": 7,
    "table": 7,  # `errata.table`, for notebooks: each parameter is an option of the scan
}
"""Functions over the limit, with the parameters they may have. The list gets shorter, never longer."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, str]]:
    """Every module's dotted name below `errata`, and its text."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path.read_text(encoding="utf-8")


TREES = {module: ast.parse(text) for module, text in modules()}


def functions() -> Iterator[tuple[str, Function]]:
    """Every function and method with its dotted name below `errata`."""

    def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield ".".join((*names, child.name)), child
            named = isinstance(child, (ast.ClassDef, *Function.__args__))
            yield from walk(child, (*names, child.name) if named else names)

    for module, tree in TREES.items():
        yield from walk(tree, (module,) if module else ())


def parameter_count(function: Function) -> int:
    """How many arguments a caller may pass."""
    arguments = function.args
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    bound = positional[:1] in (["self"], ["cls"])
    variadic = sum(each is not None for each in (arguments.vararg, arguments.kwarg))
    return len(positional) - bound + len(arguments.kwonlyargs) + variadic


def commands() -> set[str]:
    """The functions that typer makes commands of, and its root, with their dotted names below `errata`."""
    listed = [*COMMANDS.values(), *(each for _, group in GROUPS.values() for each in group.values())]
    return {target.removeprefix("errata.").replace(":", ".") for _, target in listed}


def test_a_class_name_is_defined_once() -> None:
    places = defaultdict(list)
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_is_too_long() -> None:
    lengths = {module: len(text.splitlines()) for module, text in modules()}
    too_long = {each: length for each, length in lengths.items() if length > MODULE_LINES}
    assert too_long == {}


def test_no_function_is_too_long() -> None:
    lengths = {name: (node.end_lineno or node.lineno) - node.lineno + 1 for name, node in functions()}
    too_long = {each: length for each, length in lengths.items() if length > FUNCTION_LINES}
    assert too_long == {}


def test_no_function_has_too_many_parameters() -> None:
    counts = {
        name: parameter_count(node) for name, node in functions() if node.name != "__init__" and name not in commands()
    }
    too_many = {each: count for each, count in counts.items() if count > MANY_PARAMETERS.get(each, PARAMETERS)}
    assert too_many == {}
    assert {each: counts.get(each) for each in MANY_PARAMETERS} == MANY_PARAMETERS, "the list is out of date"
