"""The compiled passage encoder encodes any passage as protobuf encodes it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.v1 import retriever_pb2, types_pb2
from hrag.values.tree import CHUNK, NONE, ChunkRecord, Tree
from hrag_fast import CitedDocument, Groups, PassageDocument, PassageEncoder

NUMBER = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 2**21, 2**28, 2**32 - 1])
SCORE = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0])
NAME = st.text("aZ09._-é漢", min_size=1, max_size=40)
LEVEL, LEAF_LEVEL = 2, 1


def ranges(highest: int) -> st.SearchStrategy[tuple[int, int]]:
    bound = st.integers(0, highest)
    return st.tuples(bound, bound).map(lambda pair: (min(pair), max(pair)))


@st.composite
def records(draw: Callable[..., Any], text: str) -> ChunkRecord:
    """Draws a record whose bytes are whole characters of the text. Its other fields are random."""
    start, end = (len(text[:char].encode()) for char in draw(ranges(len(text))))
    chars = sorted(draw(st.tuples(NUMBER, NUMBER)))
    section = draw(st.sampled_from([0, 1, NONE]))
    return ChunkRecord(start, end, *chars, *draw(st.tuples(*[NUMBER] * 5)), section)


def paths() -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.text(max_size=200), max_size=3).map(tuple)


@st.composite
def arguments(draw: Callable[..., Any]) -> SimpleNamespace:
    """Draws everything that the encoder needs to encode a passage."""
    text = draw(st.text(max_size=300))
    leaves = draw(st.lists(records(text), min_size=1, max_size=8))
    chunks = draw(st.lists(records(text), min_size=1, max_size=4))
    hits = draw(st.lists(st.tuples(st.integers(0, len(leaves) - 1), SCORE), max_size=12))
    starts = sorted(draw(st.lists(st.integers(0, len(hits)), min_size=2, max_size=4)))
    group = draw(st.integers(0, len(starts) - 2))
    return SimpleNamespace(
        document_id=draw(NAME),
        chunks=chunks,
        index=draw(st.integers(0, len(chunks) - 1)),
        record=draw(st.none() | records(text)),
        text=text.encode(),
        leaves=leaves,
        hits=hits,
        starts=starts,
        group=group,
        score=draw(SCORE),
        section_paths=(draw(paths()), draw(paths())),
        pages=sorted(draw(st.lists(st.tuples(NUMBER, NUMBER), max_size=4)), key=lambda p: p[1]),
        merged=draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2**20 - 1)), max_size=3)),
        recognised=draw(st.none() | st.lists(st.booleans(), min_size=4, max_size=4)),
    )


def tree_of(*levels: list[ChunkRecord]) -> bytes:
    return Tree.from_levels(
        [np.array(list(map(tuple, level)), CHUNK) for level in levels]
    ).to_bytes()


def encode(source: SimpleNamespace) -> bytes:
    """Returns the encoded passage. Row r of the leaves is the leaf r of the only document."""
    scores = np.zeros(len(source.starts) - 1, np.float32)
    scores[source.group : source.group + 1] = source.score
    groups = Groups(
        np.zeros(len(scores), np.uint64),
        scores,
        np.array(source.starts, np.uint32),
        np.array([leaf for leaf, _ in source.hits], np.uint32),
        np.array([score for _, score in source.hits], np.float32),
    )
    labels = (7 << 20 | np.arange(len(source.leaves))).astype(np.uint64)
    cited = CitedDocument(
        types_pb2.Chunk(document_id=source.document_id, title="a title").SerializeToString(),
        source.document_id.encode(),
        source.section_paths.__getitem__,
        [number for number, _ in source.pages],
        [start for _, start in source.pages],
        recognised=(source.recognised or [])[: len(source.pages)],
    )
    document = PassageDocument(cited, tree_of([], source.leaves, source.chunks), source.text)
    encoder = PassageEncoder(labels, groups, LEAF_LEVEL)

    def passage() -> bytes:
        return encoder.passage(
            document,
            LEVEL,
            source.index,
            source.group,
            source.record,
            source.merged,
        )

    encoded = passage()
    assert encoded == passage()  # The second time, values of the document are cached.
    return encoded


def expected(source: SimpleNamespace) -> retriever_pb2.Passage:
    """Returns the expected message of the passage, computed without the encoder."""
    record = source.record or source.chunks[source.index]
    touched = [page for page in source.pages if record.char_start < page[1] < record.char_end]
    before = [number for number, start in source.pages if start <= record.char_start]
    reached = [number for number, start in source.pages if start < record.char_end]
    first = [number for number, _ in source.pages[:1]] or [0]
    flags = source.recognised or [False] * len(source.pages)
    positions = range(max(len(before) - 1, 0), max(len(reached), 1))
    recognised = [
        number
        for position, ((number, _), is_recognised) in enumerate(
            zip(source.pages, flags, strict=False)
        )
        if is_recognised and position in positions
    ]
    passage = retriever_pb2.Passage(
        chunk=types_pb2.Chunk(
            chunk_id=f"{source.document_id}#{LEVEL}.{source.index}",
            document_id=source.document_id,
            level=LEVEL,
            index=source.index,
            content=source.text[record.byte_start : record.byte_end].decode(),
            token_count=record.token_count,
            span=span(record),
            section_path=() if record.section == NONE else source.section_paths[record.section],
            first_page=(first + before)[-1],
            last_page=(first + reached)[-1],
            title="a title",
            page_starts=[
                types_pb2.PageStart(number=number, char_start=start) for number, start in touched
            ],
            recognised_pages=recognised,
        ),
        score=source.score,
        merged_chunk_ids=[
            f"{source.document_id}#{level}.{index}" for level, index in source.merged
        ],
    )
    for leaf, score in source.hits[slice(*source.starts[source.group : source.group + 2])]:
        part = source.leaves[leaf]
        if part.char_end <= record.char_start or record.char_end <= part.char_start:
            continue
        passage.matched_children.add(
            chunk_id=f"{source.document_id}#{LEAF_LEVEL}.{leaf}",
            score=score,
            span=types_pb2.Span(
                byte_start=max(part.byte_start, record.byte_start),
                byte_end=min(part.byte_end, record.byte_end),
                char_start=max(part.char_start, record.char_start),
                char_end=min(part.char_end, record.char_end),
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
def test_the_encoded_passage_equals_that_of_protobuf(source):
    encoded = encode(source)
    message = retriever_pb2.SearchResponse.FromString(encoded)
    assert message == retriever_pb2.SearchResponse(passages=[expected(source)])
    assert len(encoded) == message.ByteSize()  # So no field is encoded twice, or with spare bytes.


RECORD = ChunkRecord(0, 4, 0, 4, 0, 1, 0, 0, 0, NONE)
SOURCE = SimpleNamespace(
    document_id="d",
    chunks=[RECORD],
    index=0,
    record=None,
    text=b"text",
    leaves=[RECORD],
    hits=[(0, 0.5)],
    starts=[0, 1],
    group=0,
    score=0.5,
    section_paths=(("Title",),),
    pages=[],
    merged=(),
    recognised=None,
)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"starts": [0, 2]}, "group 0 has children 0 to 2; they must ascend and be at most 1"),
        ({"starts": [1, 0]}, "group 0 has children 1 to 0; they must ascend and be at most 1"),
        ({"group": 1}, "group is 1; it must be below 1"),
        ({"group": 2**64 - 1}, "group is 18446744073709551615; it must be below 1"),
        ({"index": 1}, "index is 1; it must be below 1, the number of chunks"),
        ({"hits": [(1, 0.5)]}, r"children\[0\] is row 1; it must be below 1"),
        (
            {"record": RECORD._replace(byte_end=5)},
            "has bytes 0 to 5; .* at most 4, the length",
        ),
        (
            {"chunks": [RECORD._replace(byte_start=5)]},
            "has bytes 5 to 4; they must ascend",
        ),
        ({"chunks": [RECORD._replace(section=1)]}, "tuple index out of range"),
    ],
)
def test_an_index_of_something_that_does_not_exist_is_refused(change, error):
    assert encode(SOURCE)
    with pytest.raises((IndexError, ValueError), match=error):
        encode(SimpleNamespace(**vars(SOURCE) | change))


def groups_of(rows: list[int], scores: list[float]) -> Groups:
    """Returns Groups with one group, which has all rows."""
    return Groups(
        np.zeros(1, np.uint64),
        np.zeros(1, np.float32),
        np.array([0, len(rows)], np.uint32),
        np.array(rows, np.uint32),
        np.array(scores, np.float32),
    )


def encode_in(tree: bytes, level: int = LEVEL, leaf: int = 0) -> bytes:
    encoder = PassageEncoder(np.array([leaf], np.uint64), groups_of([0], [1.0]), LEAF_LEVEL)
    cited = CitedDocument(b"", b"d", SOURCE.section_paths.__getitem__)
    return encoder.passage(PassageDocument(cited, tree, b"text"), level, 0, 0)


def test_a_leaf_that_the_tree_does_not_have_is_refused():
    tree = tree_of([], [RECORD], [RECORD])
    assert encode_in(tree)
    with pytest.raises(IndexError, match=r"labels\[0\] names leaf 5; it must be below 1"):
        encode_in(tree, leaf=5)


def test_a_level_that_the_tree_does_not_have_is_refused():
    with pytest.raises(IndexError, match="level is 3; it must be below 3"):
        encode_in(tree_of([], [RECORD], [RECORD]), level=3)
    with pytest.raises(IndexError, match="level is 1; it must be below 1"):
        encode_in(tree_of([RECORD]), level=0)


@pytest.mark.parametrize("change", [lambda tree: tree[:-1], lambda tree: tree + b"\0"])
def test_a_tree_of_another_length_is_refused(change):
    with pytest.raises(ValueError, match=r"the tree has 9[57] bytes; its 3 levels take 96"):
        encode_in(change(tree_of([], [RECORD], [RECORD])))


@pytest.mark.parametrize("tree", [b"", b"\3\0\0", b"\3\0\0\0" * 3, b"\xff" * 40])
def test_bytes_that_are_not_a_tree_are_refused(tree):
    with pytest.raises((ValueError, IndexError), match=r"too few for its|level is 2; it must be"):
        encode_in(tree)


def test_children_without_scores_are_refused():
    with pytest.raises(ValueError, match="child_scores has 0 entries; it must have 1, as children"):
        PassageEncoder(np.array([0], np.uint64), groups_of([0], []), LEAF_LEVEL)


def test_pages_without_starts_are_refused():
    with pytest.raises(ValueError, match="page_starts has 1 entries; it must have 2"):
        CitedDocument(b"", b"d", SOURCE.section_paths.__getitem__, [1, 2], [0])
