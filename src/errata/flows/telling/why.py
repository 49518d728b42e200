"""An answer's story: every value that it has had, when and by what it came to have it, and the rows behind it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.result_rows import feed_schema
from errata.archive.wire import conformed
from errata.catalog import commits, pins
from errata.catalog.published import Published, ever_published
from errata.engine.failures import question_failures
from errata.engine.session import obeying
from errata.errors import ErrataError, UsageError
from errata.evaluate.difference import comparable
from errata.flows.answering.answered import named, not_answered_yet, notes_on, words
from errata.flows.answering.forms import Forms
from errata.flows.site import Site, at_site
from errata.flows.telling.behind import Moment, Reader
from errata.flows.telling.causes import Result, Tracer
from errata.flows.telling.changes import read_records, stretches
from errata.flows.telling.result_keys import condition, constants, of_key, typed
from errata.flows.telling.versions import Archive, versions
from errata.model.instants import event_time
from errata.model.interval import Interval
from errata.model.results import OLD_VE, VE, VS
from errata.serve.rows import whole
from errata.serve.said import Said, said_rows, word
from errata.serve.story import Causes, Edit, Story, Value
from errata.serve.story_record import as_record

NAMED = 20
"""So many results are named where it is not told which is meant."""


def why(site: Site, query: str, key: Mapping[str, object], at: str | int | None = None) -> Story:
    """The story of the result that has this key, or this part of one, and counts at an event time. Values are given as
    text, or as what they are; empty text is NULL."""
    catalog = site.catalog
    name = named(catalog, query, commits.newest(catalog))
    whole = commits.whole_from(catalog, name)
    # The oldest state that is read: what commits since have removed stays, too.
    with pins.pinned(catalog, max(whole, 1), f"story of {name}") as pin, question_failures():
        telling = _Telling.begun(site, name, whole, key, at)
        story = telling.story()
        pin.check()
    return story


def told(
    spark: SparkSession,
    query: str,
    key: Mapping[str, object],
    *,
    at: str | int | None = None,
    project: Path | str | None = None,
) -> dict[str, object]:
    """The same as plain data."""
    obeying(spark, {})
    with at_site(Path(project) if project is not None else None) as site:
        return as_record(why(site, query, key, at))


@dataclass
class _Telling:
    site: Site
    name: str
    whole: int
    newest: int
    of: Published
    """The present results."""
    forms: Forms
    archives: list[Archive]
    key: dict[str, pa.Scalar]
    at: int
    notes: list[str]

    @classmethod
    def begun(cls, site: Site, name: str, whole: int, said: Mapping[str, object], at: str | int | None) -> _Telling:
        """Read what is told of a key, and find out which result is meant."""
        catalog, newest = site.catalog, commits.newest(site.catalog)
        ever = ever_published(catalog, name)
        if not ever:
            raise not_answered_yet(catalog, name)
        of, _ = ever[-1]
        key = typed(of.shape, said, name)
        instant = None if at is None else _instant(of, at)
        found = cls(site, name, whole, newest, of, Forms(catalog), [], key, 0, notes_on(catalog, [of]))
        found._read(ever, instant)
        found._choose(instant, said)
        return found

    def _read(self, ever: Sequence[tuple[Published, int | None]], at: int | None) -> None:
        """What the feed tells of the key, or of all keys with this part."""
        archives = {
            of.stream_id: Archive(of, ended, self.forms.of(of).by_beginnings)
            for of, ended in ever
            if comparable(of.shape, self.of.shape)
        }
        engines = self.site.engines()
        span = self.forms.of(self.of).beginnings(constants(self.key))
        span = Interval(span.start, span.end if at is None else min(span.end, at + 1))
        for each in stretches(
            self.site.catalog, self.name, self.whole, self.newest, restated=self.whole > 0, most=None
        ):
            if (archive := archives.get(each.of.stream_id)) is None:
                continue
            # Of former forms nobody knows where results of a key begin.
            known = span if each.of.query_id == self.of.query_id else Interval(end=span.end)
            parts = [part for part in each.parts if known.meets(part.bucket.vs_min, part.bucket.vs_max)]
            stretch = replace(each, parts=parts)
            only = condition(each.of.shape, self.key) + ("" if at is None else f" AND {VS} <= {at}L")
            records = whole(read_records(engines, self.site, stretch, only))
            archive.read.append((stretch, conformed(records, feed_schema(each.of.shape))))
        self.archives = [each for each in archives.values() if each.ended is None or each.ended > self.whole]
        if len(archives) < len(ever):
            self.notes.append(f"{self.name} has had another key, too: what it said then is left out")

    def _choose(self, at: int | None, said: Mapping[str, object]) -> None:
        """Settle which one result is meant."""
        names = self.of.shape.key
        parts = [table.select([*names, VS, VE, OLD_VE]) for each in self.archives for _, table in each.read]
        there = pa.concat_tables(parts)
        if at is not None:
            # Where no record tells when it ended, a result may count until the next of its key begins.
            ends = pc.max_element_wise(there[VE], there[OLD_VE])
            there = there.filter(pc.greater(ends, at))
        which = [*names, *([VS] if at is None else [])]
        keys = there.group_by(which).aggregate([]) if which else there.slice(0, 1)
        if keys.num_rows == 0:
            raise self._no_such(said, at)
        if keys.num_rows > 1:
            raise self._several(keys, at)
        row = keys.slice(0, 1).combine_chunks()
        self.key = {name: row[name][0] for name in names}
        if names and at is not None:
            # Others with this part of the key had ended by then.
            for each in self.archives:
                each.read = [(stretch, of_key(table, row.select(names))) for stretch, table in each.read]
        self.at = row[VS][0].as_py() if at is None else at

    def _no_such(self, said: Mapping[str, object], at: int | None) -> ErrataError:
        """Nothing is known of such a result."""
        told = ",".join(f"{name}={value}" for name, value in said.items())
        of_key = f" of the key {told}" if told else ""
        when = "" if at is None else f" at {words(at, self.of)}"
        gone = f"what was told before commit {self.whole} is no longer kept" if self.whole else None
        return ErrataError(
            f"query {self.name} has had no result{of_key}{when}",
            why=gone,
            how=f"`errata results {self.name}` shows those that there are, `errata changes {self.name}` all that were",
        )

    def _several(self, keys: pa.Table, at: int | None) -> UsageError:
        """It is not told which one is meant."""
        names = self.of.shape.key
        ordered = keys.sort_by([(name, "ascending") for name in keys.column_names if name != VS])
        if at is None:
            ordered = keys.sort_by([(VS, "descending")])
        shown = ordered.slice(0, NAMED)
        named_so = self._shown(shown)
        if at is None:
            begins = shown[VS].to_pylist()
            lines = [f"{_as_key(each)} --at {words(vs, self.of)}" for each, vs in zip(named_so, begins, strict=True)]
        else:
            lines = [_as_key(each) for each in named_so]
        more = keys.num_rows - shown.num_rows
        lines += [f"and {more:,} more"] * bool(more)
        one_key = not names or keys.group_by(names).aggregate([]).num_rows == 1
        what = "the key has had several results" if one_key else "several results have such a key"
        meant = "the event time at which it counts, as --at" if one_key else "all of its key"
        return UsageError(
            what,
            where=f"query {self.name}",
            how="\n    ".join([f"tell the one that is meant by {meant}:", *(line.strip() for line in lines)]),
        )

    def _shown(self, rows: pa.Table) -> list[Said]:
        """Keys under the names by which persons know their columns."""
        columns = [each for each in self.of.shape.columns if each.key]
        if not columns:
            return [{} for _ in range(rows.num_rows)]
        named_so = rows.select([each.name for each in columns]).rename_columns([each.shown for each in columns])
        return [*said_rows(named_so)]

    def story(self) -> Story:
        found = list(versions(self.site.catalog, self.archives, self.at, self.whole, self.newest))
        (key,) = self._shown(pa.table({name: pa.array([value]) for name, value in self.key.items()} or {VS: [0]}))
        if not found:
            raise self._no_such(key, self.at)
        known = commits.numbered(self.site.catalog, [each.commit_id for each in found])
        tracer, plain = Tracer(self.site, self.forms), constants(self.key)
        values, moments = [], []
        for each in found:
            causes = Causes([Edit(dropped=True)])
            if each.evaluation is not None:
                result = Result(each.of, each.evaluation, plain, each.vs, self.at)
                causes = Causes() if each.forgotten else tracer.causes(result)
                form = self.forms.of(each.of)
                moments.append(Moment(form, each.evaluation, form.region(plain, each.vs, self.at)))
            values.append(Value(known[each.commit_id], each.values, each.vs, each.ve, causes, each.cut))
        form = self.forms.of(self.of)
        now = Moment(form, self.of.last, form.region(plain, found[-1].vs, self.at))
        behind = Reader(self.site, self.forms).behind(moments, now)
        return Story(self.name, key, self.at, self.of.shape.timed, values, behind, self.notes)


def _instant(of: Published, at: str | int) -> int:
    """The event time that is meant, of which there must be an answer."""
    instant = event_time(at, timed=of.shape.timed)
    if instant > of.frontier:
        raise UsageError(
            f"{at} is later than what is answered",
            why=f"query {of.name} is answered up to {words(of.frontier, of)}",
            how="name that time or an earlier one",
        )
    return instant


def _as_key(key: Said) -> str:
    """A key as it is written on the command line, in the quotes that a shell wants."""
    told = ",".join(f"{name}={'' if value is None else word(value)}" for name, value in key.items())
    return shlex.quote(told) if told else ""
