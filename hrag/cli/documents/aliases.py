"""`hrag aliases`: manages aliases, which are additional names of collections."""

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

    Every command accepts an alias in place of a collection's name.

    \b
    Example:
      hrag aliases list
    """
    with connect(credentials, indexer) as client:
        listed = client.list_aliases(tenant)
    if as_json:
        print_json([asdict(alias) for alias in listed])
    elif listed:
        rows = [(alias.name, alias.collection) for alias in listed]
        show_table(output(), (Column("alias"), Column("collection")), rows)
    else:
        output().print(f"tenant {printable(tenant)} has no aliases", markup=False)


@connection_options
def set_alias(
    credentials: Credentials,
    alias: AliasName,
    collection: Annotated[
        str,
        typer.Argument(
            metavar="COLLECTION",
            help="The collection that the alias will name.",
            show_default=False,
        ),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Make an alias name a collection. All searches use the new collection from then on.

    You can change settings this way while searches run: fill a new collection, then set the
    alias.

    \b
    Example:
      hrag aliases set guides guides-2026
    """
    with connect(credentials, indexer) as client:
        change = client.set_alias(tenant, alias, collection)
    if as_json:
        print_json(asdict(change))
        return
    previous = f" instead of {change.previous_collection}" if change.previous_collection else ""
    print_line(f"{change.alias.name} names {change.alias.collection}{previous}", style="green")


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
