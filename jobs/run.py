"""Does all that is due: spark-submit jobs/run.py --project errata.yaml [QUERY…] [--no-take]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.errors import EXIT_QUARANTINE
from errata.flows.jobs import add_cause_arguments, cause_of, ending, run_job


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Take what has landed, and bring every query up to its streams.")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="only these and what they read; by default all")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--no-take", action="store_true", help="leave what has landed where it is")
    parser.add_argument("--accept-quarantine", action="store_true", help="exit 0 also when rows went to quarantine")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    code = run_job(given.project, given.queries, not given.no_take, cause_of(given))
    return 0 if code == EXIT_QUARANTINE and given.accept_quarantine else code


if __name__ == "__main__":
    sys.exit(ending(main))
