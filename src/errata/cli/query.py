"""`errata query …`: registers queries, whose answers `errata invoke` gives, and tells what they cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from errata.catalog.processes import cause_for
from errata.cli.console import print_message
from errata.cli.options import PrintFormat, global_options
from errata.declare.files import MAX_QUERY_BYTES, read_text_file
from errata.declare.site import Site, open_site
from errata.errors import UsageError
from errata.model.registered import RegisteredQuery, ResultStrategy
from errata.model.time import format_instant
from errata.psoup.advice import Advice, advised
from errata.psoup.materialise import MaterialiseReport, materialise
from errata.psoup.register import find_query, register, registered_queries, set_strategy, split_texts, unregister
from errata.psoup.segments import with_costs
from errata.read.tables import TableField, print_records
from errata.read.wording import OutputFormat

MAX_FILE_BYTES = 64 * MAX_QUERY_BYTES
"""Bytes of a file of texts at most."""

HandleArgument = Annotated[str, typer.Argument(metavar="HANDLE", help="The query's handle.", show_default=False)]
TextArgument = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help="The query, with its window.", show_default=False)
]


class QueryOrder(StrEnum):
    """Orders of a list of registered queries."""

    NUMBER = "number"
    COST = "cost"
    ASKED = "asked"


def register_query(
    context: typer.Context,
    text: TextArgument = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Many at once, each ended by a semicolon.")
    ] = None,
    strategy: Annotated[
        ResultStrategy, typer.Option("--strategy", help="What is kept between invocations.", case_sensitive=False)
    ] = ResultStrategy.PARTIAL,
    later: Annotated[bool, typer.Option("--later", help="Leave the matching of old rows to the next run.")] = False,
) -> None:
    """Register queries, and print a handle for each: `errata invoke` answers by it, as often as is wanted.

    Which of the rows that are there satisfy them is worked out at once, unless --later is given.
    """
    texts = _given_texts(text, file)
    with open_site(global_options(context).project) as site:
        made = register(site, texts, owner=own_name(site), strategy=strategy)
        sys.stdout.writelines(f"{each.handle}\n" for each in made)
        sys.stdout.flush()
        if not later:
            names = sorted({source.stream for each in made for source in each.plan.sources})
            _report_matched(materialise(site, names))


def _given_texts(text: str | None, file: Path | None) -> Sequence[str]:
    if (text is None) == (file is None):
        what = "no query is given" if text is None else "a text and a file are given"
        raise UsageError(what, how="write the query behind `register`, or name a file of queries with --file")
    if file is None:
        return [text or ""]
    try:
        texts = split_texts(read_text_file(file, str(file), MAX_FILE_BYTES))
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}", how="name a file of queries, each ended by a semicolon") from None
    if not texts:
        raise UsageError("the file has no query", where=str(file), how="write queries, each ended by a semicolon")
    return texts


def own_name(site: Site) -> str:
    """Who registers: the user of this process."""
    return cause_for("query", site.cause).user


def unregister_query(context: typer.Context, handle: HandleArgument) -> None:
    """Take a registered query back: its handle is not answered any more."""
    with open_site(global_options(context).project) as site:
        commit_id = unregister(site, handle)
    print_message(f"unregistered {handle} in commit {commit_id}")


def materialise_queries(
    context: typer.Context,
    streams: Annotated[
        list[str] | None, typer.Argument(metavar="[STREAM…]", help="Only these streams.", show_default=False)
    ] = None,
) -> None:
    """Match what has not been matched yet: new rows with all queries, new queries with all rows."""
    with open_site(global_options(context).project) as site:
        _report_matched(materialise(site, streams or (), print_message))


def _report_matched(reports: Sequence[MaterialiseReport]) -> None:
    for each in reports:
        done = f"{each.rows:,} rows in {each.buckets:,} buckets, {each.matches:,} matches"
        print_message(f"{each.stream}: {done if each.buckets else 'nothing to match'}")


_LIST_FIELDS = (
    TableField("handle", "handle"),
    TableField("number", "number", right=True),
    TableField("owner", "owner"),
    TableField("strategy", "strategy"),
    TableField("rows", "rows", right=True),
    TableField("bytes", "bytes", right=True),
    TableField("matching_ms", "matching ms", right=True),
    TableField("invocations", "invoked", right=True),
    TableField("invocation_ms", "ms each", right=True),
    TableField("last_asked", "last asked"),
    TableField("text", "query", fold=True),
)


def list_queries(
    context: typer.Context,
    by: Annotated[
        QueryOrder, typer.Option("--by", help="The order: as registered, dearest or last asked first.")
    ] = QueryOrder.NUMBER,
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Only queries of this owner.")] = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Say which strategy would cost least, and why.", show_default=False)
    ] = False,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """List the registered queries, and what each has cost."""
    with open_site(global_options(context).project) as site:
        found = sorted(with_costs(site, registered_queries(site, owner)), key=_ORDERS[by])
        records = [_query_record(each) for each in found]
        if advise:
            pairs = zip(records, advised(site, found), strict=True)
            records = [record | _advice_record(advice) for record, advice in pairs]
    fields = (*_LIST_FIELDS[:-1], *_ADVICE_FIELDS) if advise else _LIST_FIELDS
    print_records(fields, records, records, kind, sys.stdout)


_ADVICE_FIELDS = (TableField("advice", "advice"), TableField("reason", "reason", fold=True))


def _advice_record(advice: Advice) -> dict[str, object]:
    return {"advice": advice.strategy.value, "reason": advice.reason}


def change_strategy(
    context: typer.Context,
    handle: HandleArgument,
    strategy: Annotated[
        ResultStrategy,
        typer.Argument(help="What is kept between invocations.", case_sensitive=False, show_default=False),
    ],
) -> None:
    """Change what is kept for a registered query between invocations. Its answers stay the same."""
    with open_site(global_options(context).project) as site:
        commit_id = set_strategy(site, handle, strategy)
    print_message(f"the strategy of {handle} is {strategy.value} from commit {commit_id} on")


_ORDERS = {
    QueryOrder.NUMBER: lambda each: each.number,
    QueryOrder.COST: lambda each: (-each.cost.micros, -each.cost.size, each.number),
    QueryOrder.ASKED: lambda each: (-(each.cost.last_asked or 0), each.number),
}


def _query_record(query: RegisteredQuery) -> dict[str, object]:
    cost = query.cost
    return {
        "handle": query.handle,
        "number": query.number,
        "owner": query.owner,
        "strategy": query.strategy.value,
        "rows": cost.rows,
        "bytes": cost.size,
        "matching_ms": cost.matching_micros // 1000,
        "invocations": cost.invocations,
        "invocation_ms": round(cost.invocation_micros / cost.invocations / 1000, 1) if cost.invocations else None,
        "last_asked": None if cost.last_asked is None else format_instant(cost.last_asked),
        "text": " ".join(query.text.split()),
    }


def show_query(context: typer.Context, handle: HandleArgument, kind: PrintFormat = OutputFormat.TABLE) -> None:
    """Show a registered query: its text, its statement, its conjunctions, and what it has cost."""
    with open_site(global_options(context).project) as site:
        (query,) = with_costs(site, [find_query(site, handle)])
        (advice,) = advised(site, [query])
    said = {
        **_query_record(query),
        "text": query.text,
        "statement": query.plan.statement,
        "sources": ", ".join(each.stream for each in query.plan.sources),
        "conjunctions": ", ".join(map(str, query.conjunctions)),
        "registered": format_instant(query.registered_at),
        "commit": query.registered_in,
        **_advice_record(advice),
    }
    if kind is not OutputFormat.TABLE:
        print_records([TableField(name, name) for name in said], [said], [said], kind, sys.stdout)
        return
    fields = (TableField("what", ""), TableField("value", "", fold=True))
    rows = [{"what": name.replace("_", " "), "value": value} for name, value in said.items()]
    print_records(fields, rows, rows, kind, sys.stdout)
