"""Reads all chunks of a document from the retriever, with one call for each top-level chunk."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.documents import DocumentInfo
from hrag.values.limits import MAX_LEVELS

if TYPE_CHECKING:
    from hrag.client import Client


def hierarchies(
    client: "Client", tenant: str, collection: str, info: DocumentInfo
) -> Iterator[Hierarchy]:
    """Yields the hierarchy of each top-level chunk, without contents.

    Each hierarchy is requested when it is needed. Raises DocumentNotFound, or ChunkNotFound if
    the document was replaced since `info` was read.
    """
    for chunk_id in top_chunk_ids(info):
        yield client.get_hierarchy(tenant, chunk_id, collection=collection, depth=MAX_LEVELS)


def top_chunk_ids(info: DocumentInfo) -> Iterator[str]:
    """Yields the ids of the top-level chunks, in order."""
    top_level = len(info.chunks_per_level) - 1
    for index in range(info.chunks_per_level[top_level]):
        yield f"{info.document_id}#{top_level}.{index}"


def nodes(hierarchy: Hierarchy) -> Iterator[ChunkNode]:
    """Yields a top-level chunk, then its descendants, level by level downwards."""
    yield hierarchy.node
    yield from hierarchy.descendants
