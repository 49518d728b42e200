"""What a person reads when something is wrong: what, where, why and how to mend it."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_QUARANTINE = 3
EXIT_DECISION = 4
"""Of jobs alone: what could be done is done, and what is left waits for a person. To try again would not help."""


class ErrataError(Exception):
    """A failure that a person can act on; the command line prints it without a traceback."""

    exit_code = EXIT_FAILED

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        how: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.how = how

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.how:
            lines.append(f"  how to mend: {self.how}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers); keyword arguments would be lost by the default.
        return (_rebuild_error, (type(self), self.what, self.where, self.why, self.how))


class UsageError(ErrataError):
    """What was asked for cannot be meant as it stands: a wrong name, value or declaration."""

    exit_code = EXIT_USAGE


class RefusedError(ErrataError):
    """What was asked for is understood and not done, because it would lose or contradict something."""


NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when there is no room for more: none on the disk, none of a quota, none in one file."""


def disk_full_error(where: str, why: str, what: str = "the disk is full") -> ErrataError:
    """That there is no room to write."""
    return ErrataError(
        what,
        where=where,
        why=why,
        how="make room there, and run it again: what is not committed is not there, and vacuum removes what it left",
    )


class BadFileError(ErrataError):
    """A source file of which nothing can be taken in, whatever else is delivered with it: `where` is its name."""

    also: Sequence[BadFileError] = ()
    """Others that were found with it."""


def _rebuild_error(
    kind: type[ErrataError], what: str, where: str | None, why: str | None, how: str | None
) -> ErrataError:
    return kind(what, where=where, why=why, how=how)


def candidates_text(name: str, known: Iterable[str]) -> str:
    """What may have been meant, nearest first, and what there is: a sequence as it stands, anything else by name."""
    names = list(known) if isinstance(known, Sequence) else sorted(known)
    if not names:
        return "there are none yet"
    folded = {each.lower(): each for each in names}
    near = [folded[each] for each in difflib.get_close_matches(name.lower(), list(folded), n=2, cutoff=0.6)]
    there_is = "there is " + ", ".join(names)
    return f"did you mean {' or '.join(near)}? {there_is}" if near else there_is


def unknown_name_error(kind: str, name: str, known: Iterable[str], where: str | None = None) -> UsageError:
    """The error for a name that nothing bears, with the candidates."""
    return UsageError(f"unknown {kind} {name!r}", where=where, how=candidates_text(name, known))
