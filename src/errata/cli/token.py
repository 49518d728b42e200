"""`errata token`: who may ask over HTTP. A token is printed once, when it is made; the catalog has its digest alone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from errata.catalog import tokens
from errata.cli.console import print_message
from errata.cli.options import PrintFormat, global_options
from errata.declare.site import open_site
from errata.model.access import DEFAULT_QUERIES, DEFAULT_RATE, AccessToken
from errata.model.time import format_instant
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, wall_time

TOKEN_FIELDS = (
    TableField("token", "token", right=True),
    TableField("user", "user"),
    TableField("created", "created"),
    TableField("revoked", "revoked"),
    TableField("queries", "queries at most", right=True),
    TableField("rate", "requests a second", right=True),
)


def create(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Whom it identifies.", show_default=False)],
    quota_queries: Annotated[
        int | None,
        typer.Option(
            "--quota-queries",
            metavar="N",
            min=1,
            max=tokens.MAX_QUOTA,
            help=f"Queries that the user may have registered at once (first {DEFAULT_QUERIES}).",
        ),
    ] = None,
    quota_rate: Annotated[
        int | None,
        typer.Option(
            "--quota-rate",
            metavar="N",
            min=1,
            max=tokens.MAX_QUOTA,
            help=f"Requests that the user may send in a second (first {DEFAULT_RATE}).",
        ),
    ] = None,
) -> None:
    """Make a token for a user of `errata serve`, and print it: it is not stored, and cannot be shown again.

    A user may have several. Quotas are the user's, not the token's; one that is given replaces the former.
    """
    with open_site(global_options(context).project) as site:
        token = tokens.create_token(site.catalog, user, queries=quota_queries, rate=quota_rate)
    print_message(f"the token of {user}, shown this once; send it as `Authorization: Bearer …`:")
    sys.stdout.write(f"{token}\n")


def show_tokens(context: typer.Context, kind: PrintFormat = OutputFormat.TABLE) -> None:
    """List tokens by their numbers, with the users and quotas; never the tokens themselves."""
    with open_site(global_options(context).project) as site:
        found = tokens.list_tokens(site.catalog)
    if not found:
        print_message("no tokens yet; `errata token create USER` makes one")
        if kind is OutputFormat.TABLE:
            return
    shown = [_token_row(each) for each in found]
    print_records(TOKEN_FIELDS, [_token_record(each) for each in found], shown, kind, sys.stdout)


def revoke(
    context: typer.Context,
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="Its number in the list.", show_default=False)],
) -> None:
    """End a token: a server that runs refuses it within a second."""
    with open_site(global_options(context).project) as site:
        ended = tokens.revoke_token(site.catalog, token)
    print_message(f"token {ended.token_id} of {ended.user.name} is revoked")


def _token_record(token: AccessToken) -> TableRecord:
    return {
        "token": token.token_id,
        "user": token.user.name,
        "created": format_instant(token.created_at),
        "revoked": None if token.revoked_at is None else format_instant(token.revoked_at),
        "queries": token.user.quota.queries,
        "rate": token.user.quota.rate,
    }


def _token_row(token: AccessToken) -> TableRecord:
    times = {
        "created": wall_time(token.created_at),
        "revoked": None if token.revoked_at is None else wall_time(token.revoked_at),
    }
    return {**_token_record(token), **times}
