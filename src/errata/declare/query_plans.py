"""Declared queries parsed, checked and fingerprinted; unchanged ones are not parsed again.

Each query has a digest of all that decides about it: its text, its options, and what it reads. While the digest is that
of the applied query, the recorded properties hold.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from errata.declare.project import Project
from errata.declare.queries import QueryFile
from errata.declare.section import YamlProblems
from errata.errors import ErrataError, UsageError
from errata.language.nodes import scans_of
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, Source
from errata.language.plan_text import fingerprint, has_timestamps
from errata.language.queries import QueryText, read_names, read_queries, stream_source
from errata.language.reading.mistakes import LanguageError
from errata.language.rewrite import rewritten_plan
from errata.language.rewrite.prune_columns import over_needed_columns
from errata.language.route import choose_route, why_no_stored_lineage
from errata.model import query as queries
from errata.model import stream as streams
from errata.model.columns import Column
from errata.model.query import CheckedQuery, EmitMode, LineageMode, Query, transitive_inputs
from errata.model.stream import RevisionPolicy, Stream

MAX_CACHED_PLANS = 1_000
"""Queries up to which their plans are cached for the next call with the same ones."""

_PLAN_CACHE: deque[tuple[object, dict[str, Plan]]] = deque(maxlen=4)

READING_VERSION = 1
"""The version of parsing and checking: raised when the meaning of a text changes, so that all are parsed again."""


def check_queries(
    project: Project, declared: Mapping[str, Query], known: Mapping[str, CheckedQuery]
) -> dict[str, CheckedQuery]:
    """All declared queries, checked; `known` are checked ones. The error lists all mistakes."""
    digests = _QueryDigests(project.streams)
    good = _unchanged_queries(declared, known, digests)
    anew = {name: query for name, query in declared.items() if name not in good}
    if not anew:
        return good
    plans = read_plans(project.streams, declared, _queries_to_read(anew, good))
    problems = YamlProblems(project.file)
    checked = dict(good)
    for name, plan in plans.items():
        if name in anew:
            checked[name] = _check_query(declared[name], plan, checked, project, problems, digests)
    problems.check()
    return {name: checked[name] for name in declared}


def add_other_mistakes(project: Project, texts: Mapping[str, Query], unread: UsageError) -> UsageError:
    """The error for unreadable files, with the mistakes in all queries that do not read theirs."""
    lost = {name.lower() for name in project.queries if name not in texts}
    names = {name: {each.lower() for each in _names_read(query)} for name, query in texts.items()}
    while more := {name for name in names if name.lower() not in lost and names[name] & lost}:
        lost |= {name.lower() for name in more}
    try:
        check_queries(project, {name: query for name, query in texts.items() if name.lower() not in lost}, {})
    except UsageError as others:
        return UsageError(f"{unread}\n\n{others}")
    return unread


def read_plans(
    known_streams: Mapping[str, Stream], declared: Mapping[str, Query], names: Iterable[str], others: Iterable[str] = ()
) -> dict[str, Plan]:
    """The plans of some queries, each after those that it reads, which must be among them. `others`: names of further
    queries, as candidates in messages."""
    wanted = [declared[name] for name in names]
    early = EmitMode.EARLY
    texts = [QueryText(each.name, each.text, each.sql_file, early=each.emit is early) for each in wanted]
    asked = (dict(known_streams), texts, [*declared, *others])
    # A long-running process reads the same queries again and again, so plans and their properties are cached.
    found = next((plans for known, plans in _PLAN_CACHE if known == asked), None)
    if found is None:
        found = read_queries(texts, stream_sources(known_streams.values()), [*declared, *others])
        for plan in found.values():
            # In the order of reading, so that no chain of queries is too long for Python's stack.
            update_pattern(plan)
            _plan_fingerprint(plan)
        if len(found) <= MAX_CACHED_PLANS:
            _PLAN_CACHE.append((asked, found))
    return dict(found)


def _plan_fingerprint(plan: Plan) -> str:
    """A hash of a plan: what it reads and how it computes."""
    return fingerprint(over_needed_columns(plan))


def with_fingerprints(
    applied: Mapping[str, CheckedQuery], wanted: Iterable[str], recorded: Mapping[str, Stream]
) -> dict[str, CheckedQuery]:
    """Applied queries with fingerprints of this version, over the recorded streams; those that cannot be parsed any
    more are left out."""
    declared = {name: each.query for name, each in applied.items()}
    reads = {name: each.reads for name, each in applied.items()}
    found = {}
    for name in wanted:
        try:
            plan = read_plans(recorded, declared, with_inputs([name], reads))[name]
        except ErrataError:
            continue
        found[name] = replace(applied[name], fingerprint=_plan_fingerprint(plan))
    return found


def stream_sources(known: Iterable[Stream]) -> dict[str, Source]:
    """Streams and relations as inputs of queries."""
    return {each.name: stream_source(each) for each in known}


def with_inputs(names: Iterable[str], reads: Mapping[str, Iterable[str]]) -> list[str]:
    """These queries and all that they read, directly or through others; `reads` has the inputs of each."""
    some = list(names)
    return [name for name in dict.fromkeys([*some, *transitive_inputs(some, reads)]) if name in reads]


def _queries_to_read(anew: Mapping[str, Query], good: Mapping[str, CheckedQuery]) -> list[str]:
    """The queries to parse for these: themselves, and the checked ones that they read."""
    if not good:
        return list(anew)
    written = {name.lower(): name for name in good}
    read_by_them = [
        written[name.lower()] for query in anew.values() for name in _names_read(query) if name.lower() in written
    ]
    return [*anew, *with_inputs(read_by_them, {name: each.reads for name, each in good.items()})]


def _names_read(query: Query) -> tuple[str, ...]:
    try:
        return read_names(query.text, query.sql_file)
    except LanguageError:  # it is reported when the query is parsed
        return ()


class _QueryDigests:
    """Hashes of all that decides about each stream and query."""

    def __init__(self, known: Mapping[str, Stream]) -> None:
        self._known = {name: _json_hash(_semantic_record(stream)) for name, stream in known.items()}

    def add(self, query: Query, reads: Iterable[str]) -> str | None:
        """The digest of a query; None if one of its inputs has none."""
        inputs = [(name, self._known.get(name)) for name in sorted(reads)]
        if any(digest is None for _, digest in inputs):
            return None
        # The place of the file does not count, and is an empty value in the hash.
        options = {**queries.semantic_options(query), "sql_file": None}
        digest = _json_hash([READING_VERSION, query.name, query.text, options, inputs])
        self._known[query.name] = digest
        return digest


def _semantic_record(stream: Stream) -> dict[str, object]:
    """What the meaning of a query depends on."""
    record = streams.stream_to_record(stream)
    decides = ("columns", "key", "order", "relation", "deleted", "on_revision")
    return {"name": stream.name, **{name: _ordered_items(record.get(name)) for name in decides}}


def _ordered_items(value: object) -> object:
    return list(value.items()) if isinstance(value, dict) else value


def _json_hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _unchanged_queries(
    declared: Mapping[str, Query], known: Mapping[str, CheckedQuery], digests: _QueryDigests
) -> dict[str, CheckedQuery]:
    """The queries whose digests have not changed."""
    same = {name: each for name, each in known.items() if name in declared and each.query.text == declared[name].text}
    reads = {name: [other for other in each.reads if other in same] for name, each in same.items()}
    good = {}
    for name in _queries_in_order(reads):
        was = same[name]
        if digests.add(declared[name], was.reads) == was.digest:
            good[name] = was if was.query == declared[name] else _renamed_query(was, declared[name])
    return good


def _renamed_query(was: CheckedQuery, query: Query) -> CheckedQuery:
    """The checked query with other options that do not affect the answer."""
    return replace(was, query=query)


def _queries_in_order(reads: Mapping[str, Iterable[str]]) -> Iterator[str]:
    try:
        yield from TopologicalSorter(reads).static_order()
    except CycleError:  # a cycle through changed queries is parsed again, and reported
        return


def _check_query(
    query: Query,
    plan: Plan,
    checked: Mapping[str, CheckedQuery],
    project: Project,
    problems: YamlProblems,
    digests: _QueryDigests,
) -> CheckedQuery:
    reads = tuple(sorted({scan.source.name for scan in scans_of(plan)}))
    allowed = {
        name: checked[name].on_revision if name in checked else project.streams[name].on_revision for name in reads
    }
    weakest = min(allowed, key=lambda name: (allowed[name].rank, name))
    file = project.queries[query.name]
    _check_policy(query.on_revision, weakest, allowed[weakest], file, problems)
    _check_retention(query, plan, file, problems)
    _check_since(query, plan, file, problems)
    _check_lineage(query, plan, file, problems)
    digest = digests.add(query, reads)
    if digest is None:
        raise AssertionError("queries are read after those that they read")
    columns = tuple(Column(field.name, field.type) for field in plan.visible)
    in_force = query.on_revision or allowed[weakest]
    return CheckedQuery(
        query, columns, plan.key, reads, update_pattern(plan), in_force, _plan_fingerprint(plan), digest
    )


def _check_policy(
    wanted: RevisionPolicy | None, weakest: str, allowed: RevisionPolicy, file: QueryFile, problems: YamlProblems
) -> None:
    if wanted is not None and wanted.rank > allowed.rank:
        error = UsageError(
            f"on_revision is {wanted}, and that of {weakest}, which the query reads, only {allowed}",
            why="a query cannot correct what its inputs do not: it may only do less than they",
            how=f"declare on_revision: {allowed} or leave it out here, or declare more for {weakest}",
        )
        problems.add(file.place("on_revision"), error)


def _check_since(query: Query, plan: Plan, file: QueryFile, problems: YamlProblems) -> None:
    try:
        query.begins(timed=has_timestamps(plan))
    except (UsageError, ValueError):
        what, how = ("a plain number", "a whole number") if not has_timestamps(plan) else ("a time", "2026-11-18T02:00")
        error = UsageError(f"since is {query.since}, and the query's event time is {what}", how=f"write {how}")
        problems.add(file.place("since"), error)


def _check_lineage(query: Query, plan: Plan, file: QueryFile, problems: YamlProblems) -> None:
    if query.lineage is not LineageMode.STORED:
        return
    rewritten = rewritten_plan(plan)
    if why := why_no_stored_lineage(rewritten, choose_route(rewritten)):
        error = UsageError(
            "lineage is stored, and for this query that would tell nothing more than its plan does",
            why=why,
            how="leave lineage out: for windows of rows, and for joins that nothing bounds in time, it tells more",
        )
        problems.add(file.place("lineage"), error)


def _check_retention(query: Query, plan: Plan, file: QueryFile, problems: YamlProblems) -> None:
    if query.retention is None or query.retention.span is None or query.in_units != has_timestamps(plan):
        return
    if query.in_units:
        error = UsageError(
            "retention is in units, and the query's event time is a time", how="write a duration, such as '7 days'"
        )
    else:
        error = UsageError(
            "retention is a duration, and the query's event time is a plain number",
            how="write '1000 units', or '1000 rows'",
        )
    problems.add(file.place("retention"), error)
