"""Every storage engine keeps these promises about chunks, hierarchies and citations."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hrag.engine.engine_documents import PreparedDocument
from hrag.engine.protocols import Snapshot
from hrag.errors import ChunkNotFound, DocumentNotFound
from hrag.types import ChunkNode, PageStart, TreeSettings
from hrag.values.ids import ChunkId, parse_chunk_id
from hrag.values.read_report import PageUnit
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import prepared, query_vector, search_passages, sentences


def _parent_and_children(
    document: PreparedDocument, level: int, index: int
) -> tuple[str, tuple[str, ...]]:
    """Returns the id of a chunk's parent, which is empty if it has none, and of its children."""
    record = document.tree.record(level, index)
    name = document.document_id
    parent = "" if level == document.tree.top_level else f"{name}#{level + 1}.{record.parent}"
    first = record.first_child
    children = (f"{name}#{level - 1}.{n}" for n in range(first, first + record.child_count))
    return parent, tuple(children)


def test_every_chunk_is_found_by_its_id(filled):
    with filled.snapshot() as snapshot:
        for document in filled.model.documents.values():
            for level, count in enumerate(document.tree.counts):
                for index in range(count):
                    node = snapshot.chunk(ChunkId(document.document_id, level, index))
                    record = document.tree.record(level, index)
                    text = document.parsed.text[record.char_start : record.char_end]
                    assert node.chunk.content == text
                    assert (node.parent_id, node.child_ids) == _parent_and_children(
                        document, level, index
                    )


def _ids(nodes: tuple[ChunkNode, ...]) -> list[str]:
    return [node.chunk.chunk_id for node in nodes]


def _descendants(snapshot: Snapshot, chunk_ids: list[str], depth: int) -> Iterator[str]:
    """Yields the ids of the descendants of chunks, `depth` levels down, level by level."""
    for _ in range(depth):
        nodes = [snapshot.chunk(parse_chunk_id(chunk_id)) for chunk_id in chunk_ids]
        chunk_ids = [child for node in nodes for child in node.child_ids]
        yield from chunk_ids


@pytest.mark.parametrize("depth", [0, 1, 2, 8])
def test_a_hierarchy_has_the_ancestors_siblings_and_descendants_of_a_chunk(filled, depth):
    document = filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        for level, count in enumerate(document.tree.counts):
            for index in range(count):
                chunk_id = ChunkId("d9", level, index)
                hierarchy = snapshot.hierarchy(chunk_id, depth, content=True)
                node = hierarchy.node
                assert node == snapshot.chunk(chunk_id)
                parent_ids = [n.parent_id for n in (node, *hierarchy.ancestors)]
                assert parent_ids == [*_ids(hierarchy.ancestors), ""]
                below = list(_descendants(snapshot, [str(chunk_id)], depth))
                assert _ids(hierarchy.descendants) == below
                siblings = [
                    f"d9#{level}.{n}"
                    for n in range(count)
                    if n != index and _parent_and_children(document, level, n)[0] == node.parent_id
                ]
                assert _ids(hierarchy.siblings) == siblings


def test_a_hierarchy_can_be_read_without_the_texts_of_the_other_chunks(filled):
    with filled.snapshot() as snapshot:
        full = snapshot.hierarchy(ChunkId("d9", 1, 0), 1, content=True)
        bare = snapshot.hierarchy(ChunkId("d9", 1, 0), 1, content=False)
    assert bare.node == full.node
    for name in ("ancestors", "siblings", "descendants"):
        with_text, without = getattr(full, name), getattr(bare, name)
        assert len(with_text) == len(without) > 0
        for node, bare_node in zip(with_text, without, strict=True):
            assert node.chunk.content
            assert bare_node == replace(node, chunk=replace(node.chunk, content=""))


@pytest.mark.parametrize("chunk_id", [ChunkId("d1", 3, 0), ChunkId("d1", 0, 999)])
def test_a_chunk_that_does_not_exist_is_not_found(filled, chunk_id):
    with filled.snapshot() as snapshot:
        with pytest.raises(ChunkNotFound, match=f"no chunk '{chunk_id}'"):
            snapshot.chunk(chunk_id)
        with pytest.raises(ChunkNotFound, match=f"no chunk '{chunk_id}'"):
            snapshot.hierarchy(chunk_id, 1, content=True)
        with pytest.raises(DocumentNotFound, match="no document 'nobody'"):
            snapshot.chunk(ChunkId("nobody", 0, 0))


def test_a_chunk_has_its_section_path_and_pages(catalog):
    parts = [f"{sentences(12, n)}\n\n" for n in range(4)]
    starts = [sum(map(len, parts[:n])) for n in range(5)]
    parsed = ParsedText(
        "".join(parts),
        (Section("Guide", 1, 0), Section("Setup", 2, starts[1]), Section("Use", 1, starts[2])),
        tuple(PageSpan(10 + n, starts[n], starts[n + 1]) for n in range(4)),
    )
    catalog.create(TreeSettings((128, 4096), 0.0))
    catalog.writer.put(catalog.collection, prepared("d", parsed, catalog.model.settings))
    with catalog.snapshot() as snapshot:
        chunks = [snapshot.chunk(ChunkId("d", 0, index)).chunk for index in range(4)]
        whole = snapshot.chunk(ChunkId("d", 1, 0)).chunk
    assert [chunk.section_path for chunk in chunks] == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Use",),
        ("Use",),
    ]
    assert [(c.first_page, c.last_page) for c in chunks] == [(n, n) for n in (10, 11, 12, 13)]
    assert (whole.section_path, whole.first_page, whole.last_page) == ((), 10, 13)
    assert [chunk.page_starts for chunk in chunks] == [()] * 4
    assert whole.page_starts == tuple(PageStart(10 + n, starts[n]) for n in (1, 2, 3))


@pytest.mark.parametrize("unit", list(PageUnit))
def test_chunks_and_passages_say_what_pages_mean_and_which_were_recognised(catalog, unit):
    """`search_passages` also compares both forms of a passage, as a value and encoded."""
    text = sentences(60)
    half = len(text) // 2
    pages = (PageSpan(1, 0, half), PageSpan(4, half, len(text), is_recognised=True))
    catalog.create(TreeSettings((32, 4096), 0.0))
    parsed = ParsedText(text, (), pages, unit)
    catalog.writer.put(catalog.collection, prepared("d", parsed, catalog.model.settings))
    info = catalog.writer.document(catalog.collection, "d")
    assert (info.page_unit, info.page_count, info.recognised_page_count) == (unit, 2, 1)
    with catalog.snapshot() as snapshot:
        first = snapshot.chunk(ChunkId("d", 0, 0)).chunk
        whole = snapshot.chunk(ChunkId("d", 1, 0)).chunk
        passages = search_passages(snapshot, query_vector(0), 100, 0)
    assert (first.page_unit, first.recognised_pages) == (unit, ())
    assert (whole.page_unit, whole.recognised_pages) == (unit, (4,))
    assert {passage.chunk.recognised_pages for passage in passages} == {(), (4,)}
    assert {passage.chunk.page_unit for passage in passages} == {unit}
    sentences_cited = [passage.matched_sentence for passage in passages]
    assert {s.recognised_pages for s in sentences_cited if s is not None} == {(), (4,)}
