"""Passages of several groups in one call: text that they share, blocks that are checked, limits."""

from typing import Any

import numpy as np
import pytest

from hrag.v1 import retriever_pb2
from hrag.values.tree import CHUNK, NONE, Tree
from hrag_fast import CitedDocument, Groups, PassageDocument, PassageEncoder

TEXT = b"0123456789abcdefghij"
NO_PATHS: Any = None


def encoder(keys: list[int], children: list[int]) -> PassageEncoder:
    """Returns an encoder of groups with one leaf each. Leaf r of document 0 is in row r."""
    scores = np.linspace(1, 0, len(keys), dtype=np.float32)
    starts = np.arange(len(keys) + 1, dtype=np.uint32)
    rows = np.array(children, np.uint32)
    labels = np.arange(4, dtype=np.uint64)
    return PassageEncoder(
        labels, Groups(np.array(keys, np.uint64), scores, starts, rows, scores), 0
    )


def document(
    *spans: tuple[int, int],
    text: bytes = TEXT,
    checked: bytearray | None = None,
    block_bytes: int = 10,
) -> PassageDocument:
    """Returns a document with a chunk for each span; a span counts bytes, characters and tokens."""
    records = [(*span, *span, span[0], span[1] - span[0], NONE, 0, 0, NONE) for span in spans]
    tree = Tree.from_levels([np.array(records, CHUNK)])
    cited = CitedDocument(b"", b"d", NO_PATHS)
    return PassageDocument(cited, tree.to_bytes(), text, checked, block_bytes)


def contents(encoded: tuple[bytes, ...] | None) -> list[str] | None:
    """Returns the texts of encoded passages."""
    if encoded is None:
        return None
    passages = retriever_pb2.SearchResponse.FromString(b"".join(encoded)).passages
    return [passage.chunk.content for passage in passages]


def passages(found: PassageDocument, order: list[int], **options: Any) -> list[str] | None:
    """Returns the texts of the passages of some chunks, best first; each chunk is a leaf."""
    limit, keep_overlap = options.pop("limit", 10), options.pop("keep_overlap", False)
    encoded = encoder(order, order).passages(
        0, {}, limit, keep_overlap, lambda _ordinal: found, **options
    )
    return contents(encoded)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([0, 1], ["01234567", "89abc"]),
        ([1, 0], ["56789abc", "01234"]),
        ([2, 0, 1], ["abcdefghij", "01234567", "89"]),
        ([0, 3], ["01234567", "j"]),
    ],
)
def test_text_of_a_better_passage_is_left_out(order, expected):
    found = document((0, 8), (5, 13), (10, 20), (19, 20))
    assert passages(found, order) == expected


def test_with_keep_overlap_passages_repeat_text():
    assert passages(document((0, 8), (5, 13)), [0, 1], keep_overlap=True) == [
        "01234567",
        "56789abc",
    ]


@pytest.mark.parametrize("blank", [b" \n\t  ", "\u3000\u2003".encode(), "\u1680\u00a0".encode()])
def test_a_blank_chunk_that_touches_a_passage_is_chosen_in_another_way(blank):
    spans = (0, 5), (5, 5 + len(blank)), (5 + len(blank) + 1, 5 + len(blank) + 2)
    found = document(*spans, text=b"01234" + blank + b"xy")
    assert passages(found, [0, 1]) is None
    assert passages(found, [0, 2]) == ["01234", "y"]


@pytest.mark.parametrize("visible", ["é", "漢", "か", "한", "ก", "ក", "🙂", "\u3000漢"])
def test_a_chunk_with_a_visible_character_is_not_blank(visible):
    text = b"01234" + visible.encode()
    assert passages(document((0, 5), (5, len(text)), text=text), [0, 1]) == ["01234", visible]


def test_a_chunk_whose_leaf_is_in_a_better_passage_is_chosen_in_another_way():
    found = document((0, 8), (5, 13), (6, 8))
    encode = encoder([0, 1], [0, 2])
    assert encode.passages(0, {}, 10, False, lambda _ordinal: found) is None
    assert contents(encode.passages(0, {}, 1, False, lambda _ordinal: found)) == ["01234567"]


def test_passages_that_are_too_large_together_are_not_encoded():
    found = document((0, 8), (9, 13))
    encoded = encoder([0, 1], [0, 1]).passages(0, {}, 10, False, lambda _ordinal: found)
    assert encoded is not None
    size = sum(map(len, encoded))
    assert passages(found, [0, 1], max_bytes=size) == ["01234567", "9abc"]
    assert passages(found, [0, 1], max_bytes=size - 1) is None
    assert passages(found, [0, 1], max_bytes=size - 1, limit=1) == ["01234567"]


def test_the_text_of_a_passage_is_verified_except_if_all_its_blocks_are_checked():
    verified = []

    def verify(*part: int) -> None:
        verified.append(part)

    for checked in (None, bytearray(b"\1\0"), bytearray(b"\1\1"), bytearray()):
        passages(document((0, 8), checked=checked), [0], verify=verify)
    assert [ordinal for ordinal, _, _ in verified] == [0] * 3
    assert all(start == 0 and end >= len(TEXT) for _, start, end in verified)


def test_a_document_is_opened_once():
    found, opened = document((0, 5), (6, 10)), []

    def open_document(ordinal: int) -> PassageDocument:
        opened.append(ordinal)
        return found

    keys = [0, 5 << 20, 1, 5 << 20 | 1]
    assert contents(encoder(keys, [0, 0, 1, 1]).passages(0, {}, 10, False, open_document)) == [
        "01234",
        "01234",
        "6789",
        "6789",
    ]
    assert opened == [0, 5]


def test_a_merged_chunk_has_its_position_from_the_map():
    found = document((0, 8), (9, 13))
    encode = encoder([0], [1])
    assert contents(encode.passages(0, {0: ((0, 1), range(2))}, 1, False, lambda _: found)) == [
        "9abc"
    ]


def test_blocks_have_at_least_one_byte():
    with pytest.raises(ValueError, match="block_bytes is 0; it must be at least 1"):
        document((0, 5), block_bytes=0)


def test_only_documents_are_opened():
    opened: Any = lambda _ordinal: b"bytes"  # noqa: E731
    with pytest.raises(TypeError, match="PassageDocument"):
        encoder([0], [0]).passages(0, {}, 1, False, opened)
