"""Corrects what corrections invalidate: spark-submit jobs/sweep.py --project errata.yaml [QUERY…] [--technique …]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.errors import EXIT_QUARANTINE
from errata.flows.jobs import Sweeps, add_cause_arguments, cause_of, ending, sweep_job


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Apply what is pending, and correct the published results that it invalidates."
    )
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="only these and what they read; by default all")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--technique", choices=["auto", "all", "minimal", "direct"], default="auto")
    parser.add_argument("--due", action="store_true", help="only what is due, as the project and its queries declare")
    parser.add_argument("--accept-quarantine", action="store_true", help="exit 0 also when corrections were wrong")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    code = sweep_job(given.project, Sweeps(given.queries, given.technique, given.due), cause_of(given))
    return 0 if code == EXIT_QUARANTINE and given.accept_quarantine else code


if __name__ == "__main__":
    sys.exit(ending(main))
