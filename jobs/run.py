"""Does all that is due: spark-submit jobs/run.py --project errata.yaml [QUERY…] [--no-take]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.flows.jobs import add_accept_arguments, add_cause_arguments, cause_from_arguments, job_exit, run_job


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Take what has landed, and bring every query up to its streams.")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="only these and what they read; by default all")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--no-take", action="store_true", help="leave what has landed where it is")
    add_accept_arguments(parser, stopped=True)
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    return run_job(given.project, given.queries, not given.no_take, cause_from_arguments(given), given.accepted or ())


if __name__ == "__main__":
    sys.exit(job_exit(main))
