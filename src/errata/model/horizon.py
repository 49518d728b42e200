"""The horizon: which past commits can still be read."""

from __future__ import annotations


def readable(superseded_at: int | None, now: int, horizon: int) -> bool:
    """Whether a commit was still the newest at some moment of the horizon, which reaches from `now - horizon` to now.

    `superseded_at` is the wall-clock time of the commit after it; None is for the newest, which is always readable.
    """
    return superseded_at is None or superseded_at > now - horizon


def oldest_kept(oldest_readable: int, oldest_pinned: int | None) -> int:
    """The first commit whose state must stay whole: the horizon keeps it readable, or a reader has pinned it."""
    return oldest_readable if oldest_pinned is None else min(oldest_readable, oldest_pinned)


def spent(removed_in: int | None, kept_from: int) -> bool:
    """Whether no commit from `kept_from` on sees what became invisible in `removed_in`; None: it has not."""
    return removed_in is not None and removed_in <= kept_from


def forgotten(vs_max: int, aged_to: int | None, dropped: bool) -> bool:
    """Whether none of the rows can be in the archive any more: their stream has been dropped, or they have aged out."""
    return dropped or (aged_to is not None and vs_max < aged_to)
