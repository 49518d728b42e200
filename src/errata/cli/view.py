"""`errata query view`: registered queries as views of the catalog's database, for programs that speak SQL alone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from errata.catalog.view_sql import view_name
from errata.catalog.view_tables import SCHEMA
from errata.cli.console import print_message
from errata.cli.options import global_options
from errata.declare.site import open_site
from errata.psoup.views import update_views, view_queries


def view_registered(
    context: typer.Context,
    handles: Annotated[
        list[str] | None, typer.Argument(metavar="[HANDLE…]", help="Queries to be views, too.", show_default=False)
    ] = None,
) -> None:
    """Make registered queries views of the catalog's PostgreSQL, print their names, and carry all views on.

    A view applies its window whenever it is read, as of the last time that views were carried on: by this command, or
    by the job `materialise`.
    """
    with open_site(global_options(context).project) as site:
        made = view_queries(site, handles or ())
        done = update_views(site)
    sys.stdout.writelines(f"{SCHEMA}.{view_name(each)}\n" for each in made)
    print_message(str(done))
