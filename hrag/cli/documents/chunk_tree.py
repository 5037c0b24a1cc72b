"""All chunks of a document, read from the retriever with one call for each top-level chunk."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hrag.types import MAX_LEVELS, ChunkNode, DocumentInfo, Hierarchy

if TYPE_CHECKING:
    from hrag.client import Client


def hierarchies(
    client: "Client", tenant: str, collection: str, info: DocumentInfo
) -> Iterator[Hierarchy]:
    """Yields the hierarchy of each top-level chunk, without contents, requested one at a time.

    Raises DocumentNotFound, or ChunkNotFound if the document was replaced meanwhile.
    """
    top_level = len(info.chunks_per_level) - 1
    for index in range(info.chunks_per_level[-1]):
        chunk_id = f"{info.document_id}#{top_level}.{index}"
        yield client.get_hierarchy(tenant, chunk_id, collection=collection, depth=MAX_LEVELS)


def nodes(hierarchy: Hierarchy) -> Iterator[ChunkNode]:
    """Yields a top-level chunk, then its descendants, level by level downwards."""
    yield hierarchy.node
    yield from hierarchy.descendants
