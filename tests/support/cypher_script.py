"""A strict reader of the few Cypher statements that an export has; it executes them.

It accepts nothing else, so a text that ended its literal would be found. Texts are read in the
two ways in which databases read them: with `\\uXXXX` as part of a literal, or before all else.
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
    """Nodes by label and key, each with its properties; edges between keys."""

    nodes: dict[tuple[str, frozenset[Any]], dict[str, Any]] = field(default_factory=dict)
    edges: set[tuple[Any, str, Any]] = field(default_factory=set)


def executed(script: str, *, decode_first: bool = False) -> Graph:
    """The graph that a script makes. Fails on a line that is no statement of an export."""
    if decode_first:
        script = re.sub(r"\\u([0-9A-F]{4})", lambda found: chr(int(found[1], 16)), script)
    graph = Graph()
    for line in script.removesuffix("\n").split("\n"):
        if _INDEX.fullmatch(line):
            continue
        if found := _NODE.fullmatch(line):
            key = _properties(found["key"], ": ")
            name = (found["label"], frozenset(key.items()))
            graph.nodes.setdefault(name, dict(key)).update(_properties(found["values"], " = "))
        else:
            found = _EDGE.fullmatch(line)
            assert found, f"no statement: {line}"
            ends = [
                (found[f"{end}_label"], frozenset(_properties(found[end], ": ").items()))
                for end in ("source", "target")
            ]
            assert all(end in graph.nodes for end in ends), line
            graph.edges.add((ends[0], found["kind"], ends[1]))
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
        lambda found: chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2]), text
    )
