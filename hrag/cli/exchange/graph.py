"""A document and its chunks as a graph: nodes and edges with properties, of no format.

`(:Document)-[:HAS_CHUNK]->(:Chunk)-[:HAS_CHILD]->(:Chunk)`: a document has the chunks of the
top level, and each chunk those inside it. Nodes of different collections and tenants differ by
`tenantId` and `collection`.
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
    """A document or a chunk; `key` are the properties that tell it from all others."""

    label: str
    key: Mapping[str, Value]
    properties: Mapping[str, Value]

    @property
    def name(self) -> str:
        """A name that is unique in the collection: chunk ids have a "#", document ids none."""
        return str(self.key["id"])


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation from one node to another."""

    kind: str
    source: Node
    target: Node


class GraphFormat(Protocol):
    """How nodes and edges are written, in lines of text."""

    def header(self) -> str: ...

    def node(self, node: Node) -> str: ...

    def edge(self, edge: Edge) -> str: ...

    def footer(self) -> str: ...


def graph_of(
    tenant: str, collection: str, document: StoredDocument
) -> tuple[list[Node], list[Edge]]:
    """Returns the nodes of a document with its tree, parents first, and the edges between them."""
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
    chunks = {each.chunk.chunk_id: _chunk(scope, each, document.text) for each in document.tree}
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
    for each in document.tree:
        target = chunks[each.chunk.chunk_id]
        if each.parent_id:
            yield Edge(HAS_CHILD, chunks[each.parent_id], target)
        else:
            yield Edge(HAS_CHUNK, root, target)
