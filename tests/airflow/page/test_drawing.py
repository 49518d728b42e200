"""Drawings of the page keep within their bounds."""

from __future__ import annotations

from errata.catalog.activity import TimelineStrip
from errata.model.bucket import Role
from errata.read.details import StreamTimeline
from errata_airflow.page.drawing import coverage_path, sparkline_path, timeline_drawing


def test_a_drawing_keeps_within_its_bounds() -> None:
    strips = [TimelineStrip(Role.BASE, 0, 4, 1, 100, 0), TimelineStrip(Role.BASE, 4, 9, 1, 1, 0)]
    strips += [
        TimelineStrip(Role.OVERLAY, 1, 3, 1, 2, 0),
        TimelineStrip(Role.OVERLAY, 3, 4, 1, 2, 0),
        TimelineStrip(Role.OVERLAY, 8, 8, 1, 2, 0),
    ]
    found = timeline_drawing(StreamTimeline(0, 99, 10, strips, stable=50, aged_to=0), 3)
    assert found.bars == "M0.75 100V0H4.25V100zM4.75 100V92H9.25V100z"
    assert found.corrected == "M1 0H5V18H1zM8 0H9V18H8z"
    assert (found.stable, found.ticks) == (5.0, [0, 49, 99])
    assert found.left == -found.aged
    assert found.width == 10 + found.aged


def test_a_sparkline_keeps_within_its_bounds() -> None:
    assert sparkline_path([]) == ""
    assert sparkline_path([0, 4, 0, 1]) == "M1.1 100V0H1.9V100zM3.1 100V75H3.9V100z"
    assert sparkline_path([1000, 1]) == "M0.1 100V0H0.9V100zM1.1 100V92H1.9V100z"


def test_what_a_version_covers_is_drawn_as_high_as_its_rate() -> None:
    assert coverage_path([(0, 4), (5, 9)], 0, 9, 100, 0.5) == "M0 100V50H100V100z"
    assert coverage_path([(0, 1), (8, 9)], 0, 9, 100, None) == "M0 100V0H20V100zM80 100V0H100V100z"
    assert coverage_path([(0, 0)], 0, 10**6, 100, 0.001) == "M0 100V92H1V100z", "little is drawn, too"
