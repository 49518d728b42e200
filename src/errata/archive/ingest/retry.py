"""Rows and files in quarantine ingested again.

The texts of rows are written to files under the warehouse (`STREAM/retried/…`) and ingested as a batch whose commit
also settles the rows in quarantine; held files are ingested as they lie in their landing folder."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from upath import UPath

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.quarantine import QuarantineItems, settled_error
from errata.catalog.quarantine import PICTURE_OF_NUL, QuarantineConflict, QuarantineRow, RowSyntax
from errata.declare.site import ProgressCallback, Site
from errata.declare.warehouse import Warehouse
from errata.intake.formats import parse_object
from errata.intake.split_reader import is_lossy_text
from errata.model.batch import Op, QuarantineRetry
from errata.model.stream import Stream


@dataclass(frozen=True, slots=True)
class RetryReport:
    """The outcome of a retry."""

    batches: Sequence[IngestReport]
    unreadable: Sequence[tuple[QuarantineRow, str]]
    """Rows that cannot be read again, and why; they stay in quarantine."""

    @property
    def quarantined(self) -> int:
        """How many rows and files are still in quarantine, or again."""
        again = sum(each.counts.quarantined + len(each.held_files) for each in self.batches)
        return len(self.unreadable) + again


def retry_items(site: Site, selected: QuarantineItems, on_step: ProgressCallback = lambda _: None) -> RetryReport:
    """Ingest the rows again and settle them in the same commit. Late rows become revisions, and rows that are still bad
    go to quarantine again, as rows of the new batch. Files are read again as they are now."""
    site.declared(selected.stream.name)
    left = [(each, why) for each in selected.rows if (why := _why_unreadable(each, selected.stream))]
    kept = {each.quarantine_id for each, _ in left}
    alike: dict[tuple[Op, str | None], list[QuarantineRow]] = defaultdict(list)
    for each in _in_file_order(selected.rows):
        if each.quarantine_id not in kept:
            alike[each.default_op, each.feed].append(each)
    # One batch, unless some of the rows came as revisions without an `_op` and others did not, or of several feeds.
    batches = [_retry_rows(site, selected.stream, said, rows, on_step) for said, rows in alike.items()]
    if selected.files:
        names = frozenset(each.name for each in selected.files)
        batches.append(
            ingest_batch(site, IngestRequest(selected.stream.name, landed=True, retried_files=names), on_step)
        )
    return RetryReport(batches, left)


def _in_file_order(rows: Sequence[QuarantineRow]) -> list[QuarantineRow]:
    """Rows by batch, file and line, so that of contradicting rows the same one is kept as before."""
    batches = {each.batch_id: each.quarantine_id for each in reversed(rows)}
    return sorted(rows, key=lambda each: (batches[each.batch_id], each.row.file, each.row.line, each.quarantine_id))


def _why_unreadable(row: QuarantineRow, stream: Stream) -> str | None:
    """Why a row's text cannot be read again; None if it can."""
    names = {each.name for each in stream.merged.feeds}
    by_a_person = row.feed is None and row.default_op is Op.REPLACE
    if names and row.feed not in names and not by_a_person:
        return "it came before the stream had feeds, or from one that is no longer declared"
    if is_lossy_text(row.row.reason) or PICTURE_OF_NUL in row.row.text:
        return "what is kept of it is not what the file says, which no text can hold"
    if row.form is RowSyntax.CSV and row.header is None:
        return "the header of its file is not known: it came in before headers were kept"
    return None


def _retry_rows(
    site: Site,
    stream: Stream,
    said: tuple[Op, str | None],
    rows: Sequence[QuarantineRow],
    on_step: ProgressCallback,
) -> IngestReport:
    """Rows of one operation and one feed."""
    ids = sorted(each.quarantine_id for each in rows)
    name = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]
    site.warehouse.check()
    paths: list[str] = []
    places: dict[str, list[tuple[str, int]]] = {}
    for number, (ending, lines, group) in enumerate(_retry_files(stream, rows)):
        file = f"{number}.{ending}"
        paths.append(_write_file(site.warehouse, f"{stream.name}/retried/{name}/{file}", lines))
        places[file] = [(each.row.file, each.row.line) for each in group]
    batch = IngestRequest(
        stream.name,
        paths,
        batch_id=f"retry-{name}",
        again=True,  # a row that fails twice makes the same file twice
        default_op=said[0],
        retried=QuarantineRetry(ids, places),
        feed=said[1],
    )
    try:
        return ingest_batch(site, batch, on_step)
    except QuarantineConflict:
        raise settled_error(stream) from None


def _retry_files(
    stream: Stream, rows: Sequence[QuarantineRow]
) -> Iterator[tuple[str, list[str], Sequence[QuarantineRow]]]:
    """The rows as files: one for each CSV header, and JSON lines for the others. Rows begin in line 2."""
    of_json: dict[bool, list[QuarantineRow]] = defaultdict(list)
    of_csv: dict[str, list[QuarantineRow]] = defaultdict(list)
    for row in rows:
        if row.form is RowSyntax.CSV and row.header is not None:
            of_csv[row.header].append(row)
        else:
            of_json[_gives_order(stream, row)].append(row)
    for header, group in of_csv.items():
        yield "csv", [header, *(each.row.text for each in group)], group
    for group in of_json.values():
        # An empty first line is skipped. A row that begins with `[` in the first line would look like a JSON array.
        yield "jsonl", ["", *(each.row.text for each in group)], group


def _gives_order(stream: Stream, row: QuarantineRow) -> bool:
    """Whether a row of a stream ordered on arrival gives its order; the rows of one file must do alike."""
    said = parse_object(row.row.text.encode()) if stream.ordered_on_arrival else {}
    return isinstance(said, dict) and stream.order in said


def _write_file(warehouse: Warehouse, relative: str, lines: Sequence[str]) -> str:
    """Write a file whose name is derived from its content, unless it is there already."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path = warehouse.path(relative)
    if not UPath(path).exists() or warehouse.read(relative) != content:
        warehouse.write(relative, content)
    return path
