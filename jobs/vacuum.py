"""Keeps copies as readers ask for them, and removes what nobody needs any more.

spark-submit jobs/vacuum.py --project errata.yaml [STREAM…]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.archive.upkeep.vacuum import DEFAULT_GRACE
from errata.flows.jobs import add_cause_arguments, cause_from_arguments, job_exit, vacuum_job
from errata.model.time import format_duration, parse_duration


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Build and drop smaller versions, purge, and remove what no reader can need any more."
    )
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="by default all streams")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument(
        "--grace",
        default=format_duration(DEFAULT_GRACE),
        metavar="DURATION",
        help="how old a file without an index row must be",
    )
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    return vacuum_job(given.project, given.streams, parse_duration(given.grace), cause_from_arguments(given))


if __name__ == "__main__":
    sys.exit(job_exit(main))
