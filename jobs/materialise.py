"""Matches rows with registered queries: spark-submit jobs/materialise.py --project errata.yaml [STREAM…]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.flows.jobs import add_cause_arguments, cause_from_arguments, job_exit, materialise_job


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Match new rows with registered queries, and new queries with all rows."
    )
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="by default all streams")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    return materialise_job(given.project, given.streams, cause_from_arguments(given))


if __name__ == "__main__":
    sys.exit(job_exit(main))
