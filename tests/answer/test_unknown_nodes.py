"""What asks each operator of a plan says so of one that it does not know."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from errata.answer.failing_rows import fallible_expressions
from errata.answer.faults import row_origin
from errata.language.nodes import Scan
from errata.language.plan import PlanError, Unary
from fixtures.plans.choices import pool


@dataclass(frozen=True)
class Sampled(Unary):
    """An operator that nothing but this test knows."""


NODE = Sampled(Scan(pool(timed=False)["link1"], "a"))


def test_what_can_fail_in_it_is_not_guessed() -> None:
    with pytest.raises(PlanError, match="Sampled"):
        list(fallible_expressions(NODE))


def test_where_its_rows_come_from_is_not_guessed() -> None:
    with pytest.raises(PlanError, match="Sampled"):
        row_origin(NODE, frozenset(NODE.key), {})
