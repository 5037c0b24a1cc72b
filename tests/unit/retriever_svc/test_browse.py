"""`Browse` returns a stored chunk with its ancestors, siblings and descendants."""

from typing import Any

import pytest

from hrag import errors
from hrag.types import Chunk, ChunkNode, Hierarchy
from retriever_svc.browse import Browse
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences

TEXT = sentences(60)


@pytest.fixture
def browse(engine: Engine) -> Browse:
    """Tenant `t` has a collection `c` with one document `d`, whose tree has three levels."""
    engine.writer.create_collection("t", "c", collection_settings())
    engine.writer.put(engine.open(), prepared("d", TEXT))
    return Browse(engine.reader)


def _hierarchy(
    browse: Browse, chunk_id: str, depth: int = 0, *, content: bool = False
) -> Hierarchy:
    return browse.hierarchy("t", "c", chunk_id, depth, content=content)


def _ids(nodes: tuple[ChunkNode, ...]) -> list[str]:
    return [node.chunk.chunk_id for node in nodes]


def test_the_content_of_a_chunk_is_exactly_its_span_of_the_text(browse: Browse) -> None:
    chunk = browse.chunk("t", "c", "d#1.1").chunk
    span = chunk.span
    assert chunk.content == TEXT[span.char_start : span.char_end]
    assert chunk.content.encode() == TEXT.encode()[span.byte_start : span.byte_end]


def test_parents_and_children_name_each_other_and_a_leaf_lies_inside_its_parent(
    browse: Browse,
) -> None:
    top = browse.chunk("t", "c", "d#2.0")
    assert top.parent_id == ""
    for child_id in top.child_ids:
        child = browse.chunk("t", "c", child_id)
        assert child.parent_id == "d#2.0"
        for leaf_id in child.child_ids:
            leaf = browse.chunk("t", "c", leaf_id)
            assert (leaf.parent_id, leaf.child_ids) == (child_id, ())
            assert _lies_in(leaf.chunk, child.chunk)


def _lies_in(inner: Chunk, outer: Chunk) -> bool:
    return (
        outer.span.byte_start <= inner.span.byte_start < inner.span.byte_end <= outer.span.byte_end
    )


def test_ancestors_are_listed_from_the_parent_to_the_top_level(browse: Browse) -> None:
    hierarchy = _hierarchy(browse, "d#0.3")
    assert _ids(hierarchy.ancestors)[0] == hierarchy.node.parent_id
    assert [node.chunk.level for node in hierarchy.ancestors] == [1, 2]
    assert hierarchy.descendants == ()


def test_siblings_are_the_other_children_of_the_parent(browse: Browse) -> None:
    parent = browse.chunk("t", "c", "d#1.1")
    first, *others = parent.child_ids
    assert _ids(_hierarchy(browse, first).siblings) == others


def test_siblings_of_a_chunk_at_the_top_level_are_the_other_chunks_of_this_level(
    browse: Browse,
) -> None:
    siblings = _ids(_hierarchy(browse, "d#2.1").siblings)
    assert siblings[0] == "d#2.0"
    assert "d#2.1" not in siblings


@pytest.mark.parametrize(("depth", "levels"), [(0, {1}), (1, {1}), (2, {1, 0}), (8, {1, 0})])
def test_depth_limits_the_levels_of_descendants_that_are_returned(
    browse: Browse, depth: int, levels: set[int]
) -> None:
    hierarchy = _hierarchy(browse, "d#2.0", depth)
    assert {node.chunk.level for node in hierarchy.descendants} == levels
    children = [node for node in hierarchy.descendants if node.chunk.level == 1]
    assert _ids(tuple(children)) == list(hierarchy.node.child_ids)


def test_ancestors_siblings_and_descendants_have_content_only_on_request(browse: Browse) -> None:
    bare, full = (_hierarchy(browse, "d#1.0", content=content) for content in (False, True))
    assert bare.node.chunk.content == full.node.chunk.content != ""
    for without, with_content in zip(_relatives(bare), _relatives(full), strict=True):
        assert without.content == ""
        span = with_content.span
        assert with_content.content == TEXT[span.char_start : span.char_end]


def _relatives(hierarchy: Hierarchy) -> list[Chunk]:
    return [
        node.chunk
        for node in (
            *hierarchy.ancestors,
            *hierarchy.siblings,
            *hierarchy.descendants,
        )
    ]


CALLS = pytest.mark.parametrize(
    "call",
    [
        lambda browse, *address: browse.chunk(*address),
        lambda browse, *address: browse.hierarchy(*address, 1, content=False),
    ],
    ids=["chunk", "hierarchy"],
)


@CALLS
@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        (("t", "c", "d#2.99"), errors.ChunkNotFound, "'d#2.99'"),
        (("t", "c", "d#3.0"), errors.ChunkNotFound, "'d#3.0'"),
        (("t", "c", "d#0.999999999"), errors.ChunkNotFound, "'d#0.999999999'"),
        (("t", "c", "e#0.0"), errors.DocumentNotFound, "'e'"),
        (("t", "x", "d#0.0"), errors.CollectionNotFound, "'x'"),
        (("u", "c", "d#0.0"), errors.CollectionNotFound, "'u'"),
    ],
)
def test_the_error_names_a_chunk_document_or_collection_that_does_not_exist(
    browse: Browse, call: Any, address: tuple[str, str, str], error: type, words: str
) -> None:
    with pytest.raises(error, match=words):
        call(browse, *address)


@CALLS
@pytest.mark.parametrize(
    ("address", "field"),
    [
        (("../t", "c", "d#0.0"), "tenant_id"),
        (("t", "c\0", "d#0.0"), "collection"),
        (("t", "c", "d"), "chunk_id"),
        (("t", "c", "d#0"), "chunk_id"),
        (("t", "c", "d#8.0"), "chunk_id"),
        (("t", "c", "d#0.01"), "chunk_id"),
        (("t", "c", "d#0.-1"), "chunk_id"),
        (("t", "c", "d#0.٣"), "chunk_id"),
        (("t", "c", "d#0.0\n"), "chunk_id"),
        (("t", "c", "d/e#0.0"), "chunk_id"),
        (("t", "c", ""), "chunk_id"),
    ],
)
def test_the_error_for_a_malformed_name_or_id_names_its_field(
    browse: Browse, call: Any, address: tuple[str, str, str], field: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        call(browse, *address)
    assert caught.value.field == field


def test_a_depth_above_the_limit_is_refused(browse: Browse) -> None:
    with pytest.raises(
        errors.InvalidArgument, match="depth is 9; it must be from 0 to 8"
    ) as caught:
        _hierarchy(browse, "d#2.0", 9)
    assert caught.value.field == "depth"
