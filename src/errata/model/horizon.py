"""The horizon: which past commits can still be read."""

from __future__ import annotations

from collections.abc import Mapping


def readable(superseded_at: int | None, now: int, horizon: int) -> bool:
    """Whether a commit was still the newest at some moment of the horizon, which reaches from `now - horizon` to now.

    `superseded_at` is the wall-clock time of the commit after it; None is for the newest, which is always readable.
    """
    return superseded_at is None or superseded_at > now - horizon


def readable_commits(times: Mapping[int, int], now: int, horizon: int) -> list[int]:
    """The readable ones of all commits, in order; `times` gives each commit's number and wall-clock time."""
    commits = sorted(times)
    superseded = [*(times[commit] for commit in commits[1:]), None]
    return [commit for commit, at in zip(commits, superseded, strict=False) if readable(at, now, horizon)]
