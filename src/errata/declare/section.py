"""Reading a YAML mapping key by key: expanded variables, parsed values, and all mistakes of a file in one error.

A key is read by its name; a key that has not been read when the section is closed is a mistake. Values may contain
environment variables: ${NAME} or ${NAME:-default}; $$ is a dollar sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from errata.declare.yaml_tree import YamlEntry, YamlList, YamlMapping, YamlNode, YamlScalar
from errata.errors import UsageError, candidates_text
from errata.model.columns import parse_digits

_VARIABLE_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<broken>\{))"
)


def expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """The text with its references replaced. As in a shell, a default also replaces an empty variable."""

    def value(reference: re.Match[str]) -> str:
        if reference["dollar"]:
            return "$"
        if reference["broken"]:
            raise UsageError(
                f"{text!r} has a ${{ that begins no reference",
                how="write ${NAME} or ${NAME:-default}; a plain dollar sign before a brace is $$",
            )
        name, default = reference["name"], reference["default"]
        found = environ.get(name)
        if found or (found is not None and default is None):
            return found
        if default is None:
            raise UsageError(
                f"environment variable {name} is not set",
                how=f"set {name}, or give it a default here: ${{{name}:-default}}",
            )
        return str(default)

    return _VARIABLE_REFERENCE.sub(value, text)


T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class YamlPlace:
    """A place in a file: the line, and the path of keys."""

    line: int
    path: str


class YamlProblems:
    """All mistakes of a file, raised as one error in the order of the lines."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[tuple[int, UsageError]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: YamlPlace, error: UsageError) -> None:
        where = f"{self.file}:{place.line} ({place.path})" if place.path else f"{self.file}:{place.line}"
        self._found.append((place.line, UsageError(error.what, where=where, why=error.why, how=error.how)))

    def check(self) -> None:
        """Raise the mistakes that were found, if any."""
        if not self._found:
            return
        errors = [error for _, error in sorted(self._found, key=lambda found: found[0])]
        if len(errors) == 1:
            raise errors[0]
        raise UsageError("\n".join([f"{self.file} has {len(errors)} mistakes", *map(str, errors)]))


class YamlSection:
    """A mapping of the file. A value that is absent or wrong reads as None; mistakes are noted in `problems`."""

    def __init__(
        self, table: YamlMapping, place: YamlPlace, problems: YamlProblems, environ: Mapping[str, str]
    ) -> None:
        self.place = place
        self.problems = problems
        self._table = table
        self._environ = environ
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the section has the key."""
        return self._entry(name) is not None

    def names(self) -> tuple[str, ...]:
        """The keys as written, for sections whose keys are names."""
        return tuple(self._table.entries)

    def where(self, name: str) -> YamlPlace:
        """The place of a key, or of the section if it does not have the key."""
        entry = self._table.entries.get(name)
        path = f"{self.place.path}.{name}" if self.place.path else name
        return YamlPlace(entry.line if entry else self.place.line, path)

    def mistake(self, name: str, error: UsageError) -> None:
        """Note that the key's value is wrong."""
        self.problems.add(self.where(name), error)

    def text(self, name: str) -> str | None:
        return self.read(name, str)

    def required(self, name: str, how: str) -> str | None:
        """The text of a required key."""
        before = len(self.problems)
        text = self.text(name)
        if text is None and len(self.problems) == before:
            what = "has an empty value" if self.has(name) else "is missing"
            self.mistake(name, UsageError(f"key {name!r} {what}", how=how))
        return text

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The parsed value of a key. Text that is empty after expansion counts as absent."""
        entry = self._entry(name)
        return None if entry is None else self._parsed(entry.value, self.where(name), parse)

    def choice(self, name: str, choices: type[Choice]) -> Choice | None:
        """The value of a key that is one of a few words."""

        def parse(text: str) -> Choice:
            if text not in {choice.value for choice in choices}:
                known = ", ".join(choice.value for choice in choices)
                raise UsageError(f"{text!r} is not a choice", how=f"choose one of {known}")
            return choices(text)

        return self.read(name, parse)

    def texts(self, name: str) -> list[tuple[str, YamlPlace]]:
        """The texts of a list, each with its place."""
        entry = self._entry(name)
        if entry is None:
            return []
        place = self.where(name)
        if not isinstance(entry.value, YamlList):
            given = f" [{entry.value.text}]" if isinstance(entry.value, YamlScalar) and entry.value.text else ""
            self.problems.add(place, UsageError(f"{name} is not a list", how=f"write {name}:{given or ' [a, b]'}"))
            return []
        read = []
        for item in entry.value.items:
            there = YamlPlace(item.line, place.path)
            text = self._parsed(item, there, str)
            if text is not None:
                read.append((text, there))
        return read

    def is_empty_list(self, name: str) -> bool:
        """Whether the key has an empty list."""
        entry = self._entry(name)
        return entry is not None and isinstance(entry.value, YamlList) and not entry.value.items

    def section(self, name: str, only: str | None = None) -> YamlSection | None:
        """The mapping under the key; a key without a value has an empty one. With `only`, a plain value means a mapping
        with that one key."""
        entry = self._entry(name)
        if entry is None:
            return None
        place, value = self.where(name), entry.value
        if isinstance(value, YamlScalar) and value.text is None:
            value = YamlMapping({}, value.line, value.column)
        elif isinstance(value, YamlScalar) and only is not None:
            value = YamlMapping({only: YamlEntry(only, value.line, value.column, value)}, value.line, value.column)
        if not isinstance(value, YamlMapping):
            self.problems.add(place, UsageError(f"{name} is not a mapping", how=f"write keys and values below {name}:"))
            return None
        return YamlSection(value, place, self.problems, self._environ)

    def finish(self) -> None:
        """Note a mistake for every key that has not been read."""
        for name in self._table.entries:
            if name not in self._asked:
                self.mistake(name, UsageError(f"unknown key {name!r}", how=candidates_text(name, self._asked)))

    def _entry(self, name: str) -> YamlEntry | None:
        self._asked.add(name)
        return self._table.entries.get(name)

    def _parsed(self, node: YamlNode, place: YamlPlace, parse: Callable[[str], T]) -> T | None:
        if not isinstance(node, YamlScalar):
            kind = "list" if isinstance(node, YamlList) else "mapping"
            self.problems.add(place, UsageError(f"a {kind} stands where one value belongs", how="write a single value"))
            return None
        if node.text is None:
            self.problems.add(place, UsageError("the value is missing", how="write one, or leave the key out"))
            return None
        try:
            text = expand_variables(node.text, self._environ).strip()
            return parse(text) if text else None
        except UsageError as error:
            self.problems.add(place, error)
            return None


def parse_whole_number(text: str) -> int:
    """A whole number of at least 1, such as 500000 or 500_000."""
    digits = text.replace("_", "")
    if not (digits.isascii() and digits.isdecimal()) or not digits.strip("0"):
        raise UsageError(f"{text!r} is not a number", how="write a whole number of 1 or more, such as 500000")
    return parse_digits(digits)


_BYTE_COUNT = re.compile(r"([0-9_]+) ?(KB|MB|GB)?")
_BYTE_UNITS = {None: 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}


def parse_byte_count(text: str) -> int:
    """A number of bytes: 1048576, 1024 KB or 1 MB."""
    found = _BYTE_COUNT.fullmatch(text)
    if found is None or not found[1].replace("_", "").strip("0"):
        raise UsageError(
            f"{text!r} is not a number of bytes", how="write a whole number, or one of KB, MB or GB: 256 MB"
        )
    return parse_digits(found[1].replace("_", "")) * _BYTE_UNITS[found[2]]
