"""What a benchmark leaves behind: figures as JSON, pictures, and a table for who is looking on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from bench.measure import Metric, Outcome, Picture, Scale, environment, environment_line

# Okabe and Ito's colours: told apart with every kind of colour vision, and in grey.
BLUE, ORANGE, GREEN, INK = "#0072B2", "#E69F00", "#009E73", "#333333"
COLOURS = (BLUE, ORANGE, GREEN)


def publish(name: str, scale: Scale, outcome: Outcome, out: Path) -> None:
    """Write everything to `out` and print the table."""
    out.mkdir(parents=True, exist_ok=True)
    told = environment() | {"scale": scale.value}
    _write_json(out / f"{name}.json", [metric.record() for metric in outcome.metrics])
    _write_json(out / f"{name}.env.json", told)
    for picture in outcome.pictures:
        draw(picture, out / f"{name}-{picture.name}")
    Console().print(table(name, scale, outcome.metrics, environment_line(told)))


def table(name: str, scale: Scale, metrics: Sequence[Metric], caption: str) -> Table:
    drawn = Table(title=f"{name}, scale {scale}", caption=caption, title_justify="left", caption_justify="left")
    drawn.add_column("metric")
    drawn.add_column("value", justify="right")
    drawn.add_column("unit")
    drawn.add_column("goal", justify="right")
    drawn.add_column("holds")
    for metric in metrics:
        holds = {True: "yes", False: "[bold]NO[/bold]", None: ""}[metric.holds]
        drawn.add_row(metric.metric, figure(metric.value), metric.unit, metric.goal or "", holds)
    return drawn


def figure(value: float) -> str:
    """Three digits that count; whole from a hundred on, without exponents."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def draw(picture: Picture, stem: Path) -> None:
    """The picture as SVG and PNG, on white whatever stands around it."""
    with mpl.rc_context():
        mpl.rcParams.update({"font.size": 10, "text.color": INK, "svg.fonttype": "none", "svg.hashsalt": picture.name})
        drawing = Figure(figsize=(7, 3.6), facecolor="white", layout="constrained")
        FigureCanvasAgg(drawing)
        axes = drawing.add_subplot(facecolor="white")
        axes.set_title(picture.title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        picture.draw(axes)
        drawing.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None})
        drawing.savefig(stem.with_name(f"{stem.name}.png"), dpi=150)


def bars(axes: Axes, values: Mapping[str, float], unit: str, goal: float | None = None) -> None:
    """Lying bars with their figures, first on top, and the goal as a line."""
    names = list(values)
    colours = COLOURS[: len(names)] if len(names) <= len(COLOURS) else [BLUE] * len(names)
    drawn = axes.barh(names, list(values.values()), color=colours, height=0.6)
    axes.bar_label(drawn, [figure(value) for value in values.values()], padding=4)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.15)
    if goal is not None:
        axes.axvline(goal, color=INK, linestyle="--", linewidth=1)
        axes.annotate(
            f"goal {figure(goal)}", (goal, 1.0), xycoords=("data", "axes fraction"), ha="right", va="top", rotation=90
        )


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
