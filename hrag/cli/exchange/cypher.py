r"""Writes Cypher statements, one in each line, for clients of graph databases (`cypher-shell`).

The statements merge, so running them again changes nothing. Texts come from documents, and no
text can end its literal: quotation marks and backslashes are escaped, and no line of a text
becomes a line of the script. Some databases replace escapes such as `\u0027` before they look
for the end of a literal. So a backslash followed by `u` is written in two literals that are
joined by a plus sign.
"""

import re
from collections.abc import Mapping

from hrag.cli.exchange.graph import CHUNK, DOCUMENT, Edge, Node, Value

_ESCAPES = {
    "\\u": "\\\\' + 'u",
    "\\": "\\\\",
    "'": "\\'",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}
_SPECIAL = re.compile("\\\\u|[\\\\'\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Cypher:
    """Writes nodes and edges as Cypher."""

    def header(self) -> str:
        return "".join(
            f"CREATE INDEX hrag_{label.lower()} IF NOT EXISTS FOR (n:{label}) ON (n.id);\n"
            for label in (DOCUMENT, CHUNK)
        )

    def node(self, node: Node) -> str:
        values = [f"n.{name} = {literal(value)}" for name, value in node.properties.items()]
        return f"MERGE (n:{node.label} {_map(node.key)}) SET {', '.join(values)};\n"

    def edge(self, edge: Edge) -> str:
        ends = ", ".join(
            f"({name}:{node.label} {_map(node.key)})"
            for name, node in (("a", edge.source), ("b", edge.target))
        )
        return f"MATCH {ends} MERGE (a)-[:{edge.kind}]->(b);\n"

    def footer(self) -> str:
        return ""


def _map(values: Mapping[str, Value]) -> str:
    return f"{{{', '.join(f'{name}: {literal(value)}' for name, value in values.items())}}}"


def literal(value: Value) -> str:
    """Returns the value as a Cypher expression."""
    if isinstance(value, int):
        return str(value)
    escaped = _SPECIAL.sub(lambda match: _escape(match[0]), value)
    return f"'{escaped}'"


def _escape(character: str) -> str:
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"
