"""What a benchmark leaves behind: figures as JSON, pictures, and a table for who is looking on."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.measure import Grid, Metric, Outcome, Picture, Scale, environment, environment_line

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
    for grid in outcome.grids:
        _write_csv(out / f"{name}-{grid.name}.csv", grid)
        Console().print(grid_table(grid))
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


def grid_table(grid: Grid) -> Table:
    drawn = Table(title=grid.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column("", no_wrap=True)
    for column in grid.columns:
        drawn.add_column(column, justify="right")
    for name, values in grid.rows.items():
        drawn.add_row(name, *map(figure, values))
    return drawn


def figure(value: float) -> str:
    """Three digits that count; whole from a hundred on, without exponents."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def draw(picture: Picture, stem: Path) -> None:
    """The picture as SVG and PNG, on white whatever stands around it."""
    panels = [picture.draw] if callable(picture.draw) else list(picture.draw)
    with mpl.rc_context():
        mpl.rcParams.update({"font.size": 10, "text.color": INK, "svg.fonttype": "none", "svg.hashsalt": picture.name})
        width = max(7, 3.2 * len(panels))
        drawing = Figure(figsize=(width, 3.6), facecolor="white", layout="constrained")
        FigureCanvasAgg(drawing)
        for axes, panel in zip(drawing.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            axes.spines[["top", "right"]].set_visible(False)
            panel(axes)
        if callable(picture.draw):
            drawing.axes[0].set_title(picture.title, loc="left")
        else:
            drawing.suptitle(picture.title, x=0.01, ha="left")
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


def stacked(axes: Axes, values: Mapping[str, Sequence[float]], parts: Sequence[str], unit: str) -> None:
    """Standing bars, each of parts on top of one another, with their sum above."""
    names = list(values)
    ground = [0.0] * len(names)
    for number, part in enumerate(parts):
        heights = [each[number] for each in values.values()]
        drawn = axes.bar(names, heights, bottom=ground, color=COLOURS[number], width=0.7, label=part)
        ground = [low + height for low, height in zip(ground, heights, strict=True)]
    axes.bar_label(drawn, [figure(total) for total in ground], padding=2, fontsize=8)
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_ylabel(unit)
    axes.margins(y=0.15)


def _write_csv(path: Path, grid: Grid) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", *grid.columns])
        writer.writerows([name, *values] for name, values in grid.rows.items())


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
