"""Options that several commands share, each defined once."""

from pathlib import Path
from typing import Annotated

import typer

from hrag.cli.options import filters
from hrag.values.limits import DEFAULT_CONTEXT_TOKENS
from hrag.values.search import SearchMode

DEFAULT_TENANT = "default"
DEFAULT_INDEXER = "127.0.0.1:50051"
DEFAULT_RETRIEVER = "127.0.0.1:50052"
DEFAULT_DATA_DIR = Path("./data")
_MAX_U32 = (1 << 32) - 1
_COMPLETION_TIMEOUT_S = 0.5


def _collection_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of the tenant's collections, for completion in a shell.

    Returns an empty list if they cannot be listed.
    """
    from hrag.client import Client  # noqa: PLC0415
    from hrag.values.errors import HragError  # noqa: PLC0415

    params = ctx.params
    address = params.get("indexer") or DEFAULT_INDEXER
    files = {f"{name}_file": params.get(name) for name in ("ca", "cert", "key")}
    try:
        with Client(
            address, address, _COMPLETION_TIMEOUT_S, token=params.get("token") or "", **files
        ) as client:
            page = client.list_collections(params.get("tenant") or DEFAULT_TENANT)
    except HragError:
        return []
    return [collection.name for collection in page.items if collection.name.startswith(incomplete)]


Tenant = Annotated[
    str,
    typer.Option(
        "--tenant", help="The tenant that owns the data. Tenants never see each other's data."
    ),
]
CollectionName = Annotated[
    str,
    typer.Option(
        "--collection",
        help="The collection within the tenant.",
        autocompletion=_collection_names,
    ),
]
DocumentId = Annotated[
    str,
    typer.Argument(
        metavar="DOCUMENT_ID",
        help="The document's id, as shown by hrag documents.",
        show_default=False,
    ),
]
Indexer = Annotated[
    str,
    typer.Option(
        "--indexer",
        envvar="HRAG_INDEXER_ADDRESS",
        metavar="ADDRESS",
        help="Address of the indexer, the service that stores documents.",
    ),
]
Retriever = Annotated[
    str,
    typer.Option(
        "--retriever",
        envvar="HRAG_RETRIEVER_ADDRESS",
        metavar="ADDRESS",
        help="Address of the retriever, the service that searches.",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar="HRAG_DATA_DIR",
        file_okay=False,
        help="Folder of the store. It must be on a local disk, not on a network file system.",
    ),
]
Mode = Annotated[
    SearchMode,
    typer.Option(
        help="What to return. small_to_big: the larger chunks around the leaves that matched; "
        "standard: the leaves themselves; auto_merge: a larger chunk only where enough of its "
        "children matched; sentence_window: the best sentence of each leaf with its "
        "neighbours; summary_first: larger chunks from the sections with the best summaries; "
        "context: the leaves that answer best, joined where they touch, up to --token-budget."
    ),
]
TokenBudget = Annotated[
    int,
    typer.Option(
        min=0,
        max=_MAX_U32,
        help="Maximum number of tokens of all passages together. 0 means no limit, except that "
        f"mode context then uses {DEFAULT_CONTEXT_TOKENS:,}.",
    ),
]
MinScore = Annotated[float | None, typer.Option(help="Leave out passages with a lower score.")]
Conditions = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="CONDITION", help=filters.HELP, show_default=False),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        filters.WHERE_OPTION, metavar="CONDITION", help=filters.WHERE_HELP, show_default=False
    ),
]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON for each document, then a summary.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
