"""The options that several commands share, each spelt and explained once."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_TENANT = "default"
DEFAULT_INDEXER = "127.0.0.1:50051"
DEFAULT_RETRIEVER = "127.0.0.1:50052"
DEFAULT_DATA_DIR = Path("./data")

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
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
