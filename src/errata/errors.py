"""Errors as a person reads them: what is wrong, where, why, and how to mend it; exit codes; and counts in words."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_QUARANTINE = 3
EXIT_DECISION = 4
"""Exit code of jobs: the rest of the work needs a person's decision, and a retry would not help."""


class ErrataError(Exception):
    """A failure that a person can act on. The command line prints it without a traceback."""

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
    """A wrong name, value or declaration."""

    exit_code = EXIT_USAGE


class RefusedError(ErrataError):
    """A valid request that is not carried out, because it would lose or contradict data."""


NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers for no space: on the disk, in a quota, in one file."""


def disk_full_error(where: str, why: str, what: str = "the disk is full") -> ErrataError:
    """The error that there is no space to write."""
    return ErrataError(
        what,
        where=where,
        why=why,
        how="make room there, and run it again: what is not committed is not there, and vacuum removes what it left",
    )


class BadFileError(ErrataError):
    """A source file of which nothing can be taken in, while others of the batch can; `where` is its name."""

    also: Sequence[BadFileError] = ()
    """Further bad files that were found with it."""


def _rebuild_error(
    kind: type[ErrataError], what: str, where: str | None, why: str | None, how: str | None
) -> ErrataError:
    return kind(what, where=where, why=why, how=how)


def candidates_text(name: str, known: Iterable[str]) -> str:
    """Similar names, nearest first, and all names: a sequence in its order, others sorted."""
    names = list(known) if isinstance(known, Sequence) else sorted(known)
    if not names:
        return "there are none yet"
    folded = {each.lower(): each for each in names}
    near = [folded[each] for each in difflib.get_close_matches(name.lower(), list(folded), n=2, cutoff=0.6)]
    there_is = "there is " + ", ".join(names)
    return f"did you mean {' or '.join(near)}? {there_is}" if near else there_is


def unknown_name_error(kind: str, name: str, known: Iterable[str], where: str | None = None) -> UsageError:
    """The error for an unknown name, with candidates."""
    return UsageError(f"unknown {kind} {name!r}", where=where, how=candidates_text(name, known))


def count_text(count: int, thing: str, things: str | None = None) -> str:
    """'1 row', '2,000 rows', 'no rows'."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}" if count else f"no {things or thing + 's'}"
