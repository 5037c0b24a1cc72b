"""`hrag original` writes the file from which a document was read."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hrag.cli.export import open_output
from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Credentials,
    DocumentId,
    Retriever,
    Tenant,
    connect,
    connection_options,
)
from hrag.cli.terminal import show_note
from hrag.values.limits import DEFAULT_COLLECTION


@connection_options
def original(
    credentials: Credentials,
    document_id: DocumentId,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            dir_okay=False,
            help="The file to write; it appears when it is complete. Default: standard output.",
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Write the original of a document: the file from which the document was read.

    The collection must keep originals: hrag collections create --keep-originals, or hrag serve
    --keep-originals. A document that was sent as text has no original.

    \b
    Examples:
      hrag original report.pdf -o report.pdf
      hrag original report.pdf --collection guides | sha256sum
    """
    if target is None and sys.stdout.isatty():
        raise typer.BadParameter(
            "standard output is a terminal, which cannot show a file; give --output FILE",
            param_hint="--output",
        )
    with connect(credentials, retriever=retriever) as client:
        part = client.get_original(tenant, document_id, collection=collection)
    with open_output(target) as file:
        file.write(part.content)
    if target is not None:
        show_note(f"wrote {target}, {part.original.size_bytes:,} bytes of {part.mime_type}")
