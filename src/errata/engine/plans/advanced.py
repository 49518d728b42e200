"""What carrying a plan on from one instant to a later one comes to."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Advanced:
    """What a plan says at the instants `[since, until]`, both included, and what the next time needs."""

    rows: DataFrame
    """As `compile_plan` gives them: the plan's columns, `_vs`, `_ve` and the scope. Either all that count at an instant
    from `since` on, right at each instant up to `until`; they may have begun earlier, and what they say of later
    instants is only foreseen. Or, where results are only ever added, those that begin within."""
    state: DataFrame | None
    """What is known of rows with an own time before `until`: rows of the last instant may still come, so that one is
    worked out again. A cache, of the scope and whatever columns the strategy needs, the same ones every time; None
    where nothing has to be known."""
    windows: DataFrame | None = None
    """If the parts of final windows were asked for: the state's columns and `_vs`, a window's end, of all windows with
    rows before `until` that end from `since` on. Those with `_vs <= until` have closed, and this is what corrections of
    them start from; one that ends at `since` had closed the last time already. Those with `_vs >= until` are the state;
    one that ends at `until` is both."""
