"""AUTO_MERGE equals its definition, on trees of any shape."""

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


def _stands(
    tree: Tree, place: TreePosition, leaves: set[int], leaf_level: int, ratio: float
) -> bool:
    """Returns True if a chunk stands for its leaves, by definition.

    It does if it is a leaf that matched, or if enough of its children stand for their leaves.
    """
    level, index = place
    if level == leaf_level:
        return index in leaves
    record = tree.record(level, index)
    children = range(record.first_child, record.first_child + record.child_count)
    standing = sum(_stands(tree, (level - 1, n), leaves, leaf_level, ratio) for n in children)
    if record.child_count > 1 and standing == 1:
        return False
    return standing >= ratio * record.child_count


@st.composite
def matched_leaves(draw: st.DrawFn, count: int) -> set[int]:
    """Some of `count` leaves: a few consecutive ones, and up to three at any place."""
    numbers = st.integers(0, count - 1)
    first, scattered = draw(numbers), draw(st.sets(numbers, max_size=3))
    return {*range(first, min(first + draw(st.integers(1, 6)), count)), *scattered}


@given(documents, tree_settings(), ratios, st.data())
@hypothesis_settings(max_examples=300)  # Few draws have a chunk inside another's overlap.
def test_the_highest_chunk_with_enough_matches_represents_its_leaves(parsed, settings, ratio, data):
    settings, leaf_level = replace(settings, embedding_level=0), 0  # So most leaves have parents.
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
            if _stands(
                tree, (level, int(ancestors[level - leaf_level, leaf])), leaves, leaf_level, ratio
            )
        )
        for leaf in leaves
    }
    for leaf, place in chunks.items():
        assert place in highest.values()
        inner, outer = tree.record(*highest[leaf]), tree.record(*place)
        assert outer.byte_start <= inner.byte_start
        assert inner.byte_end <= outer.byte_end

    records = [tree.record(*place) for place in set(chunks.values())]
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
                number
                for number, leaf in enumerate(leaves)
                if chunk.byte_start <= leaf.byte_start and leaf.byte_end <= chunk.byte_end
            ]
