"""AUTO_MERGE returns the chunks that its definition says, on trees of any shape."""

from dataclasses import replace

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.passages.auto_merge import leaves_inside, representatives
from hrag.passages.tree_text import TreePosition
from hrag.values.tree import Tree
from indexer_svc.chunker import build_tree
from tests.property.strategies import documents, tree_settings
from tests.property.test_tree import fifty_examples

ratios = st.sampled_from([0.01, 0.5, 1.0]) | st.floats(0.01, 1.0)


def _represents_its_leaves(
    tree: Tree, position: TreePosition, leaves: set[int], leaf_level: int, ratio: float
) -> bool:
    """Returns True if a chunk represents its leaves, by the definition of AUTO_MERGE.

    A leaf does if it has matched. Another chunk does if at least the share `ratio` of its children
    represent their leaves. But one child of several is never enough.
    """
    level, index = position
    if level == leaf_level:
        return index in leaves
    record = tree.record(level, index)
    children = range(record.first_child, record.first_child + record.child_count)
    representing = sum(
        _represents_its_leaves(tree, (level - 1, child), leaves, leaf_level, ratio)
        for child in children
    )
    if record.child_count > 1 and representing == 1:
        return False
    return representing >= ratio * record.child_count


@st.composite
def matched_leaves(draw: st.DrawFn, count: int) -> set[int]:
    """Draws indexes of matched leaves: one to six consecutive ones, and up to three others."""
    indexes = st.integers(0, count - 1)
    first, scattered = draw(indexes), draw(st.sets(indexes, max_size=3))
    return {*range(first, min(first + draw(st.integers(1, 6)), count)), *scattered}


@given(documents, tree_settings(), ratios, st.data())
@hypothesis_settings(
    max_examples=300
)  # Only few draws have a chunk that is inside another chunk's overlap.
def test_the_highest_chunk_with_enough_matches_represents_its_leaves(parsed, settings, ratio, data):
    # With this embedding level, most leaves have parents.
    settings, leaf_level = replace(settings, embedding_level=0), 0
    tree = build_tree(parsed, settings)
    leaves = data.draw(matched_leaves(tree.counts[leaf_level]))
    top = data.draw(st.integers(leaf_level, settings.top_level))
    chunks = representatives(tree, leaves, leaf_level, top, ratio)
    assert set(chunks) == leaves

    ancestors = tree.ancestors(leaf_level)
    highest = {
        leaf: max(
            (level, int(ancestors[level - leaf_level, leaf]))
            for level in range(leaf_level, top + 1)
            if _represents_its_leaves(
                tree, (level, int(ancestors[level - leaf_level, leaf])), leaves, leaf_level, ratio
            )
        )
        for leaf in leaves
    }
    for leaf, position in chunks.items():
        assert position in highest.values()
        inner, outer = tree.record(*highest[leaf]), tree.record(*position)
        assert outer.byte_start <= inner.byte_start
        assert inner.byte_end <= outer.byte_end

    records = [tree.record(*position) for position in set(chunks.values())]
    for record in records:
        inside = [
            other
            for other in records
            if record.byte_start <= other.byte_start and other.byte_end <= record.byte_end
        ]
        assert inside == [record]


@given(documents, tree_settings())
@fifty_examples
def test_the_leaves_inside_a_chunk_are_those_whose_spans_are_inside(parsed, settings):
    tree, leaf_level = build_tree(parsed, settings), settings.embedding_level
    leaves = [tree.record(leaf_level, index) for index in range(tree.counts[leaf_level])]
    for level in range(leaf_level, settings.top_level + 1):
        for index in range(tree.counts[level]):
            chunk = tree.record(level, index)
            below = tree.descendants((level, index), leaf_level)
            assert list(leaves_inside(tree, (level, index), below, leaf_level)) == [
                leaf_index
                for leaf_index, leaf in enumerate(leaves)
                if chunk.byte_start <= leaf.byte_start and leaf.byte_end <= chunk.byte_end
            ]
