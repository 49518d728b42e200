"""What the near engine computes as Spark does."""

from __future__ import annotations

from errata.language.plan import Plan


def obstacle(plan: Plan) -> str | None:
    """Why the near engine cannot be asked for a plan; None where it can."""
    del plan
    return None
