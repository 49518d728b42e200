"""Draws docs/house.svg: the rooms in the order of import-linter's list in pyproject.toml, and what each is for."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

HOUSE = Path(__file__).resolve().parent.parent
DRAWING = HOUSE / "docs" / "house.svg"

PURPOSES = {
    "cli": ("errata …", "arguments in, words out"),
    "flows": ("one function per job", "calls the rooms below, holds no logic"),
    "psoup": ("registered queries", "matched in the background, answered on demand"),
    "read": ("results, changes, why", "reads everything, writes nothing"),
    "generate": ("generated feeds", "with the faults of real ones"),
    "reduce": ("samples and summaries", "rates, estimates, copies that readers ask for"),
    "answer": ("changes propagated", "evaluate, correct, replay, publish"),
    "archive": ("buckets", "write, scan, overlay, age out, compact, check"),
    "merge": ("several feeds to one stream", "elements, algorithms, policies; no catalog, no engine"),
    "declare": ("errata.yaml", "read strictly, compared with the catalog"),
    "intake": ("files to typed rows", "Arrow, no Spark"),
    "engine": ("near and far", "plans to DataFrames, run by Sail or Spark"),
    "catalog": ("the commit point", "the only room that knows SQLAlchemy"),
    "language": ("SQL to plans", "and everything known from a plan; no Spark"),
    "model": ("the domain's words", "standard library only"),
    "clock": ("the time", "passed in; read from the wall only here"),
    "errors": ("errors for people", "what, where, why, how to mend"),
}

DOORS = ("dags/, plugins/", "jobs/", "a shell", "import errata")
WIDTH, MARGIN, ROW, GAP = 760, 20, 52, 14
STYLE = """
  text { font: 14px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; fill: #1f2328 }
  .name { font: 600 15px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #0a3069 }
  .small { font-size: 12.5px; fill: #57606a }
  .room { fill: #eef4fb; stroke: #5b7ea6 }
  .door { fill: #f6f1e4; stroke: #a48a4b }
  .arrow { stroke: #768390; fill: none; stroke-width: 1.5 }
  .tip { fill: #768390 }
  .loose { fill: #768390; font-size: 12.5px }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .name { fill: #a5d0ff }
    .small { fill: #adbac7 }
    .room { fill: #1b2a3d; stroke: #5b7ea6 }
    .door { fill: #332c1b; stroke: #a48a4b }
    .loose { fill: #909dab }
  }
"""


def layers(house: Path = HOUSE) -> list[list[str]]:
    """The rooms from the top down; those on one floor know nothing of each other."""
    settings = tomllib.loads((house / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    floors: list[str] = next(each for each in contracts if each["type"] == "layers")["layers"]
    return [[room.strip().removeprefix("errata.") for room in floor.split("|")] for floor in floors]


def drawing(floors: list[list[str]]) -> str:
    """The house as SVG."""
    parts = _doors()
    top = MARGIN + 40 + 26
    for floor in floors:
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / len(floor)
        for number, room in enumerate(floor):
            parts += _room(room, MARGIN + number * (width + GAP), top, width, wide=len(floor) == 1)
        top += ROW + 8
    height = top + 34
    parts.append(_arrow(WIDTH - MARGIN / 2, MARGIN + 66, top - 8))
    parts.append(
        _text(MARGIN, top + 16, "A room may import the rooms below it, never one above or beside it.", "loose")
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">'
    title = '<title id="title">The rooms of Errata; imports point down</title>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def _doors() -> list[str]:
    width = (WIDTH - 2 * MARGIN - GAP * (len(DOORS) - 1)) / len(DOORS)
    parts = []
    for number, words in enumerate(DOORS):
        left = MARGIN + number * (width + GAP)
        parts.append(_box("door", left, MARGIN, width, 32))
        parts.append(_text(left + width / 2, MARGIN + 21, words, "small", middle=True))
        parts.append(_arrow(left + width / 2, MARGIN + 34, MARGIN + 62))
    return parts


def _room(room: str, left: float, top: float, width: float, *, wide: bool) -> list[str]:
    said, more = PURPOSES[room]
    box = _box("room", left, top, width, ROW)
    if wide:
        words = [_text(left + 130, top + 31, said), _text(left + 370, top + 31, more, "small")]
        return [box, _text(left + 16, top + 31, f"{room}/" if _is_folder(room) else room, "name"), *words]
    words = [_text(left + 110, top + 23, said), _text(left + 110, top + 41, more, "small")]
    return [box, _text(left + 16, top + 31, f"{room}/", "name"), *words]


def _is_folder(room: str) -> bool:
    return (HOUSE / "src" / "errata" / room).is_dir()


def _box(kind: str, left: float, top: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def _text(left: float, base: float, words: str, kind: str = "", *, middle: bool = False) -> str:
    attributes = (f' class="{kind}"' if kind else "") + (' text-anchor="middle"' if middle else "")
    return f'<text x="{left:g}" y="{base:g}"{attributes}>{escape(words)}</text>'


def _arrow(place: float, top: float, bottom: float) -> str:
    line = f'<path class="arrow" d="M{place:g} {top:g}V{bottom - 5:g}"/>'
    return f'{line}<path class="tip" d="M{place - 4:g} {bottom - 7:g}h8l-4 7z"/>'


if __name__ == "__main__":
    DRAWING.write_text(drawing(layers()), encoding="utf-8")
    sys.stderr.write(f"drew {DRAWING.name}\n")
