"""The example as a project to run: copied once, and then its owner's."""

from __future__ import annotations

import shutil
from pathlib import Path

from deploy.environment import HOUSE

EXAMPLE = HOUSE / "examples" / "quotes"
_COPIED = ("errata.yaml", "queries", "README.md")


def example_project(folder: Path) -> Path:
    """The example's errata.yaml in the folder."""
    project = folder / "project"
    declared = project / "errata.yaml"
    if not declared.exists():
        project.mkdir(parents=True, exist_ok=True)
        for name in reversed(_COPIED):  # errata.yaml last: with it the copy is complete
            source = EXAMPLE / name
            if source.is_dir():
                shutil.copytree(source, project / name, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, project / name)
    return declared
