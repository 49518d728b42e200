"""The near engine's server: a process of its own that ends when the one that has started it does.

It is run as a file, so that nothing of the library is imported. It tells its port in a line; then, for each line it is
sent, the bytes of memory that it holds. Without whoever sends them it ends.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from pysail.spark import SparkConnectServer


def resident_memory() -> int:
    """Bytes of memory that the process holds."""
    told = Path("/proc/self/statm")
    if told.exists():
        return int(told.read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def serve() -> None:
    """Serve until there is nobody to serve."""
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    sys.stdout.write(f"{server.listening_address[1]}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"{resident_memory()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
