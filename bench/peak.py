"""`python -m bench.peak FILE MODULE ARGUMENTS…` runs the module and writes to FILE the most memory the process held."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def held() -> int:
    """The most bytes of memory that this process has held so far (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024
    raise OSError("the system does not tell the most memory that a process held (VmHWM)")


def main(arguments: list[str]) -> None:
    told, module, *rest = arguments
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    Path(told).write_text(str(held()))


if __name__ == "__main__":
    main(sys.argv[1:])
