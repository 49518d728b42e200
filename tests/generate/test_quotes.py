"""The generated feed: the same every time, in the paper's proportions, faulty exactly as asked."""

import csv
import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from errata.errors import UsageError
from errata.generate import feed as feed_module
from errata.generate.faults import FeedMistake, RevisionKind, make_revisions
from errata.generate.feed import BLOCK, QuoteFeed, ticker_names
from errata.generate.files import price_text
from errata.generate.quotes import DEFAULT_START, GeneratedFeed, QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.time import SECOND, format_instant, parse_instant

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """A file's records as CSV would tell them, whatever the format; bad ones too."""
    if path.suffix == ".parquet":
        return [_told(row) for row in pq.read_table(path).to_pylist()]
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    if ".json" in path.name:
        return [_told(json.loads(line)) for line in text.splitlines()]
    return list(csv.DictReader(text.splitlines(), restval=""))


def _told(row: dict[str, object]) -> Row:
    told = {}
    for name, value in row.items():
        if value is None:
            told[name] = ""
        elif isinstance(value, float):
            told[name] = f"{value:.2f}"
        elif name == "time" and not isinstance(value, str):
            told[name] = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        else:
            told[name] = str(value)
    return told


def everything(generated: GeneratedFeed) -> list[Row]:
    return [row for path in generated.files for row in read(path)]


def micros(row: Row) -> int:
    return parse_instant(row["time"])


def key(row: Row) -> tuple[str, str]:
    return row["time"], row["symbol"]


FAULTY = QuoteSpec(
    rows=230_000, rows_per_file=60_000, disorder=0.05, late=40, revisions=RevisionKind.HIGH, mistakes=12, symbols=50
)


def test_the_same_specification_gives_the_same_bytes(tmp_path: Path) -> None:
    for kind in FileFormat:
        spec = replace(FAULTY, rows=130_000, format=kind, gzip=kind is FileFormat.JSON)
        first, second = (generate_quotes(spec, tmp_path / kind / name) for name in ("one", "two"))
        assert [file.name for file in first.files] == [file.name for file in second.files]
        assert [file.read_bytes() for file in first.files] == [file.read_bytes() for file in second.files]


def test_another_seed_gives_another_feed(tmp_path: Path) -> None:
    one = generate_quotes(QuoteSpec(rows=1_000), tmp_path / "one")
    two = generate_quotes(QuoteSpec(rows=1_000, seed=2), tmp_path / "two")
    assert {key(row) for row in everything(one)}.isdisjoint({key(row) for row in everything(two)})


def test_every_symbol_reports_once_a_second_in_ascending_order(tmp_path: Path) -> None:
    rows = everything(generate_quotes(QuoteSpec(rows=4_000), tmp_path))
    times = [micros(row) for row in rows]
    assert times == sorted(set(times))
    for second in range(20):
        quoted = [row["symbol"] for row in rows[second * 200 : (second + 1) * 200]]
        assert sorted(quoted) == sorted(ticker_names(200))
        assert {(time - DEFAULT_START) // SECOND for time in times[second * 200 : (second + 1) * 200]} == {second}


def test_prices_walk_in_small_steps_and_stay_positive() -> None:
    feed = QuoteFeed(seed=1, symbols=7, start=DEFAULT_START)
    rows = feed.rows_between(0, 7 * BLOCK * 20)
    assert rows.cents.min() >= 100
    for symbol in range(7):
        path = rows.cents[rows.symbol == symbol]
        steps = np.abs(np.diff(path))
        assert steps.max() < 0.02 * path.max()
        assert len(set(path.tolist())) > 50


def test_a_row_is_the_same_from_wherever_it_is_asked() -> None:
    feed = QuoteFeed(seed=3, symbols=11, start=DEFAULT_START)
    whole = feed.rows_between(0, 60_000)
    numbers = np.array([59_999, 0, 11 * BLOCK, 11 * BLOCK - 1, 31_337])
    alone, part = feed.rows_at(numbers), feed.rows_between(31_000, 31_400)
    for name in ("time", "symbol", "cents"):
        assert getattr(alone, name).tolist() == getattr(whole, name)[numbers].tolist()
        assert getattr(part, name).tolist() == getattr(whole, name)[31_000:31_400].tolist()
    far = 11 * BLOCK * 6_000
    assert feed.rows_at(np.array([far])).cents[0] == feed.rows_between(far - 5, far + 5).cents[5]


def test_disorder_stays_within_its_span_and_loses_nothing(tmp_path: Path) -> None:
    plain = generate_quotes(QuoteSpec(rows=50_000, rows_per_file=30_000), tmp_path / "plain")
    mixed = generate_quotes(QuoteSpec(rows=50_000, rows_per_file=30_000, disorder=0.1), tmp_path / "mixed")
    for straight, shaken in zip(plain.files, mixed.files, strict=True):
        assert sorted(map(key, read(shaken))) == [key(row) for row in read(straight)]
    times = np.array([micros(row) for row in everything(mixed)])
    behind = np.maximum.accumulate(times) - times
    assert behind.max() <= 2 * SECOND
    assert mixed.disordered == np.count_nonzero(behind)
    assert 0.09 < mixed.disordered / 50_000 < 0.11
    assert plain.disordered == 0


def test_disorder_crosses_the_borders_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = QuoteSpec(rows=30_000, symbols=3, disorder=0.3)
    large = generate_quotes(spec, tmp_path / "large")
    monkeypatch.setattr(feed_module, "CHUNK_ROWS", 1)
    assert QuoteFeed(1, 3, DEFAULT_START).chunk == 3 * BLOCK
    small = generate_quotes(spec, tmp_path / "small")
    assert small.files[0].read_bytes() == large.files[0].read_bytes()
    assert small.disordered == large.disordered


def test_late_rows_come_at_the_end_of_the_file_that_follows(tmp_path: Path) -> None:
    spec = QuoteSpec(rows=30_000, rows_per_file=10_000, late=25)
    generated = generate_quotes(spec, tmp_path)
    files = [read(file) for file in generated.files]
    assert generated.late == 25
    assert [len(rows) for rows in files] == [10_000 - 13, 10_000 + 13 - 12, 10_000 + 12]
    for before, rows, count in ((files[0], files[1], 13), (files[1], files[2], 12)):
        newest = max(map(micros, before))
        assert all(micros(row) < newest - 20 * SECOND for row in rows[-count:])
        assert micros(rows[-count - 1]) > newest
    in_order = generate_quotes(replace(spec, late=0), tmp_path / "order")
    assert sorted(map(key, everything(generated))) == [key(row) for row in everything(in_order)]


@pytest.mark.parametrize(("kind", "count"), [("none", 0), ("low", 1), ("mod", 2), ("high", 10)])
def test_revisions_are_as_frequent_as_in_the_paper(tmp_path: Path, kind: str, count: int) -> None:
    generated = generate_quotes(
        QuoteSpec(rows=1_000_000, revisions=RevisionKind(kind), format=FileFormat.PARQUET), tmp_path / kind
    )
    assert generated.revisions == count
    table = pq.read_table(generated.files[0])
    if count:
        operations = table.column("_op")
        assert operations.to_pylist().count("replace") == count
        assert operations.null_count == 1_000_000
    else:
        assert table.column_names == ["time", "symbol", "price"]


def test_a_revision_replaces_the_price_that_was_generated_for_its_key(tmp_path: Path) -> None:
    generated = generate_quotes(replace(FAULTY, mistakes=0), tmp_path)
    seen: dict[tuple[str, str], str] = {}
    revised = 0
    for row in everything(generated):
        if row["_op"] == "replace":
            assert seen[key(row)] == row["_old_price"] != row["price"]
            revised += 1
        else:
            assert row["_op"] == row["_old_price"] == ""
        seen[key(row)] = row["price"]
    assert revised == generated.revisions == 2


def test_a_revision_reaches_back_23_hours_at_most() -> None:
    feed = QuoteFeed(seed=5, symbols=1, start=DEFAULT_START)
    found = make_revisions(feed, RevisionKind.HIGH, 0, 20_000_000, 2 * SECOND, frozenset())
    age = [extra.ordinal - (extra.time - DEFAULT_START) // SECOND for extra in found]
    assert 190 <= len(found) <= 200
    assert min(age) > 2
    assert 20 * 3600 < max(age) <= 23 * 3600 + 1


def test_a_row_revised_twice_replaces_the_first_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RevisionKind, "period", 10)
    feed = QuoteFeed(seed=2, symbols=1, start=DEFAULT_START)
    found = make_revisions(feed, RevisionKind.HIGH, 0, 3_000, 2 * SECOND, frozenset())
    current: dict[int, int] = {}
    chained = 0
    for extra in found:
        if extra.time in current:
            assert extra.old_cents == current[extra.time]
            chained += 1
        current[extra.time] = extra.cents
    assert chained > 0
    later = make_revisions(feed, RevisionKind.HIGH, 2_000, 3_000, 2 * SECOND, frozenset())
    assert later == found[-len(later) :]


def test_a_row_that_comes_late_is_not_revised_before() -> None:
    feed = QuoteFeed(seed=2, symbols=1, start=DEFAULT_START)
    (first,) = make_revisions(feed, RevisionKind.HIGH, 0, 100_000, 2 * SECOND, frozenset())
    row = (first.time - DEFAULT_START) // SECOND
    (other,) = make_revisions(feed, RevisionKind.HIGH, 0, 100_000, 2 * SECOND, frozenset({row, row - 1}))
    assert (other.time - DEFAULT_START) // SECOND == row - 2


def test_mistakes_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    for kind, kinds in ((FileFormat.CSV, 6), (FileFormat.JSON, 6), (FileFormat.PARQUET, 4)):
        generated = generate_quotes(replace(FAULTY, format=kind), tmp_path / kind)
        written = Counter(each.kind for each in generated.mistakes)
        assert written.total() == 12
        assert set(written.values()) == {12 // kinds}
        files = {file: read(file) for file in generated.files}
        for made in generated.mistakes:
            rows = files[made.file]
            place = made.line - (2 if kind is FileFormat.CSV else 1)
            _check(made.kind, rows[place], rows[:place])
        assert sum(map(len, files.values())) == generated.rows + generated.revisions + 12


def _check(kind: FeedMistake, row: Row, before: list[Row]) -> None:
    above = before[-1]
    match kind:
        case FeedMistake.UNREADABLE_PRICE:
            with pytest.raises(ValueError, match="x"):
                float(row["price"])
        case FeedMistake.MISSING_SYMBOL:
            assert row["symbol"] == "" != row["time"]
        case FeedMistake.TOO_FEW_VALUES:
            assert not row.get("price")
        case FeedMistake.YEAR_2206:
            assert row["time"].startswith("2206-")
        case FeedMistake.EXACT_DUPLICATE:
            assert (key(row), row["price"]) == (key(above), above["price"])
        case FeedMistake.CONFLICTING_DUPLICATE:
            assert key(row) == key(above)
            assert row["price"] != above["price"]


def test_mistakes_that_are_no_duplicates_bear_no_key_of_a_quote(tmp_path: Path) -> None:
    generated = generate_quotes(QuoteSpec(rows=20_000, symbols=2_000, mistakes=300), tmp_path)
    lines = generated.files[0].read_text().splitlines()
    made = {mistake.line: mistake.kind for mistake in generated.mistakes}
    keys = {tuple(line.split(",")[:2]) for number, line in enumerate(lines[1:], 2) if number not in made}
    assert len(keys) == 20_000
    duplicates = {FeedMistake.EXACT_DUPLICATE, FeedMistake.CONFLICTING_DUPLICATE}
    for number, kind in made.items():
        assert (tuple(lines[number - 1].split(",")[:2]) in keys) == (kind in duplicates)


def test_all_formats_tell_the_same(tmp_path: Path) -> None:
    spec = replace(FAULTY, mistakes=0)
    told = []
    for kind, zipped in (
        (FileFormat.CSV, False),
        (FileFormat.CSV, True),
        (FileFormat.JSON, True),
        (FileFormat.PARQUET, False),
    ):
        generated = generate_quotes(replace(spec, format=kind, gzip=zipped), tmp_path / f"{kind}{zipped}")
        told.append(
            [(*key(row), row["price"], row.get("_op", ""), row.get("_old_price", "")) for row in everything(generated)]
        )
    assert told[0] == told[1] == told[2] == told[3]
    assert len(told[0]) == 230_002


def test_a_feed_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    spec = replace(FAULTY, rows=240_000, late=0, mistakes=0)
    whole = generate_quotes(spec, tmp_path / "whole")
    parts = [
        generate_quotes(replace(spec, rows=rows, after=after), tmp_path / "parts")
        for rows, after in ((120_000, 0), (60_000, 120_000), (60_000, 180_000))
    ]
    files = [file for part in parts for file in part.files]
    assert [(file.name, file.read_bytes()) for file in files] == [
        (file.name, file.read_bytes()) for file in whole.files
    ]
    assert sum(part.revisions for part in parts) == whole.revisions == 2


def test_a_feed_may_go_on_in_the_middle_of_a_second(tmp_path: Path) -> None:
    whole = generate_quotes(QuoteSpec(rows=5_000), tmp_path / "whole")
    head = generate_quotes(QuoteSpec(rows=3_333), tmp_path / "parts")
    tail = generate_quotes(QuoteSpec(rows=1_667, after=3_333), tmp_path / "parts")
    assert everything(head) + everything(tail) == everything(whole)


def test_files_are_complete_when_they_bear_their_name(tmp_path: Path) -> None:
    there: list[set[str]] = []
    generated = generate_quotes(
        QuoteSpec(rows=25_000, rows_per_file=10_000),
        tmp_path,
        lambda _: there.append({path.name for path in tmp_path.iterdir()}),
    )
    names = [file.name for file in generated.files]
    assert names == ["quotes-000000000000.csv", "quotes-000000010000.csv", "quotes-000000020000.csv"]
    assert there == [{*names[:number], f"_{names[number]}.tmp"} for number in range(3)]
    assert {path.name for path in tmp_path.iterdir()} == set(names)


def test_progress_adds_up_to_the_rows_and_no_step_is_large(tmp_path: Path) -> None:
    steps: list[int] = []
    generate_quotes(replace(FAULTY, rows=500_000, rows_per_file=500_000, late=0), tmp_path, steps.append)
    assert sum(steps) == 500_000
    assert max(steps) < 1.5 * QuoteFeed(1, 50, DEFAULT_START).chunk < 400_000


def test_no_more_than_a_chunk_is_held() -> None:
    for symbols in (1, 3, 200, 2_000):
        chunk = QuoteFeed(1, symbols, DEFAULT_START).chunk
        assert chunk % (symbols * BLOCK) == 0
        assert chunk <= max(feed_module.CHUNK_ROWS, symbols * BLOCK)


def test_ibm_is_among_the_symbols_and_no_name_is_used_twice() -> None:
    assert "IBM" in ticker_names(200)
    assert len(set(ticker_names(2_000))) == 2_000
    assert ticker_names(201)[200] == "IBM.B"


def test_text_is_written_as_the_format_says() -> None:
    assert format_instant(DEFAULT_START) == "2026-11-18T00:00:00.000000"
    assert price_text(7_505) == "75.05"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rows": 0}, "a row or more"),
        ({"symbols": 3_000}, "3000 symbols"),
        ({"disorder": 1.5}, "share from 0 to 1"),
        ({"gzip": True, "format": FileFormat.PARQUET}, "not gzipped"),
        ({"late": 1}, "room for 0"),
        ({"late": 501, "rows_per_file": 1_000, "rows": 2_000}, "room for 500"),
    ],
)
def test_what_cannot_be_generated_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        QuoteSpec(**({"rows": 1_000} | wrong))
