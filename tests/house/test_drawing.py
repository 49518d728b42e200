"""The drawing of the house is of the house: of the rooms that import-linter is told of, and of those on the disk."""

from __future__ import annotations

import importlib.util
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

HOUSE = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_house", HOUSE / "docs" / "draw_house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


draw_house = load()


def test_the_drawing_is_up_to_date() -> None:
    drawn = draw_house.DRAWING.read_text(encoding="utf-8")
    assert drawn == draw_house.drawing(draw_house.layers()), "run `python docs/draw_house.py`"
    ET.fromstring(drawn)


def test_every_room_is_in_the_list() -> None:
    source = HOUSE / "src" / "errata"
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    rooms |= {path.stem for path in source.glob("*.py") if path.stem != "__init__"}
    assert rooms == {room for floor in draw_house.layers() for room in floor}


def test_a_wheel_carries_every_migration() -> None:
    """Those that the catalog looks for below `share/errata` when there is no checkout."""
    declared = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    carried = {
        f"{place}/{file.name}": file.relative_to(HOUSE).as_posix()
        for place, patterns in declared.items()
        for pattern in patterns
        for file in HOUSE.glob(pattern)
    }
    there = [path for path in (HOUSE / "sql" / "migrations").rglob("*") if path.suffix in (".py", ".mako")]
    assert carried == {f"share/errata/{file.relative_to(HOUSE)}": str(file.relative_to(HOUSE)) for file in there}
    assert len(carried) >= 3
