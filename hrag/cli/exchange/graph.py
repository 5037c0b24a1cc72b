"""A document and its chunks as a graph: nodes and edges with properties, in no particular format.

`(:Document)-[:HAS_CHUNK]->(:Chunk)-[:HAS_CHILD]->(:Chunk)`: a document has an edge to each chunk
of the top level, and each chunk has an edge to each of its children. `tenantId` and `collection`
distinguish nodes of different tenants and collections.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from hrag.cli.exchange.stored_documents import StoredDocument
from hrag.values.chunks import ChunkNode

Value = str | int
DOCUMENT = "Document"
CHUNK = "Chunk"
HAS_CHUNK = "HAS_CHUNK"
HAS_CHILD = "HAS_CHILD"

PROPERTIES: Mapping[str, type] = {
    "id": str,
    "tenantId": str,
    "collection": str,
    "documentId": str,
    "title": str,
    "source": str,
    "mimeType": str,
    "level": int,
    "tokenCount": int,
    "content": str,
}
"""All properties of nodes, with their types."""


@dataclass(frozen=True, slots=True)
class Node:
    """A document or a chunk. The properties in `key` identify it among all nodes."""

    label: str
    key: Mapping[str, Value]
    properties: Mapping[str, Value]

    @property
    def name(self) -> str:
        """The node's id, which is unique in the collection.

        Chunk ids contain "#" and document ids do not, so they cannot be equal.
        """
        return str(self.key["id"])


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation from one node to another."""

    kind: str
    source: Node
    target: Node


class GraphFormat(Protocol):
    """A format for nodes and edges, written as lines of text."""

    def header(self) -> str: ...

    def node(self, node: Node) -> str: ...

    def edge(self, edge: Edge) -> str: ...

    def footer(self) -> str: ...


def graph_of(
    tenant: str, collection: str, document: StoredDocument
) -> tuple[list[Node], list[Edge]]:
    """Returns the nodes of a document and its chunks, parents first, and the edges between them.

    The document must have been read with its tree.
    """
    info = document.info
    scope: dict[str, Value] = {"tenantId": tenant, "collection": collection}
    root = Node(
        DOCUMENT,
        {**scope, "id": info.document_id},
        {
            "title": info.title,
            "source": info.source,
            "mimeType": info.mime_type,
            "tokenCount": info.token_count,
        },
    )
    chunks = {node.chunk.chunk_id: _chunk(scope, node, document.text) for node in document.tree}
    return [root, *chunks.values()], list(_edges(root, chunks, document))


def _chunk(scope: Mapping[str, Value], node: ChunkNode, text: str) -> Node:
    chunk = node.chunk
    return Node(
        CHUNK,
        {**scope, "id": chunk.chunk_id},
        {
            "documentId": chunk.document_id,
            "level": chunk.level,
            "tokenCount": chunk.token_count,
            "content": text[chunk.span.char_start : chunk.span.char_end],
        },
    )


def _edges(root: Node, chunks: Mapping[str, Node], document: StoredDocument) -> Iterator[Edge]:
    for node in document.tree:
        target = chunks[node.chunk.chunk_id]
        if node.parent_id:
            yield Edge(HAS_CHILD, chunks[node.parent_id], target)
        else:
            yield Edge(HAS_CHUNK, root, target)
