"""Takes files into streams' archives: spark-submit jobs/append.py --project errata.yaml STREAM FILES…, or what has
landed: jobs/append.py --project errata.yaml --landed STREAMS…"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errata.archive.ingest.batch import IngestRequest
from errata.errors import EXIT_QUARANTINE
from errata.flows.jobs import add_cause_arguments, append_job, cause_from_arguments, job_exit


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Take files into a stream's archive.")
    parser.add_argument("stream")
    parser.add_argument("files", nargs="*", metavar="FILE", help="files, folders or globs")
    parser.add_argument("--project", type=Path, default=Path("errata.yaml"), help="the project's errata.yaml")
    parser.add_argument("--landed", action="store_true", help="take what has landed, of all streams named")
    parser.add_argument("--batch-id", help="the batch's name; by default made from the files' contents")
    parser.add_argument("--strict", action="store_true", help="one bad row fails the batch whole")
    parser.add_argument("--again", action="store_true", help="take files in although they were before")
    parser.add_argument("--accept-quarantine", action="store_true", help="exit 0 also when rows went to quarantine")
    add_cause_arguments(parser)
    given = parser.parse_args(argv)
    if given.landed:
        names = [given.stream, *given.files]
        batches = [IngestRequest(name, (), True, given.batch_id, given.strict, given.again) for name in names]
    else:
        batches = [IngestRequest(given.stream, given.files, False, given.batch_id, given.strict, given.again)]
    code = append_job(given.project, batches, cause_from_arguments(given))
    return 0 if code == EXIT_QUARANTINE and given.accept_quarantine else code


if __name__ == "__main__":
    sys.exit(job_exit(main))
