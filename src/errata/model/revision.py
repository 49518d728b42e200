"""What revisions do, numbered facts that reach behind the stable point, and why one is refused, in words."""

from __future__ import annotations

from enum import StrEnum


class Op(StrEnum):
    """What a record of a batch, or a revision, does to the row of its key."""

    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"


def no_such_row() -> str:
    return "no such row: no row of this key is there to correct"


def aged_out() -> str:
    return "aged out: the stream no longer keeps rows as old as this one"


def old_differs(column: str, claimed: str, found: str) -> str:
    return f"old value does not match: {column} is said to have been {claimed}, and it is {found}"


def key_taken() -> str:
    return "key belongs to another row: the row cannot take a key that another one has"


def duplicate_key() -> str:
    return "duplicate key: the archive has a row of this key that says something else"
