"""The drawing of where rows lie."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from errata.read.tables import STABLE_MARK, TIMELINE_LEVELS, TimelineSpan, draw_timeline

stretches = st.lists(
    st.builds(
        lambda low, span, rows: TimelineSpan(low, low + span, rows),
        st.integers(-(10**15), 10**15),
        st.integers(0, 10**12),
        st.integers(1, 10**6),
    ),
    min_size=1,
    max_size=8,
)


def test_height_is_how_many_rows_lie_there() -> None:
    assert (
        draw_timeline([TimelineSpan(0, 3, 40), TimelineSpan(4, 7, 20), TimelineSpan(12, 15, 5)], None, 8) == "██▄▄  ▁▁"
    )


def test_neighbouring_buckets_of_equal_density_make_an_even_line() -> None:
    assert draw_timeline([TimelineSpan(0, 9, 10), TimelineSpan(10, 24, 15)], None, 7) == "███████"


def test_the_stable_point_stands_where_it_is_or_at_the_edge() -> None:
    line = [TimelineSpan(0, 99, 100)]
    assert draw_timeline(line, 50, 10) == "█████┃████"
    assert draw_timeline(line, -5, 10) == "┃█████████"
    assert draw_timeline(line, 500, 10) == "█████████┃"


def test_a_single_moment_is_a_line_too() -> None:
    assert draw_timeline([TimelineSpan(7, 7, 1)], None, 4) == "████"
    assert draw_timeline([], 3, 10) == draw_timeline([TimelineSpan(0, 1, 1)], None, 0) == ""


@given(stretches, st.integers(1, 120))
def test_every_bucket_shows_and_the_line_is_as_wide_as_told(found: list[TimelineSpan], width: int) -> None:
    line = draw_timeline(found, None, width)
    assert len(line) == width
    assert set(line) <= set(TIMELINE_LEVELS)
    assert TIMELINE_LEVELS[-1] in line
    assert line[0] != " "
    assert line[-1] != " "
    assert STABLE_MARK not in line
