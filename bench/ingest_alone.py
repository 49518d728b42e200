"""Takes files in, in a process of its own whose memory is watched: FOLDER FILES…"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.errata_under_test import make_site, take_in


def main(arguments: list[str]) -> None:
    folder, *files = arguments
    site = make_site(Path(folder), 500_000)
    take_in(site, [Path(file) for file in files])
    site.session().stop()


if __name__ == "__main__":
    main(sys.argv[1:])
