"""Writes GraphML, which Gephi, yEd, networkx and Neo4j's APOC read.

XML cannot contain most control characters, not even escaped ones, so each becomes U+FFFD.
"""

import re
from xml.sax.saxutils import escape, quoteattr

from hrag.cli.exchange.graph import PROPERTIES, Edge, Node, Value

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Parsers turn a carriage return that is not escaped into a newline.
_CARRIAGE_RETURN = {"\r": "&#13;"}
_TYPES = {str: "string", int: "int"}


class GraphMl:
    """Writes nodes and edges as GraphML."""

    def header(self) -> str:
        keys = {name: _TYPES[kind] for name, kind in PROPERTIES.items()}
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
        data = "".join(_data(name, value) for name, value in properties.items())
        return f"<node id={_attribute(node.name)}>{data}</node>\n"

    def edge(self, edge: Edge) -> str:
        ends = f"source={_attribute(edge.source.name)} target={_attribute(edge.target.name)}"
        return f"<edge {ends}>{_data('label', edge.kind)}</edge>\n"

    def footer(self) -> str:
        return "</graph>\n</graphml>\n"


def _data(name: str, value: Value) -> str:
    text = _replace_forbidden(str(value))
    return f'<data key="{name}">{escape(text, _CARRIAGE_RETURN)}</data>'


def _attribute(value: str) -> str:
    return quoteattr(_replace_forbidden(value))


def _replace_forbidden(text: str) -> str:
    return _FORBIDDEN.sub(_REPLACEMENT, text)
