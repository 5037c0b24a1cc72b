"""`hrag ingest --prune`: documents whose files are gone leave the collection.

A document belongs to the root that its metadata names (`ingest_root`): the folder's absolute
path, or the name given by --root. Only an ingest with --prune writes it. A document is deleted
if it belongs to a root of this ingest and no file of the root has its id any more, whether such
a file is ingested, skipped or refused. So documents of other folders, machines and programs are
never touched. Nothing is deleted where a folder could not be listed as a whole.
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
    """Returns the ids of the documents of each root in `present` that no file has any more.

    Raises CollectionNotFound.
    """
    belonging = Match(f"{METADATA}{ROOT_KEY}", tuple(present))
    gone = []
    for each in all_documents(client, tenant, collection, belonging):
        root = str(each.metadata.get(ROOT_KEY))
        if root in present and each.document_id not in present[root]:
            gone.append(each.document_id)
    return gone


def delete_all(
    client: "Client", tenant: str, collection: str, document_ids: list[str]
) -> Iterator[str]:
    """Deletes documents; yields the id of each. One that is gone already is passed over."""
    for document_id in document_ids:
        try:
            client.delete_document(tenant, document_id, collection=collection)
        except DocumentNotFound:
            continue
        yield document_id
