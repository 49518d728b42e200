"""The papers' experiments and plain Spark beside Errata, one command each: `errata bench NAME`.

`run` is the door. A benchmark is a module with a function `measure(scale, folder) -> Outcome`, entered in BENCHMARKS.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.measure import Outcome, Scale
from bench.report import publish
from errata.errors import EXIT_FAILED, UsageError, candidates, unknown

BENCHMARKS: Mapping[str, str] = {
    "archive": "bench.archive",
    "corrections": "bench.corrections_alone",
    "evaluate": "bench.evaluate",
    "ingest": "bench.ingest",
    "language": "bench.language",
}
"""Names of benchmarks and the modules that measure them; a module is imported when its benchmark is asked for."""


def run(name: str, scale: str, out: Path, benchmarks: Mapping[str, str] = BENCHMARKS) -> int:
    """Measure, write figures, grids and pictures to `out` under its name, print tables; 1 when a goal is missed."""
    if name not in benchmarks:
        raise unknown("benchmark", name, benchmarks)
    if scale not in list(Scale):
        raise UsageError(f"unknown scale {scale!r}", how=candidates(scale, [each.value for each in Scale]))
    module = importlib.import_module(benchmarks[name])
    with tempfile.TemporaryDirectory(prefix=f"errata-bench-{name}-") as folder:
        outcome: Outcome = module.measure(Scale(scale), Path(folder))
    publish(name, Scale(scale), outcome, out)
    return EXIT_FAILED if any(metric.holds is False for metric in outcome.metrics) else 0
