r"""Writes a document and its chunks as a graph, in GraphML or Cypher.

`(:Document)-[:HAS_CHUNK]->(:Chunk)-[:HAS_CHILD]->(:Chunk)`: a document has an edge to each chunk
of the top level, and each chunk has an edge to each of its children. `tenantId` and `collection`
distinguish nodes of different tenants and collections.

GraphML is read by Gephi, yEd, networkx and Neo4j's APOC. XML cannot contain most control
characters, not even escaped ones, so each becomes U+FFFD.

Cypher statements, one in each line, are for clients of graph databases (`cypher-shell`). The
statements use MERGE, so running them again changes nothing. Texts come from documents, and no text
can end the literal that contains it: quotation marks, backslashes and line ends are escaped. Some
databases replace escapes such as `\u0027` before they look for the end of a literal. So a backslash
followed by `u` is written in two literals that are joined by a plus sign.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from xml.sax.saxutils import escape, quoteattr

from hrag.cli.export_format import CompleteDocument
from hrag.values.chunks import ChunkNode

Value = str | int
DOCUMENT = "Document"
CHUNK = "Chunk"
HAS_CHUNK = "HAS_CHUNK"
HAS_CHILD = "HAS_CHILD"

_PROPERTIES: Mapping[str, type] = {
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

_FORBIDDEN_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# A carriage return must be escaped, because XML parsers read it as a newline otherwise.
_CARRIAGE_RETURN = {"\r": "&#13;"}
_XML_TYPES = {str: "string", int: "int"}

_CYPHER_ESCAPES = {
    "\\u": "\\\\' + 'u",
    "\\": "\\\\",
    "'": "\\'",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}
_CYPHER_SPECIAL = re.compile("\\\\u|[\\\\'\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph: a document or a chunk.

    The properties in `key` identify the node among the nodes of all tenants and collections.
    """

    label: str
    key: Mapping[str, Value]
    properties: Mapping[str, Value]

    @property
    def name(self) -> str:
        """The id of the document or chunk, which is unique in the collection.

        A chunk id contains "#" and a document id does not, so no chunk has the id of a document.
        """
        return str(self.key["id"])


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the graph, from the node `source` to the node `target`."""

    kind: str
    source: Node
    target: Node


class GraphFormat(Protocol):
    """Formats the nodes and edges of a graph as lines of text."""

    def header(self) -> str: ...

    def node(self, node: Node) -> str: ...

    def edge(self, edge: Edge) -> str: ...

    def footer(self) -> str: ...


def graph_of(
    tenant: str, collection: str, document: CompleteDocument
) -> tuple[list[Node], list[Edge]]:
    """Returns the graph of a document: its nodes and the edges between them.

    The nodes are the document and its chunks; each parent precedes its children. The document must
    have been read with its tree.
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
    chunks = {
        node.chunk.chunk_id: _chunk_node(scope, node, document.text) for node in document.tree
    }
    return [root, *chunks.values()], list(_edges(root, chunks, document))


def _chunk_node(scope: Mapping[str, Value], node: ChunkNode, text: str) -> Node:
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


def _edges(root: Node, chunks: Mapping[str, Node], document: CompleteDocument) -> Iterator[Edge]:
    for node in document.tree:
        target = chunks[node.chunk.chunk_id]
        if node.parent_id:
            yield Edge(HAS_CHILD, chunks[node.parent_id], target)
        else:
            yield Edge(HAS_CHUNK, root, target)


class GraphMl:
    """Writes nodes and edges as GraphML."""

    def header(self) -> str:
        keys = {name: _XML_TYPES[kind] for name, kind in _PROPERTIES.items()}
        declared = "".join(
            f'<key id="{name}" for="node" attr.name="{name}" attr.type="{kind}"/>\n'
            for name, kind in {"labels": "string", **keys}.items()
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
            f"{declared}"
            '<key id="label" for="edge" attr.name="label" attr.type="string"/>\n'
            '<graph id="hrag" edgedefault="directed">\n'
        )

    def node(self, node: Node) -> str:
        properties = {"labels": f":{node.label}", **node.key, **node.properties}
        data = "".join(_xml_data(name, value) for name, value in properties.items())
        return f"<node id={_xml_attribute(node.name)}>{data}</node>\n"

    def edge(self, edge: Edge) -> str:
        ends = (
            f"source={_xml_attribute(edge.source.name)} target={_xml_attribute(edge.target.name)}"
        )
        return f"<edge {ends}>{_xml_data('label', edge.kind)}</edge>\n"

    def footer(self) -> str:
        return "</graph>\n</graphml>\n"


def _xml_data(name: str, value: Value) -> str:
    text = _replace_forbidden(str(value))
    return f'<data key="{name}">{escape(text, _CARRIAGE_RETURN)}</data>'


def _xml_attribute(value: str) -> str:
    return quoteattr(_replace_forbidden(value))


def _replace_forbidden(text: str) -> str:
    return _FORBIDDEN_IN_XML.sub(_REPLACEMENT, text)


class Cypher:
    """Writes nodes and edges as Cypher."""

    def header(self) -> str:
        return "".join(
            f"CREATE INDEX hrag_{label.lower()} IF NOT EXISTS FOR (n:{label}) ON (n.id);\n"
            for label in (DOCUMENT, CHUNK)
        )

    def node(self, node: Node) -> str:
        values = [f"n.{name} = {cypher_literal(value)}" for name, value in node.properties.items()]
        return f"MERGE (n:{node.label} {_cypher_map(node.key)}) SET {', '.join(values)};\n"

    def edge(self, edge: Edge) -> str:
        ends = ", ".join(
            f"({name}:{node.label} {_cypher_map(node.key)})"
            for name, node in (("a", edge.source), ("b", edge.target))
        )
        return f"MATCH {ends} MERGE (a)-[:{edge.kind}]->(b);\n"

    def footer(self) -> str:
        return ""


def _cypher_map(values: Mapping[str, Value]) -> str:
    return f"{{{', '.join(f'{name}: {cypher_literal(value)}' for name, value in values.items())}}}"


def cypher_literal(value: Value) -> str:
    """Returns a text or a whole number as a literal of the query language Cypher."""
    if isinstance(value, int):
        return str(value)
    escaped = _CYPHER_SPECIAL.sub(lambda match: _cypher_escape(match[0]), value)
    return f"'{escaped}'"


def _cypher_escape(character: str) -> str:
    return _CYPHER_ESCAPES.get(character) or f"\\u{ord(character):04X}"
