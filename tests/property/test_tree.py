"""The chunk tree keeps its invariants, for any document and any settings."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hrag.engine.embedded.store.queries import address_of, find_collection, find_document
from hrag.text import tokens
from hrag.types import TreeSettings
from hrag.values.ids import ChunkId
from hrag.values.tree import NONE, ParsedText, Section, Tree
from indexer_svc.boundaries import CUT_SECTION, Boundaries
from indexer_svc.boundaries import boundaries_of as section_boundaries
from indexer_svc.chunker import Level, build_tree
from tests.conftest import Engine
from tests.property.strategies import documents, text_of, tree_settings
from tests.support.documents.fakes import collection_settings, prepared

# The digest of a tree. It changes only if the chunker cuts documents differently. The version in
# the content hash must then change, too.
GOLDEN = "c133b300ec24678209085906c1bb3bc4ed63ccbccfdb8b115a515924c024e5ec"
# A code point of several tokens may have this many consecutive boundaries inside it. No cut is
# allowed there.
INSIDE_CODE_POINT = 3

fifty_examples = hypothesis_settings(max_examples=50)
few_examples = hypothesis_settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True)
class Spans:
    """The first token and the end of each chunk of a level, counted in tokens of the document."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, tree: Tree, level: int) -> "Spans":
        starts = tree.level(level)["token_start"].astype(np.int64)
        return cls(starts, starts + tree.level(level)["token_count"])

    @property
    def shared(self) -> NDArray[np.int64]:
        """The count of tokens that each chunk shares with the next chunk."""
        return self.ends[:-1] - self.starts[1:]


def boundaries_of(text: str) -> NDArray[np.int64]:
    """Returns the byte offset of the boundary before each token, and of the end of the text."""
    encoding = tokens.encoding()
    ids = encoding.encode(text, disallowed_special=())
    lengths = [len(encoding.decode_single_token_bytes(token)) for token in ids]
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def bounds_of(parsed: ParsedText, settings: TreeSettings) -> Boundaries:
    """Returns the ranks of boundaries and the ends of blocks by which the chunker cuts.

    `test_boundaries.py` tests that they are right.
    """
    offsets = boundaries_of(parsed.text).astype(np.uint32)
    return section_boundaries(parsed, parsed.text.encode(), offsets, settings.leaf_tokens)


def section_borders(parsed: ParsedText) -> list[int]:
    """Returns the boundaries at which sections begin, with those at both ends of the text."""
    boundaries = boundaries_of(parsed.text)
    starts = [len(parsed.text[: part.char_start].encode()) for part in parsed.sections]
    inner = np.flatnonzero(np.isin(boundaries, starts)).tolist()
    return sorted({0, *inner, len(boundaries) - 1})


@fifty_examples
@given(documents, tree_settings())
def test_every_level_covers_the_document_in_order_with_chunks_of_its_size(parsed, settings):
    tree = build_tree(parsed, settings)
    assert len(tree.counts) == len(settings.level_sizes)
    for level, size in enumerate(settings.level_sizes):
        spans = Spans.of(tree, level)
        assert spans.starts[0] == 0
        assert spans.ends[-1] == len(boundaries_of(parsed.text)) - 1
        assert ((spans.ends - spans.starts > 0) & (spans.ends - spans.starts <= size)).all()
        assert (np.diff(spans.starts) > 0).all()
        assert (np.diff(spans.ends) > 0).all()
        assert (spans.shared >= 0).all()
    assert tree.problems(settings.level_sizes) == []


@fifty_examples
@given(documents, tree_settings())
def test_neighbouring_chunks_share_the_overlap_within_its_slack(parsed, settings):
    tree, bounds = build_tree(parsed, settings), bounds_of(parsed, settings)
    ranks = np.frombuffer(bounds.ranks, np.uint8)
    for level_index, size in enumerate(settings.level_sizes):
        level = Level.of(size, settings.overlap_ratio)
        assert level.overlap == round(size * settings.overlap_ratio)
        assert level.slack <= max(2, level.overlap / 4)
        spans = Spans.of(tree, level_index)
        if level.overlap == 0:
            assert (spans.shared == 0).all()
            continue
        assert (spans.shared <= level.overlap + level.slack).all()
        # The last chunk of a block may have less overlap. A chunk whose overlap would contain a
        # heading begins at the heading.
        ends_block = np.isin(spans.ends[1:], bounds.block_ends)
        at_heading = ranks[spans.starts[1:]] == CUT_SECTION
        usual = spans.shared[~ends_block & ~at_heading]
        assert (usual >= level.overlap - level.slack - INSIDE_CODE_POINT).all()


@fifty_examples
@given(documents, tree_settings())
def test_a_chunk_has_one_parent_and_lies_inside_it(parsed, settings):
    tree = build_tree(parsed, settings)
    for level in range(tree.top_level):
        children, parents = tree.level(level), tree.level(level + 1)
        visited = []
        for index, parent in enumerate(parents):
            first, count = int(parent["first_child"]), int(parent["child_count"])
            assert count > 0
            children_of_parent = children[first : first + count]
            assert (children_of_parent["parent"] == index).all()
            for unit in ("byte", "char"):
                starts, ends = (
                    children_of_parent[f"{unit}_start"],
                    children_of_parent[f"{unit}_end"],
                )
                assert (starts >= parent[f"{unit}_start"]).all()
                assert (ends <= parent[f"{unit}_end"]).all()
            visited += range(first, first + count)
        assert visited == list(range(len(children)))
    assert (tree.level(0)["child_count"] == 0).all()
    assert (tree.level(tree.top_level)["parent"] == NONE).all()


@fifty_examples
@given(documents, tree_settings())
def test_spans_agree_in_tokens_bytes_and_code_points(parsed, settings):
    tree, raw = build_tree(parsed, settings), parsed.text.encode()
    boundaries = boundaries_of(parsed.text)
    assert boundaries[-1] == len(raw)
    for level in range(len(tree.counts)):
        spans, chunks = Spans.of(tree, level), tree.level(level)
        assert (chunks["byte_start"] == boundaries[spans.starts]).all()
        assert (chunks["byte_end"] == boundaries[spans.ends]).all()
        for chunk in chunks:
            content = raw[chunk["byte_start"] : chunk["byte_end"]].decode()
            assert content == parsed.text[chunk["char_start"] : chunk["char_end"]]
            assert raw[chunk["byte_end"] - 1 : chunk["byte_end"] + 1] != b"\r\n"


@fifty_examples
@given(documents, tree_settings())
def test_level_0_is_cut_at_the_best_boundary_near_its_limit(parsed, settings):
    spans, bounds = Spans.of(build_tree(parsed, settings), 0), bounds_of(parsed, settings)
    level = Level.of(settings.level_sizes[0], settings.overlap_ratio)
    quarter = level.size // 4
    previous = 0
    for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True):
        block_end = next(end for end in bounds.block_ends if end > start)
        if block_end - start <= level.size:
            assert end == block_end
        else:
            # At least a quarter of a chunk is left for the block's last chunk, with its overlap.
            limit = min(start + level.size, block_end - max(0, quarter - level.overlap))
            low = max(limit - quarter, previous + 1)
            window = bounds.ranks[low : limit + 1]
            assert end == low + window.rindex(max(window))
        previous = end


@fifty_examples
@given(documents, tree_settings())
def test_level_0_starts_at_a_heading_or_the_best_boundary_near_the_overlap(parsed, settings):
    spans, bounds = Spans.of(build_tree(parsed, settings), 0), bounds_of(parsed, settings)
    level = Level.of(settings.level_sizes[0], settings.overlap_ratio)
    for end, start in zip(spans.ends, spans.starts[1:], strict=False):
        if end in bounds.block_ends:
            assert start == end
            continue
        low, high = end - level.overlap - level.slack, min(end - level.overlap + level.slack, end)
        window = bounds.ranks[low : high + 1] if level.overlap else bounds.ranks[end : end + 1]
        heading = bounds.ranks.rfind(CUT_SECTION, low, end + 1) if level.overlap else -1
        assert start == heading or (heading < 0 and bounds.ranks[start] == max(window))


@fifty_examples
@given(documents, tree_settings())
def test_a_leaf_spans_two_sections_only_if_one_of_them_is_tiny(parsed, settings):
    tiny = settings.leaf_tokens // 8
    borders = section_borders(parsed)
    spans = Spans.of(build_tree(parsed, settings), settings.embedding_level)
    for start, end in zip(spans.starts, spans.ends, strict=True):
        for before, border, after in zip(borders, borders[1:], borders[2:], strict=False):
            if start < border < end:
                assert min(border - before, after - border) < tiny


_OUTLINES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=12)


@fifty_examples
@given(_OUTLINES, tree_settings())
@example(  # Two levels have nearly equal sizes, so a chunk can grow by three tokens only.
    [(1, 1)] * 5 + [(1, 6), (2, 2)],
    TreeSettings((32, 33, 34, 43, 44, 47, 296), overlap_ratio=0.5, embedding_level=6),
)
def test_no_leaf_ends_between_a_heading_and_its_text(outline, settings):
    """The drawn documents have sections with a heading and some short sentences each."""
    text, sections, heading_ends = "", [], set[int]()
    for number, (depth, count) in enumerate(outline):
        sections.append(Section(f"Heading {number}", depth, len(text)))
        text += "#" * depth + f" Heading {number}\n\n"
        heading_ends.add(len(text))
        text += "Some words. " * count + "\n\n"
    tree = build_tree(ParsedText(text, tuple(sections)), settings)
    for level in range(settings.embedding_level + 1):
        assert not heading_ends & {*tree.level(level)["char_end"].tolist()}


@fifty_examples
@given(documents, tree_settings())
def test_a_chunk_has_the_innermost_section_that_contains_most_of_it(parsed, settings):
    tree, length = build_tree(parsed, settings), len(parsed.text)
    for chunk in np.concatenate([tree.level(level) for level in range(len(tree.counts))]):
        start, end = int(chunk["char_start"]), int(chunk["char_end"])
        containing = []
        for index, section in enumerate(parsed.sections):
            later = parsed.sections[index + 1 :]
            stop = next((s.char_start for s in later if s.depth <= section.depth), length)
            if 2 * (min(end, stop) - max(start, section.char_start)) > end - start:
                containing.append(index)
        assert chunk["section"] == (containing[-1] if containing else NONE)


@fifty_examples
@given(documents, tree_settings())
def test_the_same_document_and_settings_give_the_same_tree(parsed, settings):
    packed = build_tree(parsed, settings).to_bytes()
    assert build_tree(parsed, settings).to_bytes() == packed
    tree = Tree(packed)
    assert tree.to_bytes() == packed
    levels = [tree.level(level) for level in range(len(tree.counts))]
    assert Tree.from_levels(levels).to_bytes() == packed


@fifty_examples
@given(documents, tree_settings())
def test_the_ancestors_of_every_leaf_are_found_by_following_parents(parsed, settings):
    tree, leaf_level = build_tree(parsed, settings), settings.embedding_level
    rows = tree.ancestors(leaf_level)
    assert rows.shape == (tree.top_level - leaf_level + 1, tree.counts[leaf_level])
    for leaf in range(tree.counts[leaf_level]):
        ancestor = leaf
        for up, level in enumerate(range(leaf_level, tree.top_level + 1)):
            assert rows[up, leaf] == ancestor
            ancestor = tree.record(level, ancestor).parent


@fifty_examples
@given(documents, tree_settings())
def test_the_descendants_of_a_chunk_are_the_leaves_that_have_it_as_an_ancestor(parsed, settings):
    tree, bottom = build_tree(parsed, settings), settings.embedding_level
    for up, ancestors in enumerate(tree.ancestors(bottom).tolist()):
        for index in range(tree.counts[bottom + up]):
            below = tree.descendants((bottom + up, index), bottom)
            assert list(below) == [
                leaf for leaf, ancestor in enumerate(ancestors) if ancestor == index
            ]


@few_examples
@given(tree_settings())
@example(TreeSettings())
def test_a_short_document_has_one_chunk_at_every_level(settings):
    for text in ("x", "🙂", "两个小块。", "A line.\r\n"):
        tree = build_tree(ParsedText(text), settings)
        assert tree.counts == (1,) * len(settings.level_sizes)
        assert tree.record(tree.top_level, 0)[:4] == (0, len(text.encode()), 0, len(text))


@few_examples
@given(documents, tree_settings())
def test_the_stored_tree_equals_the_tree_that_was_built(engine: Engine, parsed, settings):
    if engine.writer.collections("t", 1, "").items:
        engine.writer.delete_collection("t", "c")
    whole_settings = collection_settings(settings)
    document = prepared("d", parsed, whole_settings)
    engine.writer.create_collection("t", "c", whole_settings)
    engine.writer.put(engine.writer.open("t", "c"), document)
    with engine.store.read() as txn:
        collection_id = find_collection(txn, "t", "c")
        ordinal, _ = find_document(txn, collection_id, "d")
        address = address_of(txn, collection_id, ordinal)
        stored = Tree(bytes(txn.contents.tree(address)))
    assert stored.to_bytes() == document.tree.to_bytes()
    with engine.reader.snapshot("t", "c") as snapshot:
        for level, count in enumerate(stored.counts):
            content = snapshot.chunk(ChunkId("d", level, count - 1)).chunk.content
            assert parsed.text.endswith(content)


def test_the_tree_is_the_same_on_every_machine():
    text = "One. Two! " * 60 + "\n\n" + "中文句子。" * 60 + "🙂e\u0301 " * 40 + "line\r\n" * 50
    starts = [0, text.index("中"), text.index("🙂"), text.index("line")]
    sections = tuple(Section("A heading", depth, at) for depth, at in enumerate(starts, start=1))
    parsed = ParsedText(text, sections)
    built = build_tree(parsed, TreeSettings((32, 64, 100), 0.2, 1)).to_bytes()
    assert hashlib.sha256(built).hexdigest() == GOLDEN


@pytest.mark.parametrize("kind", ["english", "chinese", "unbroken", "blank"])
def test_a_document_of_300_000_tokens_keeps_the_invariants(kind):
    settings = TreeSettings()
    sample = text_of(kind, 2000)
    copies = 300_000 // len(tokens.encode(sample)) + 1
    parsed = ParsedText("\n".join([sample] * copies))
    tree = build_tree(parsed, settings)
    last = tree.record(0, tree.counts[0] - 1)
    assert last.token_start + last.token_count >= 300_000
    assert last.byte_end == len(parsed.text.encode())
    assert tree.problems(settings.level_sizes) == []
