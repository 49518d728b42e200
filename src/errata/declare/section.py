"""Environment variables in values: ${NAME}, ${NAME:-default}; $$ is a dollar sign."""

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
    """The text with its references filled in. As in a shell, a default also stands in for an empty variable."""

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


# Reading a mapping key by key: every key is asked for by name, and what nobody asked for is an error.

T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class YamlPlace:
    """Where in a file something stands: the line, and the path of keys."""

    line: int
    path: str


class YamlProblems:
    """All that is wrong with a file, to be told at once and in the order of its lines."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[tuple[int, UsageError]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: YamlPlace, error: UsageError) -> None:
        where = f"{self.file}:{place.line} ({place.path})" if place.path else f"{self.file}:{place.line}"
        self._found.append((place.line, UsageError(error.what, where=where, why=error.why, how=error.how)))

    def check(self) -> None:
        """Raise what was found, if anything was."""
        if not self._found:
            return
        errors = [error for _, error in sorted(self._found, key=lambda found: found[0])]
        if len(errors) == 1:
            raise errors[0]
        raise UsageError("\n".join([f"{self.file} has {len(errors)} mistakes", *map(str, errors)]))


class YamlSection:
    """A mapping of the file. A value that is absent or wrong reads as None; what is wrong is noted in `problems`."""

    def __init__(
        self, table: YamlMapping, place: YamlPlace, problems: YamlProblems, environ: Mapping[str, str]
    ) -> None:
        self.place = place
        self.problems = problems
        self._table = table
        self._environ = environ
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the key is written here."""
        return self._entry(name) is not None

    def names(self) -> tuple[str, ...]:
        """The keys as written, where they are names that a person chose."""
        return tuple(self._table.entries)

    def where(self, name: str) -> YamlPlace:
        """The place of a key, or of the section when it is not written."""
        entry = self._table.entries.get(name)
        path = f"{self.place.path}.{name}" if self.place.path else name
        return YamlPlace(entry.line if entry else self.place.line, path)

    def mistake(self, name: str, error: UsageError) -> None:
        """Note that the key's value is wrong."""
        self.problems.add(self.where(name), error)

    def text(self, name: str) -> str | None:
        return self.read(name, str)

    def required(self, name: str, how: str) -> str | None:
        """The text of a key that must be there."""
        before = len(self.problems)
        text = self.text(name)
        if text is None and len(self.problems) == before:
            what = "has an empty value" if self.has(name) else "is missing"
            self.mistake(name, UsageError(f"key {name!r} {what}", how=how))
        return text

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The value that the text stands for. Text that is empty once variables are filled in counts as absent."""
        entry = self._entry(name)
        return None if entry is None else self._parsed(entry.value, self.where(name), parse)

    def choice(self, name: str, choices: type[Choice]) -> Choice | None:
        """One of a few words."""

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
        """Whether the key is written with a list of nothing."""
        entry = self._entry(name)
        return entry is not None and isinstance(entry.value, YamlList) and not entry.value.items

    def section(self, name: str, only: str | None = None) -> YamlSection | None:
        """The mapping below the key; a key with nothing after it is an empty one. With `only`, a plain value stands for
        a mapping that has it under that key."""
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
        """Refuse every key that was not asked for."""
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
    """A whole number of at least 1, as people write it: 500000 or 500_000."""
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
