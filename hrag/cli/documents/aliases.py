"""`hrag aliases`: other names of collections, which can be set to another collection."""

from dataclasses import asdict
from typing import Annotated

import typer

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.shared import DEFAULT_INDEXER, DEFAULT_TENANT, AsJson, Indexer, Tenant
from hrag.cli.terminal.console import output, print_json, print_line
from hrag.cli.terminal.tables import Column, show_table
from hrag.text.plain_text import printable

AliasName = Annotated[
    str, typer.Argument(metavar="ALIAS", help="The alias's name.", show_default=False)
]


@connection_options
def show(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """List a tenant's aliases and the collections that they name.

    Every command takes an alias where it takes a collection.

    \b
    Example:
      hrag aliases list
    """
    with connect(credentials, indexer) as client:
        found = client.list_aliases(tenant)
    if as_json:
        print_json([asdict(each) for each in found])
    elif found:
        rows = [(each.name, each.collection) for each in found]
        show_table(output(), (Column("alias"), Column("collection")), rows)
    else:
        output().print(f"tenant {printable(tenant)} has no aliases", markup=False)


@connection_options
def set_alias(
    credentials: Credentials,
    alias: AliasName,
    collection: Annotated[
        str,
        typer.Argument(metavar="COLLECTION", help="What it shall name.", show_default=False),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Make an alias name a collection, in one step for all searches.

    So settings can be changed while searches run: fill a new collection, then set the alias.

    \b
    Example:
      hrag aliases set guides guides-2026
    """
    with connect(credentials, indexer) as client:
        done = client.set_alias(tenant, alias, collection)
    if as_json:
        print_json(asdict(done))
        return
    before = f" instead of {done.previous_collection}" if done.previous_collection else ""
    print_line(f"{done.alias.name} names {done.alias.collection}{before}", style="green")


@connection_options
def delete(
    credentials: Credentials,
    alias: AliasName,
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Delete an alias.

    The collection that it names stays.

    \b
    Example:
      hrag aliases delete guides
    """
    with connect(credentials, indexer) as client:
        sequence = client.delete_alias(tenant, alias)
    if as_json:
        print_json({"alias": alias, "sequence": sequence})
    else:
        print_line(f"deleted alias {alias}", style="green")


aliases = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
