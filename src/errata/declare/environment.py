"""Environment variables in values: ${NAME}, ${NAME:-default}; $$ is a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Mapping

from errata.errors import UsageError

_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<broken>\{))"
)


def expand(text: str, environ: Mapping[str, str]) -> str:
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

    return _REFERENCE.sub(value, text)
