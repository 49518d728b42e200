"""Which files are meant, and what has landed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from upath import UPath

from errata.errors import ErrataError, UsageError
from errata.intake.files import inspect_file, inspect_files, is_unchanged, list_landed, resolve_paths
from errata.model.batch import FileFormat
from errata.model.feed import LandedFileAction, LandingFolder

NAMES = ["b.csv", "a.jsonl.gz", "sub/c.parquet", ".hidden.csv", "_started.csv", "d.csv.tmp", "e.csv.part", "_tmp/f.csv"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def names(paths: list[UPath], folder: Path) -> list[str]:
    return [str(path).removeprefix(f"{folder}/") for path in paths]


def test_a_folder_gives_its_finished_files_sorted(folder: Path) -> None:
    assert names(resolve_paths([str(folder)]), folder) == ["a.jsonl.gz", "b.csv", "sub/c.parquet"]


def test_patterns_and_names_give_each_file_once(folder: Path) -> None:
    assert names(resolve_paths([str(folder / "*.csv"), str(folder / "b.csv")]), folder) == ["b.csv"]
    assert names(resolve_paths([str(folder / "**/*.parquet")]), folder) == ["sub/c.parquet"]


def test_a_local_name_is_made_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert [str(path) for path in resolve_paths(["b.csv"])] == [str(folder / "b.csv")]


def test_uris_are_found_like_local_paths() -> None:
    for name in ("y.csv", "x.csv"):
        UPath(f"memory://found/{name}").write_bytes(b"1")
    whole = ["memory://found/x.csv", "memory://found/y.csv"]
    assert [str(path) for path in resolve_paths(["memory://found"])] == whole
    assert [str(path) for path in resolve_paths(["memory://found/*.csv"])] == whole
    assert inspect_file(UPath(whole[0])).bytes == 1


def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*none\.csv"):
        resolve_paths([str(folder / "none.csv")])
    with pytest.raises(UsageError, match=r"\*\.json has no files"):
        resolve_paths([str(folder / "*.json")])
    (folder / "odd.txt").write_text("")
    with pytest.raises(UsageError, match=r"odd\.txt is in no format") as error:
        resolve_paths([str(folder)])
    assert ".csv.gz" in str(error.value)


def test_a_file_is_known_by_its_content(folder: Path) -> None:
    first, second, _ = inspect_files(reversed(resolve_paths([str(folder)])))
    assert (first.format, first.gzip, second.format, second.gzip) == (FileFormat.JSON, True, FileFormat.CSV, False)
    assert (second.bytes, second.sha256) == (5, hashlib.sha256(b"b.csv").hexdigest())
    with pytest.raises(ErrataError, match=r"gone\.csv: the file cannot be read"):
        inspect_file(UPath(folder / "gone.csv"))


def test_what_has_landed_is_told_with_size_and_time(folder: Path) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "old.csv").write_bytes(b"")
    (folder / "readme.txt").write_bytes(b"")
    for path in folder.rglob("*"):
        os.utime(path, (100, 100))
    os.utime(folder / "b.csv", (109, 109))
    landing = LandingFolder(str(folder), 10_000_000, LandedFileAction.MOVE)
    found = list_landed(landing)
    assert names(list(found), folder) == ["a.jsonl.gz", "b.csv", "sub/c.parquet"]
    assert found[UPath(folder / "b.csv")] == (5, 109_000_000)
    assert list_landed(LandingFolder(str(folder / "none"), 0, LandedFileAction.KEEP)) == {}


def test_a_file_in_place_of_the_landing_folder_is_told(folder: Path) -> None:
    with pytest.raises(ErrataError, match="the landing folder is a file"):
        list_landed(LandingFolder(str(folder / "b.csv"), 0, LandedFileAction.KEEP))


def test_a_file_that_was_touched_is_not_the_one_that_was_looked_at(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.csv" for name in ("same", "longer", "later", "gone")]
    for path in paths:
        path.write_bytes(b"1")
        os.utime(path, ns=(10**18, 10**18))
    files = inspect_files(UPath(path) for path in paths)
    assert all(is_unchanged(file) for file in files)
    for path, size, moment in ((paths[1], 2, 10**18), (paths[2], 1, 10**18 + 1_000)):
        path.write_bytes(b"2" * size)
        os.utime(path, ns=(moment, moment))
    paths[3].unlink()
    assert {Path(file.name).stem: is_unchanged(file) for file in files} == {
        "same": True,
        "longer": False,
        "later": False,
        "gone": False,
    }
