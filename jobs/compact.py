"""Works corrections into buckets and merges small ones: spark-submit jobs/compact.py --project errata.yaml [STREAM…]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.flows.jobs import add_cause_arguments, cause_from_arguments, compact_job, job_exit


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Work corrections into buckets, and merge small buckets.")
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="by default all streams")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--all", action="store_true", help="also what is hardly worth it yet")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    return compact_job(given.project, given.streams, given.all, cause_from_arguments(given))


if __name__ == "__main__":
    sys.exit(job_exit(main))
