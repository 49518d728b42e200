"""The harness, with a toy benchmark."""

import io
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from bench.measure import Metric, Outcome, Picture, Scale, Timings, environment, interleaved, peak_memory
from bench.report import bars, figure, table
from rich.console import Console

import bench
from errata.errors import UsageError

TOY = {"toy": "toy_benchmark"}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("toy_benchmark")
    monkeypatch.setitem(sys.modules, "toy_benchmark", module)
    module.seen = []

    def measure(scale: Scale, folder: Path) -> Outcome:
        module.seen.append((scale, folder, folder.is_dir()))
        pictures = [Picture("speed", "How fast", lambda axes: bars(axes, {"ours": 1.25, "theirs": 1.0}, "s", goal=1.3))]
        return Outcome([Metric("ratio", 1.25, "times", "<= 1.3"), Metric("rows", 1e6, "rows")], pictures)

    module.measure = measure
    return module


def test_a_benchmark_writes_figures_pictures_and_where_it_ran(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run("toy", "small", tmp_path / "out", TOY) == 0
    assert json.loads((tmp_path / "out" / "toy.json").read_text()) == [
        {"metric": "ratio", "value": 1.25, "unit": "times", "goal": "<= 1.3", "holds": True},
        {"metric": "rows", "value": 1e6, "unit": "rows", "goal": None, "holds": None},
    ]
    told = json.loads((tmp_path / "out" / "toy.env.json").read_text())
    assert told["scale"] == "small"
    assert told["versions"]["pyspark"] == "4.2.0"
    assert (tmp_path / "out" / "toy-speed.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "out" / "toy-speed.svg").read_text()
    assert "How fast" in svg
    assert "goal 1.3" in svg
    printed = capsys.readouterr().out
    assert "1.25" in printed
    assert f"{told['cores']} cores" in printed
    ((scale, folder, was_there),) = toy.seen
    assert (scale, was_there, folder.exists()) == (Scale.SMALL, True, False)


def test_a_missed_goal_shows_in_the_exit_code(toy: ModuleType, tmp_path: Path) -> None:
    toy.measure = lambda _scale, _folder: Outcome([Metric("ratio", 1.4, "times", "<= 1.3")])
    assert bench.run("toy", "paper", tmp_path, TOY) == 1


def test_an_unknown_name_or_scale_is_told_the_candidates(toy: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean ingest"):
        bench.run("ingst", "small", tmp_path)
    with pytest.raises(UsageError, match="there is small, paper"):
        bench.run("toy", "huge", tmp_path, TOY)
    assert toy.seen == []


def test_every_benchmark_there_is_can_be_measured() -> None:
    for module in bench.BENCHMARKS.values():
        assert callable(bench.importlib.import_module(module).measure)


@pytest.mark.parametrize(
    ("goal", "value", "holds"),
    [
        ("<= 2", 2.0, True),
        ("< 2", 2.0, False),
        (">= 2", 2.0, True),
        ("> 2.5", 2.0, False),
        ("<= 2", float("nan"), False),
    ],
)
def test_goals_hold_or_not(goal: str, value: float, holds: bool) -> None:
    assert Metric("m", value, "u", goal).holds is holds


def test_a_goal_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        Metric("m", 1.0, "u", "at most 2")


def test_contenders_take_turns_and_the_first_rounds_do_not_count() -> None:
    order: list[tuple[str, int]] = []

    def noted(name: str, seconds: float) -> object:
        def contender(number: int) -> None:
            order.append((name, number))
            time.sleep(seconds)

        return contender

    timings = interleaved(2, warm_up=1, slow=noted("slow", 0.02), fast=noted("fast", 0.001))
    assert order == [("slow", 0), ("fast", 0), ("fast", 1), ("slow", 1), ("slow", 2), ("fast", 2)]
    assert [len(seconds) for seconds in timings.seconds.values()] == [2, 2]
    assert timings.median("slow") >= 0.02
    assert timings.ratio("slow", "fast") > 1


def test_ratios_are_of_the_same_round() -> None:
    timings = Timings({"ours": [2.0, 20.0, 6.0], "theirs": [1.0, 10.0, 2.0]})
    assert timings.ratio("ours", "theirs") == 2.0
    assert timings.median("ours") == 6.0
    assert timings.percentile("ours", 0.95) == 20.0
    assert timings.percentile("ours", 0.5) == 6.0


def test_peak_memory_is_of_the_whole_run_and_of_that_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hungry.py").write_text("import sys\nheld = bytearray(int(sys.argv[1]))\ndel held\n")
    monkeypatch.syspath_prepend(tmp_path)
    modest, hungry = peak_memory("hungry", "1"), peak_memory("hungry", str(200 << 20))
    assert 150 << 20 < hungry - modest < 250 << 20


def test_a_run_that_fails_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('the disk is full')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="the disk is full"):
        peak_memory("broken")


def test_the_table_says_which_goals_are_missed() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table("toy", Scale.SMALL, [Metric("ratio", 1.4, "times", "<= 1.3")], "here"))
    text = console.export_text()
    assert "NO" in text
    assert "<= 1.3" in text


@pytest.mark.parametrize(("value", "text"), [(1_234_567.0, "1,234,567"), (1.2345, "1.23"), (0.00123, "0.00123")])
def test_figures_are_short(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_environment_is_told_in_numbers() -> None:
    told = environment()
    assert told["cores"] >= 1
    assert told["memory_gib"] > 0
