"""The papers' experiments and plain Spark beside Errata, one command each: `errata bench NAME`.

`run` is the door. A benchmark is a module with a function `measure(scale, folder) -> Outcome`, entered in BENCHMARKS;
one of several parts takes `only`, too.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measure import USUAL, Outcome, Scale
from bench.report import publish
from errata.errors import EXIT_FAILED, UsageError, candidates_text, unknown_name_error

BENCHMARKS: Mapping[str, str] = {
    "airflow": "bench.airflow",
    "archive": "bench.archive",
    "cold": "bench.cold",
    "corrections": "bench.corrections_alone",
    "evaluate": "bench.evaluate",
    "ingest": "bench.ingest",
    "language": "bench.language",
    "merge": "bench.merge",
    "psoup": "bench.psoup",
    "reduction": "bench.reduction",
    "replay": "bench.replay",
    "ways": "bench.ways",
}
"""Names of benchmarks and the modules that measure them; a module is imported when its benchmark is asked for."""

PARTS: Mapping[str, Sequence[str]] = {
    "airflow": ("submit", "connect", "parsing"),
    "evaluate": ("mix", "windows", "fixed", "planning"),
    "merge": ("inputs", "behaviour", "enforced", "arrivals", "switching"),
    "psoup": ("arrival", "invocation", "http", "registration"),
    "reduction": ("insertion", "reads", "beside", "peers"),
    "replay": ("table3", "overhead", "one", "many", "peers", "direct"),
}
"""Benchmarks of several parts, any of which can be measured alone."""

TENFOLD = frozenset({"replay"})
"""Benchmarks that can be asked for ten times the paper's archive."""


def run(
    name: str, scale: str, out: Path, benchmarks: Mapping[str, str] = BENCHMARKS, *, only: Sequence[str] = ()
) -> int:
    """Measure, write figures, grids and pictures to `out` under its name, print tables; 1 when a goal is missed."""
    if name not in benchmarks:
        raise unknown_name_error("benchmark", name, benchmarks)
    scales = [each.value for each in Scale if each in USUAL or name in TENFOLD]
    if scale not in scales:
        raise UsageError(f"unknown scale {scale!r}", how=candidates_text(scale, scales))
    for part in only:
        if part not in PARTS.get(name, ()):
            raise unknown_name_error("part", part, PARTS.get(name, ()))
    module = importlib.import_module(benchmarks[name])
    with tempfile.TemporaryDirectory(prefix=f"errata-bench-{name}-") as folder:
        parts = {"only": tuple(only)} if only else {}
        outcome: Outcome = module.measure(Scale(scale), Path(folder), **parts)
    publish(name, Scale(scale), outcome, out)
    return EXIT_FAILED if any(metric.holds is False for metric in outcome.metrics) else 0
