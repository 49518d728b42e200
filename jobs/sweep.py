"""Corrects what corrections invalidate: spark-submit jobs/sweep.py --project errata.yaml [QUERY…] [--technique …]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.flows.jobs import (
    SweepOptions,
    add_accept_arguments,
    add_cause_arguments,
    cause_from_arguments,
    job_exit,
    sweep_job,
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Apply what is pending, and correct the published results that it invalidates."
    )
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="only these and what they read; by default all")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--technique", choices=["auto", "all", "minimal", "direct"], default="auto")
    parser.add_argument("--due", action="store_true", help="only what is due, as the project and its queries declare")
    add_accept_arguments(parser, stopped=True)
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    wanted = SweepOptions(given.queries, given.technique, given.due)
    return sweep_job(given.project, wanted, cause_from_arguments(given), given.accepted or ())


if __name__ == "__main__":
    sys.exit(job_exit(main))
