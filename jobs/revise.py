"""Applies the pending corrections of streams: spark-submit jobs/revise.py --project errata.yaml [STREAM…]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.errors import EXIT_QUARANTINE
from errata.flows.jobs import add_cause_arguments, cause_from_arguments, job_exit, revise_job


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Apply what is pending, so that it becomes part of history.")
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="by default all streams")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--accept-quarantine", action="store_true", help="exit 0 also when corrections were wrong")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    code = revise_job(given.project, given.streams, cause_from_arguments(given))
    return 0 if code == EXIT_QUARANTINE and given.accept_quarantine else code


if __name__ == "__main__":
    sys.exit(job_exit(main))
