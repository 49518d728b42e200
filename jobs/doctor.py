"""Looks whether archives are whole: spark-submit jobs/doctor.py --project errata.yaml [STREAM…] [--quick] [--fix]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.archive.upkeep.doctor import DoctorOptions
from errata.flows.jobs import add_cause_arguments, cause_from_arguments, doctor_job, job_exit


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare archives with what the catalog says of them.")
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="by default all streams")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument(
        "--quick", action="store_true", help="read no rows: look at the index and at what files there are"
    )
    parser.add_argument("--fix", action="store_true", help="mend what can be mended safely")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    return doctor_job(
        given.project, given.streams, DoctorOptions(deep=not given.quick, fix=given.fix), cause_from_arguments(given)
    )


if __name__ == "__main__":
    sys.exit(job_exit(main))
