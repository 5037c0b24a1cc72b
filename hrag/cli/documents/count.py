"""`hrag count`: counts the documents of a collection, or those that match a filter."""

from dataclasses import asdict

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.filters import WHERE_OPTION, parse_filters
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Indexer,
    Tenant,
    Where,
)
from hrag.cli.terminal.console import print_json, print_line
from hrag.values.limits import DEFAULT_COLLECTION


@connection_options
def count(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    where: Where = None,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Count the documents of a collection, or those that match.

    The command prints a number and nothing else; --json adds the number of all documents.

    \b
    Examples:
      hrag count
      hrag count --where 'status!=draft' --where 'date>=2026-01-01'
    """
    filter = parse_filters(where, WHERE_OPTION)
    with connect(credentials, indexer) as client:
        counts = client.count_documents(tenant, collection=collection, filter=filter)
    if as_json:
        print_json(asdict(counts))
    else:
        print_line(str(counts.documents))
