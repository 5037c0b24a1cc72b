"""`hrag tenants` lists the tenants of a store."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from hrag.cli.options import (
    DEFAULT_INDEXER,
    AsJson,
    Credentials,
    Indexer,
    connect,
    connection_options,
)
from hrag.cli.terminal import Column, Fit, output, print_json, show_table
from hrag.values.quotas import Tenant

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

_COLUMNS = (
    Column("tenant"),
    *(
        Column(name, Fit.NEVER)
        for name in ("collections", "documents", "leaves", "bytes", "sequence")
    ),
)


@connection_options
def tenants(
    credentials: Credentials, indexer: Indexer = DEFAULT_INDEXER, as_json: AsJson = False
) -> None:
    """List all tenants with what they store. This needs the role admin for all tenants.

    A tenant exists as long as it has a collection. hrag status shows more about one tenant.

    \b
    Examples:
      hrag tenants
      hrag tenants --json
    """
    with connect(credentials, indexer) as client:
        listed = list(_all_tenants(client))
    if as_json:
        print_json([asdict(tenant) for tenant in listed])
    elif listed:
        show_table(output(), _COLUMNS, map(_row, listed))
    else:
        output().print("no tenant has a collection yet")


def _all_tenants(client: "Client") -> Iterator[Tenant]:
    token = ""
    while True:
        page = client.list_tenants(page_token=token)
        yield from page.items
        token = page.next_page_token
        if not token:
            return


def _row(tenant: Tenant) -> tuple[object, ...]:
    usage = tenant.usage
    return (
        tenant.tenant_id,
        usage.collections,
        usage.documents,
        tenant.leaf_count,
        usage.stored_bytes,
        tenant.sequence,
    )
