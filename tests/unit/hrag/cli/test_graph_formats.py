"""A graph that is exported as GraphML or Cypher is read back with the same texts.

GraphML replaces only the characters that XML does not allow.
"""

import io

import networkx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hrag.cli.export_format import CompleteDocument
from hrag.cli.graph_formats import Cypher, GraphFormat, GraphMl, cypher_literal, graph_of
from hrag.types import Chunk, ChunkNode, DocumentInfo, Span
from tests.support.cypher_script import executed

NASTY = '猫\'s \\ "q" \r\n\t </data>&amp; ]]> \\u0027 \\\\u005c; MATCH (n) DETACH DELETE n; //'
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def _document(text: str) -> CompleteDocument:
    """Returns a document with two leaves below one chunk, which contains the whole text."""
    middle = len(text) // 2
    spans = {"d#1.0": (0, len(text)), "d#0.0": (0, middle), "d#0.1": (middle, len(text))}
    tree = tuple(
        ChunkNode(
            Chunk(
                chunk_id,
                "d",
                int(chunk_id[2]),
                int(chunk_id[4]),
                "",
                3,
                Span(0, 0, *span),
                (),
                0,
                0,
                "",
                "",
                {},
            ),
            "" if chunk_id == "d#1.0" else "d#1.0",
        )
        for chunk_id, span in spans.items()
    )
    info = DocumentInfo("d", text[:9], text[:5], "text/plain", {}, (2, 1), 6, 1, 0, 0, 1)
    return CompleteDocument(info, text, tree=tree)


def _written(form: GraphFormat, text: str) -> str:
    """Returns the graph of a document with this text in a format."""
    nodes, edges = graph_of("t", "c", _document(text))
    parts = [form.header(), *map(form.node, nodes), *map(form.edge, edges), form.footer()]
    return "".join(parts)


def test_graphml_is_read_by_networkx():
    text = NASTY + "\x00\x1b\ufffe"
    graph = networkx.read_graphml(io.BytesIO(_written(GraphMl(), text).encode()))
    assert graph.is_directed()
    shown = NASTY + "\N{REPLACEMENT CHARACTER}" * 3
    assert graph.nodes["d"]["labels"] == ":Document"
    assert graph.nodes["d"]["title"] == shown[:9]
    assert graph.nodes["d#1.0"] == {
        "labels": ":Chunk",
        "id": "d#1.0",
        "tenantId": "t",
        "collection": "c",
        "documentId": "d",
        "level": 1,
        "tokenCount": 3,
        "content": shown,
    }
    assert sorted(graph.edges(data="label")) == [
        ("d", "d#1.0", "HAS_CHUNK"),
        ("d#1.0", "d#0.0", "HAS_CHILD"),
        ("d#1.0", "d#0.1", "HAS_CHILD"),
    ]


@given(TEXTS)
@example(NASTY)
def test_graphml_keeps_every_character_that_xml_allows(text):
    graph = networkx.read_graphml(io.BytesIO(_written(GraphMl(), text).encode()))
    content = graph.nodes["d#1.0"].get("content") or ""
    assert all(
        read in (original, "\N{REPLACEMENT CHARACTER}")
        for original, read in zip(text, content, strict=True)
    )


@pytest.mark.parametrize("decode_first", [False, True])
@given(text=TEXTS)
@example(text=NASTY)
@example(text="\\\x01' \\u0027 \\\\u0027")
def test_cypher_is_read_back_by_databases_of_both_kinds(decode_first, text):
    """Some databases decode `\\uXXXX` before they parse a statement, others afterwards."""
    script = _written(Cypher(), text)
    graph = executed(script, decode_first=decode_first)
    key = frozenset({"tenantId": "t", "collection": "c", "id": "d#1.0"}.items())
    chunk = graph.nodes["Chunk", key]
    assert (chunk["content"], chunk["level"], chunk["documentId"]) == (text, 1, "d")
    kinds = sorted(kind for _, kind, _ in graph.edges)
    assert kinds == ["HAS_CHILD", "HAS_CHILD", "HAS_CHUNK"]
    assert len(graph.nodes) == 4


def test_cypher_literals_are_escaped():
    assert cypher_literal(5) == "5"
    assert cypher_literal("it's\n") == r"'it\'s\n'"
    assert cypher_literal("a\\u0027") == r"'a\\' + 'u0027'"
    assert cypher_literal("\x00\u2028") == r"'\u0000\u2028'"
