"""A passage is encoded as protobuf does it, whatever hypothesis finds."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.tree import CHUNK, ChunkRecord
from hrag.types import PageStart
from hrag.v1 import retriever_pb2, types_pb2
from hrag_fast import PassageEncoder

NUMBER = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 2**21, 2**28, 2**32 - 1])
SCORE = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0])
NAME = st.text("aZ09._-é漢", min_size=1, max_size=40)
LEVEL, LEAF_LEVEL = 2, 1


def ranges(highest: int) -> st.SearchStrategy[tuple[int, int]]:
    bound = st.integers(0, highest)
    return st.tuples(bound, bound).map(lambda pair: (min(pair), max(pair)))


@st.composite
def records(draw: Callable[..., Any], text: str) -> ChunkRecord:
    """Bytes are those of whole characters of the text; other numbers are any."""
    start, end = (len(text[:char].encode()) for char in draw(ranges(len(text))))
    chars = sorted(draw(st.tuples(NUMBER, NUMBER)))
    return ChunkRecord(start, end, *chars, *draw(st.tuples(*[NUMBER] * 6)))


@st.composite
def arguments(draw: Callable[..., Any]) -> SimpleNamespace:
    """All that one passage is made of."""
    text = draw(st.text(max_size=300))
    leaves = draw(st.lists(records(text), min_size=1, max_size=8))
    hits = draw(st.lists(st.tuples(st.integers(0, len(leaves) - 1), SCORE), max_size=12))
    start, end = draw(ranges(len(hits)))
    page = st.builds(PageStart, NUMBER, NUMBER)
    return SimpleNamespace(
        document_id=draw(NAME),
        index=draw(st.integers(0, 2**20 - 1)),
        record=draw(records(text)),
        text=text.encode(),
        leaves=leaves,
        hits=hits,
        start=start,
        end=end,
        score=draw(SCORE),
        section_path=tuple(draw(st.lists(st.text(max_size=200), max_size=3))),
        pages=draw(st.tuples(NUMBER, NUMBER)),
        page_starts=tuple(draw(st.lists(page, max_size=3))),
        merged=draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2**20 - 1)), max_size=3)),
    )


def encode(given: SimpleNamespace) -> bytes:
    """What the encoder makes of it; row r is leaf r of some document."""
    labels = (7 << 20 | np.arange(len(given.leaves))).astype(np.uint64)
    rows = np.array([leaf for leaf, _ in given.hits], np.uint32)
    scores = np.array([score for _, score in given.hits], np.float32)
    packed = np.array([tuple(leaf) for leaf in given.leaves], CHUNK).tobytes()
    return PassageEncoder(labels, rows, scores, LEAF_LEVEL).passage(
        types_pb2.Chunk(document_id=given.document_id, title="a title").SerializeToString(),
        given.document_id.encode(),
        LEVEL,
        given.index,
        given.record,
        memoryview(given.text),
        memoryview(packed),
        given.start,
        given.end,
        given.score,
        given.section_path,
        given.pages,
        given.page_starts,
        given.merged,
    )


def expected(given: SimpleNamespace) -> retriever_pb2.Passage:
    own = given.record
    passage = retriever_pb2.Passage(
        chunk=types_pb2.Chunk(
            chunk_id=f"{given.document_id}#{LEVEL}.{given.index}",
            document_id=given.document_id,
            level=LEVEL,
            index=given.index,
            content=given.text[own.byte_start : own.byte_end].decode(),
            token_count=own.token_count,
            span=span(own),
            section_path=given.section_path,
            first_page=given.pages[0],
            last_page=given.pages[1],
            title="a title",
            page_starts=[
                types_pb2.PageStart(number=page.number, char_start=page.char_start)
                for page in given.page_starts
            ],
        ),
        score=given.score,
        merged_chunk_ids=[f"{given.document_id}#{each[0]}.{each[1]}" for each in given.merged],
    )
    for leaf, score in given.hits[given.start : given.end]:
        part = given.leaves[leaf]
        if part.char_end <= own.char_start or own.char_end <= part.char_start:
            continue
        passage.matched_children.add(
            chunk_id=f"{given.document_id}#{LEAF_LEVEL}.{leaf}",
            score=score,
            span=types_pb2.Span(
                byte_start=max(part.byte_start, own.byte_start),
                byte_end=min(part.byte_end, own.byte_end),
                char_start=max(part.char_start, own.char_start),
                char_end=min(part.char_end, own.char_end),
            ),
        )
    return passage


def span(record: ChunkRecord) -> types_pb2.Span:
    return types_pb2.Span(
        byte_start=record.byte_start,
        byte_end=record.byte_end,
        char_start=record.char_start,
        char_end=record.char_end,
    )


@given(arguments())
def test_encoding_equals_protobufs_own(given):
    encoded = encode(given)
    message = retriever_pb2.Passage.FromString(encoded)
    assert message == expected(given)
    assert len(encoded) == message.ByteSize()  # Nothing is there twice or longer than need be.


GIVEN = SimpleNamespace(
    document_id="d",
    index=0,
    record=ChunkRecord(0, 4, 0, 4, 0, 1, 0, 0, 0, 0),
    text=b"text",
    leaves=[ChunkRecord(0, 4, 0, 4, 0, 1, 0, 0, 0, 0)],
    hits=[(0, 0.5)],
    start=0,
    end=1,
    score=0.5,
    section_path=(),
    pages=(0, 0),
    page_starts=(),
    merged=(),
)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"end": 2}, "children 0 to 2 of 1"),
        ({"start": 1, "end": 0}, "children 1 to 0 of 1"),
        ({"hits": [(1, 0.5)]}, "row 1 of 1"),
        ({"record": GIVEN.record._replace(byte_end=5)}, "bytes 0 to 5 of a text of 4"),
        ({"record": GIVEN.record._replace(byte_start=5)}, "bytes 5 to 4 of a text of 4"),
    ],
)
def test_what_there_is_not_is_refused(change, error):
    assert encode(GIVEN)
    with pytest.raises((IndexError, ValueError), match=error):
        encode(SimpleNamespace(**vars(GIVEN) | change))


def test_a_leaf_that_the_tree_has_not_is_refused():
    encoder = PassageEncoder(
        np.array([5], np.uint64), np.array([0], np.uint32), np.array([1.0], np.float32), LEAF_LEVEL
    )
    with pytest.raises(IndexError, match="leaf 5 of 1"):
        encoder.passage(
            b"", b"d", LEVEL, 0, GIVEN.record, memoryview(b"text"), memoryview(bytes(40)), 0, 1, 0.5
        )


def test_children_without_scores_are_refused():
    with pytest.raises(ValueError, match="1 children, 0 scores"):
        PassageEncoder(
            np.array([0], np.uint64), np.array([0], np.uint32), np.array([], np.float32), LEAF_LEVEL
        )
