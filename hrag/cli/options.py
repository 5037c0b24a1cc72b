"""The options that several commands share, each spelt and explained once."""

from pathlib import Path
from typing import Annotated

import typer

from hrag.cli import filters
from hrag.types import SearchMode

DEFAULT_TENANT = "default"
DEFAULT_INDEXER = "127.0.0.1:50051"
DEFAULT_RETRIEVER = "127.0.0.1:50052"
DEFAULT_DATA_DIR = Path("./data")
_MAX_U32 = (1 << 32) - 1

Tenant = Annotated[
    str, typer.Option("--tenant", help="Who owns the data. Tenants never see each other's.")
]
CollectionName = Annotated[
    str, typer.Option("--collection", help="Which of the tenant's collections.")
]
Indexer = Annotated[
    str,
    typer.Option(
        "--indexer",
        envvar="HRAG_INDEXER_ADDRESS",
        metavar="ADDRESS",
        help="Where the indexer listens (the service that writes).",
    ),
]
Retriever = Annotated[
    str,
    typer.Option(
        "--retriever",
        envvar="HRAG_RETRIEVER_ADDRESS",
        metavar="ADDRESS",
        help="Where the retriever listens (the service that searches).",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar="HRAG_DATA_DIR",
        file_okay=False,
        help="The folder of the store. A local disk, never a network file system.",
    ),
]
Mode = Annotated[
    SearchMode,
    typer.Option(
        help="small_to_big: the larger chunks around what matched; standard: leaves; "
        "auto_merge: larger chunks only where enough of their children matched; "
        "sentence_window: the best sentence of each leaf and some around it; "
        "summary_first: larger chunks inside the sections whose summaries are nearest."
    ),
]
TokenBudget = Annotated[
    int, typer.Option(min=0, max=_MAX_U32, help="Most tokens of all passages; 0: no bound.")
]
MinScore = Annotated[float | None, typer.Option(help="Leave out passages that score below.")]
Conditions = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="CONDITION", help=filters.HELP, show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
