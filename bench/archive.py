"""Corrections of a day of quotes, and how the archive had best be laid out for them: the amounts, and all together."""

from __future__ import annotations

from pathlib import Path

from bench.archive_day import Amounts
from bench.archive_layouts import LayoutAmounts, layout_figures
from bench.archive_revisions import revision_figures
from bench.measure import Outcome, Scale
from errata.engine.session import open_session

MIXES = {"LOW": 1, "MOD": 2, "HIGH": 10}
"""Corrections in a million rows, as the paper has them; in fewer rows at a smaller scale."""

REVISIONS = {
    Scale.SMALL: Amounts(day=1_728_000, bucket_rows=150_000, corrections=1_000, few=10, rounds=3),
    Scale.PAPER: Amounts(day=17_280_000, bucket_rows=500_000, corrections=10_000, few=10, rounds=7),
}
LAYOUTS = {
    Scale.SMALL: LayoutAmounts(
        day=864_000, more=50_000, sizes=(10_000, 25_000), mixes=MIXES, window=100, rounds=1, warm_up=0
    ),
    Scale.PAPER: LayoutAmounts(
        day=17_280_000,
        more=1_000_000,
        sizes=(50_000, 100_000, 250_000, 500_000),
        mixes=MIXES,
        window=600,
        rounds=3,
    ),
}


def measure(scale: Scale, folder: Path) -> Outcome:
    """All figures at a scale."""
    found = figures(REVISIONS[scale], LAYOUTS[scale], folder)
    open_session(None, None, {}, "bench").stop()
    return found


def figures(revisions: Amounts, layouts: LayoutAmounts, folder: Path) -> Outcome:
    """All figures in these amounts; the session stays open."""
    parts = [revision_figures(revisions, folder / "revisions"), layout_figures(layouts, folder / "layouts")]
    return Outcome(
        [metric for part in parts for metric in part.metrics],
        [picture for part in parts for picture in part.pictures],
        [grid for part in parts for grid in part.grids],
    )
