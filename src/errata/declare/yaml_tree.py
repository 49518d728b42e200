"""YAML as a tree whose values keep their line and column, so that every message can name the place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import yaml

from errata.errors import UsageError

MAX_FAST_NESTING = 200
"""Depth of nesting above which Python's parser is used instead of libyaml, which has no limit and could crash."""

_MERGE_KEY = "<<"
_NULL_TAG = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A single value as text, without YAML's interpretation of yes, 1e3 and 12:30."""

    text: str | None
    """None for an empty value, ~ or null."""
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlList:
    """A sequence of values."""

    items: tuple[YamlNode, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """A key with its place, and its value."""

    key: str
    line: int
    column: int
    value: YamlNode


@dataclass(frozen=True, slots=True)
class YamlMapping:
    """A mapping of keys to values."""

    entries: Mapping[str, YamlEntry]
    line: int
    column: int


YamlNode = YamlScalar | YamlList | YamlMapping


def parse_yaml(text: str, file: str) -> YamlNode:
    """The single document of the file; mistakes in its YAML are raised with their lines."""
    root = _parse_fast(text)
    try:
        root = root or _parse_strict(text, file)
        if root is not None:
            return _TreeBuilder(file).node(root)
    except RecursionError:
        raise UsageError(
            "this is nested too deeply", where=file, how="close brackets, and begin fewer of them"
        ) from None
    raise UsageError("the file is empty", where=file, how="begin with 'project: NAME'; `errata init` writes an example")


def _parse_fast(text: str) -> yaml.Node | None:
    """The document as libyaml parses it, if it is installed and finds no mistake: five times faster for a file with
    thousands of queries. It does not bound nesting, and says less about mistakes."""
    quick = getattr(yaml, "CSafeLoader", None)
    if quick is None or _max_nesting(text) > MAX_FAST_NESTING:
        return None
    loader = None
    try:
        loader = quick(text)
        found: yaml.Node | None = loader.get_single_node()
    except (yaml.YAMLError, UnicodeError):
        return None
    finally:
        if loader is not None:
            loader.dispose()
    return found


def _max_nesting(text: str) -> int:
    """An upper bound of the depth of nesting in a text."""
    brackets = accumulate((1 if each in "[{" else -1 for each in re.findall(r"[\[\]{}]", text)), initial=0)
    return max(brackets) + max((line.count("- ") + line.count("? ") for line in text.splitlines()), default=0)


def _parse_strict(text: str, file: str) -> yaml.Node | None:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        raise _unprintable_error(error.position, text, file) from None
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    finally:
        loader.dispose()


class _TreeBuilder:
    """The conversion of YAML's nodes. A node with an anchor is converted once, however often it is referenced."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._known: dict[int, YamlNode] = {}
        self._open: set[int] = set()

    def node(self, node: yaml.Node) -> YamlNode:
        if id(node) in self._open:
            raise self._error(node, "an alias names what it is part of", "write the value out")
        if id(node) not in self._known:
            self._open.add(id(node))
            self._known[id(node)] = self._walk(node)
            self._open.remove(id(node))
        return self._known[id(node)]

    def _walk(self, node: yaml.Node) -> YamlNode:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        if isinstance(node, yaml.MappingNode):
            return YamlMapping(self._entries(node), line, column)
        if isinstance(node, yaml.SequenceNode):
            return YamlList(tuple(self.node(item) for item in node.value), line, column)
        return YamlScalar(None if node.tag == _NULL_TAG else str(node.value), line, column)

    def _entries(self, node: yaml.MappingNode) -> Mapping[str, YamlEntry]:
        entries: dict[str, YamlEntry] = {}
        merged: dict[str, YamlEntry] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, "a key is not a plain text", "write one name before the colon")
            key, mark = str(key_node.value), key_node.start_mark
            if key == _MERGE_KEY:
                merged.update(self._merged(value_node))
                continue
            if key in entries:
                raise self._error(
                    key_node, f"key {key!r} is written twice, first in line {entries[key].line}", "keep one of the two"
                )
            entries[key] = YamlEntry(key, mark.line + 1, mark.column + 1, self.node(value_node))
        return {**merged, **entries}

    def _merged(self, node: yaml.Node) -> Mapping[str, YamlEntry]:
        value = self.node(node)
        if not isinstance(value, YamlMapping):
            raise self._error(node, "<< does not name a mapping", "write '<<: *anchor' where the anchor is a mapping")
        return value.entries

    def _error(self, node: yaml.Node, what: str, how: str) -> UsageError:
        return UsageError(what, where=f"{self._file}:{node.start_mark.line + 1}", how=how)


def _unprintable_error(position: int, text: str, file: str) -> UsageError:
    return UsageError(
        f"this is not YAML: a character that cannot be in a text: {text[position]!r}",
        where=f"{file}:{text.count(chr(10), 0, position) + 1}",
        how="remove it",
    )


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> UsageError:
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    line = mark.line + 1 if mark else 1
    near = lines[line - 1].strip() if line <= len(lines) else ""
    how = "check indentation, colons, quotes and brackets here and in the line above; tabs cannot indent"
    if "${" in near:
        how = "put quotes around a value with ${…} that stands inside { } or [ ]"
    why = error.context if error.context and error.problem else None
    return UsageError(
        f"this is not YAML: {error.problem or error.context}" + (f", near {near!r}" if near else ""),
        where=f"{file}:{line}",
        why=why,
        how=how,
    )
