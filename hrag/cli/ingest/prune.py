"""`hrag ingest --prune`: deletes documents whose files no longer exist.

A document belongs to the root that its metadata names (`ingest_root`): the folder's absolute
path, or the name given by --root. Only an ingest with --prune writes this key. A document is
deleted if it belongs to a root of this ingest and no file of the root has its id any more; files
that are skipped or refused count as files of the root too. So documents of other folders,
machines and programs are never touched. If a folder could not be listed completely, nothing is
deleted.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hrag.cli.ingest.files import ROOT_KEY
from hrag.cli.options.pages import all_documents
from hrag.values.errors import DocumentNotFound
from hrag.values.filters import METADATA, Match

if TYPE_CHECKING:
    from hrag.client import Client


def gone_documents(
    client: "Client", tenant: str, collection: str, present: Mapping[str, set[str]]
) -> list[str]:
    """Returns the ids of stored documents whose files no longer exist.

    `present` contains the document ids of all files, by root. Raises CollectionNotFound.
    """
    in_roots = Match(f"{METADATA}{ROOT_KEY}", tuple(present))
    gone = []
    for document in all_documents(client, tenant, collection, in_roots):
        root = str(document.metadata.get(ROOT_KEY))
        if root in present and document.document_id not in present[root]:
            gone.append(document.document_id)
    return gone


def delete_all(
    client: "Client", tenant: str, collection: str, document_ids: list[str]
) -> Iterator[str]:
    """Deletes documents and yields the id of each; skips documents that do not exist."""
    for document_id in document_ids:
        try:
            client.delete_document(tenant, document_id, collection=collection)
        except DocumentNotFound:
            continue
        yield document_id
