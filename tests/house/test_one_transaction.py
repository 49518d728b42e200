"""One way to make something visible, and one loop that tries again after a conflict: `catalog.transaction`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "errata"
PARTS = {
    "record_commit",
    "record_position",
    "set_batch_commit",
    "add_buckets",
    "remove_buckets",
    "delete_buckets",
    "count_masked",
}
"""What a transaction consists of, which nothing else may do by itself."""

HOME = "catalog/transaction.py"


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_only_the_transaction_changes_the_index_and_numbers_commits() -> None:
    calls = {
        (file, name_of(node.func))
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) in PARTS
    }
    assert {file for file, _ in calls} == {HOME}
    assert {name for _, name in calls} == PARTS


def test_conflicts_are_tried_again_in_one_loop() -> None:
    loops = []
    for file, tree in trees():
        for loop in ast.walk(tree):
            if not isinstance(loop, ast.For | ast.While):
                continue
            handlers = (node.type for node in ast.walk(loop) if isinstance(node, ast.ExceptHandler))
            types = (each for kind in handlers if kind is not None for each in ast.walk(kind))
            caught = {name_of(each) for each in types if isinstance(each, ast.expr)}
            if any(name.endswith("Conflict") for name in caught):
                loops.append(file)
    assert loops == []
