"""Works a range of results out again: spark-submit jobs/replay.py --project errata.yaml QUERY --from T --to T"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.flows.jobs import add_cause_arguments, cause_from_arguments, job_exit, replay_job


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Work a range of a query's results out again, and publish what differs."
    )
    parser.add_argument("query", metavar="QUERY")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--from", dest="since", required=True, metavar="T", help="the first event time")
    parser.add_argument("--to", dest="until", required=True, metavar="T", help="the event time before which it ends")
    parser.add_argument("--technique", choices=["auto", "all", "minimal"], default="auto")
    parser.add_argument("--dry-run", action="store_true", help="only tell what it would take")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    wanted = (given.query, given.since, given.until, given.technique)
    return replay_job(given.project, wanted, dry=given.dry_run, cause=cause_from_arguments(given))


if __name__ == "__main__":
    sys.exit(job_exit(main))
