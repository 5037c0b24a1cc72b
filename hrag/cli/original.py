"""`hrag original` writes the file from which a document was read."""

from hrag.cli.export import OutputFile, check_file_output, open_output
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
    target: OutputFile = None,
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
    check_file_output(target, "a file")
    with connect(credentials, retriever=retriever) as client:
        part = client.get_original(tenant, document_id, collection=collection)
    with open_output(target) as file:
        file.write(part.content)
    if target is not None:
        show_note(f"wrote {target}, {part.original.size_bytes:,} bytes of {part.mime_type}")
