"""`errata bench`: the benchmarks of a checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

import errata
from errata.errors import ErrataError


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The benchmark, such as ingest.", show_default=False)],
    scale: Annotated[
        str, typer.Option("--scale", metavar="small|paper|ten", help="How much data; ten is for replay alone.")
    ] = "small",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for figures and pictures.")] = Path(
        "bench-out"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PART", help="Measure this part, of a benchmark of several.", show_default=False
        ),
    ] = None,
) -> int:
    """Measure: writes NAME.json and pictures, prints a table; exit code 1 when a goal is missed."""
    checkout = Path(errata.__file__).resolve().parents[2]
    if not (checkout / "bench" / "__init__.py").is_file():
        raise ErrataError(
            "there are no benchmarks here",
            why="they are part of the source, not of the installed package",
            how="clone the source and run `make bench NAME=… SCALE=… OUT=…` in it",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    code: int = importlib.import_module("bench").run(name, scale, out, only=only or ())
    return code
