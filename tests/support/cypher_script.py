"""A strict reader of the few kinds of Cypher statements that an export contains; it runs them.

The reader accepts no other statement. So it rejects a script in which a text ends its string
literal too early, which would be an injection. Databases read `\\uXXXX` in two ways, and the reader
can do both: decode it inside a literal, or decode it before the statements are read.
"""

import re
from dataclasses import dataclass, field
from typing import Any

_TEXT = r"'(?:[^'\\\n]|\\[\\'ntrbf]|\\u[0-9A-F]{4})*'"
_VALUE = rf"(?:-?\d+|{_TEXT}(?: \+ {_TEXT})*)"
_MAP = rf"\{{(?P<%s>\w+: {_VALUE}(?:, \w+: {_VALUE})*)\}}"
_NODE = re.compile(
    rf"MERGE \(n:(?P<label>\w+) {_MAP % 'key'}\) "
    rf"SET (?P<values>n\.\w+ = {_VALUE}(?:, n\.\w+ = {_VALUE})*);"
)
_EDGE = re.compile(
    rf"MATCH \(a:(?P<source_label>\w+) {_MAP % 'source'}\), "
    rf"\(b:(?P<target_label>\w+) {_MAP % 'target'}\) MERGE \(a\)-\[:(?P<kind>\w+)\]->\(b\);"
)
_INDEX = re.compile(r"CREATE INDEX \w+ IF NOT EXISTS FOR \(n:\w+\) ON \(n\.\w+\);")
_ESCAPED = re.compile(r"\\(?:u([0-9A-F]{4})|(.))")
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass
class Graph:
    """The nodes and edges that a script creates.

    `nodes` maps a label and a key to the properties of the node. An edge is a triple: the label and
    key of its source, its kind, and the label and key of its target.
    """

    nodes: dict[tuple[str, frozenset[Any]], dict[str, Any]] = field(default_factory=dict)
    edges: set[tuple[Any, str, Any]] = field(default_factory=set)


def executed(script: str, *, decode_first: bool = False) -> Graph:
    """Returns the graph that a script creates. Fails on a line that an export cannot contain.

    With `decode_first`, `\\uXXXX` is decoded before the statements are read.
    """
    if decode_first:
        script = re.sub(r"\\u([0-9A-F]{4})", lambda escape: chr(int(escape[1], 16)), script)
    graph = Graph()
    for line in script.removesuffix("\n").split("\n"):
        if _INDEX.fullmatch(line):
            continue
        if statement := _NODE.fullmatch(line):
            key = _properties(statement["key"], ": ")
            name = (statement["label"], frozenset(key.items()))
            graph.nodes.setdefault(name, dict(key)).update(_properties(statement["values"], " = "))
        else:
            statement = _EDGE.fullmatch(line)
            assert statement, f"not a statement of an export: {line}"
            ends = [
                (statement[f"{end}_label"], frozenset(_properties(statement[end], ": ").items()))
                for end in ("source", "target")
            ]
            assert all(end in graph.nodes for end in ends), line
            graph.edges.add((ends[0], statement["kind"], ends[1]))
    return graph


def _properties(text: str, sign: str) -> dict[str, Any]:
    pairs = re.findall(rf"(?:n\.)?(\w+){re.escape(sign)}({_VALUE})(?:, |$)", text)
    return {name: _value(written) for name, written in pairs}


def _value(written: str) -> str | int:
    if not written.startswith("'"):
        return int(written)
    return "".join(_unescaped(part[1:-1]) for part in re.findall(_TEXT, written))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(
        lambda escape: chr(int(escape[1], 16)) if escape[1] else _PLAIN.get(escape[2], escape[2]),
        text,
    )
