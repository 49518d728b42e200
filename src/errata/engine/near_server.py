"""The near engine's server process. It ends when the process that started it does.

It is run as a file, so that nothing of this library is imported. It writes its port as a line; then, for each line that
it reads, its resident bytes. At the end of its input it exits.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from pysail.spark import SparkConnectServer


def resident_memory() -> int:
    """Resident bytes of this process."""
    told = Path("/proc/self/statm")
    if told.exists():
        return int(told.read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def serve() -> None:
    """Serve until the input ends."""
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    sys.stdout.write(f"{server.listening_address[1]}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"{resident_memory()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
