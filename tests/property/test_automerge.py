"""AUTO_MERGE against its definition, on trees of every shape."""

from dataclasses import replace

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.passages.auto_merge import leaves_inside, representatives
from hrag.passages.tree_text import TreePosition
from hrag.values.tree import Tree
from indexer_svc.chunker import build_tree
from tests.property.strategies import documents, tree_settings
from tests.property.test_tree import many

ratios = st.sampled_from([0.01, 0.5, 1.0]) | st.floats(0.01, 1.0)


def _stands(
    tree: Tree, place: TreePosition, leaves: set[int], leaf_level: int, ratio: float
) -> bool:
    """Whether a chunk is a leaf that matched, or enough of its children stand themselves."""
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
    """Some of so many leaves: a few that follow each other, and any others."""
    numbers = st.integers(0, count - 1)
    first, others = draw(numbers), draw(st.sets(numbers, max_size=3))
    return {*range(first, min(first + draw(st.integers(1, 6)), count)), *others}


@given(documents, tree_settings(), ratios, st.data())
@hypothesis_settings(max_examples=300)  # Few draws have a chunk inside another's overlap.
def test_the_highest_chunk_stands_of_which_enough_matched(parsed, settings, ratio, data):
    settings, leaf_level = replace(settings, embedding_level=0), 0  # So most have parents.
    tree = build_tree(parsed, settings)
    leaves = data.draw(matched_leaves(tree.counts[leaf_level]))
    top = data.draw(st.integers(leaf_level, settings.top_level))
    found = representatives(tree, leaves, leaf_level, top, ratio)
    assert set(found) == leaves

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
    for leaf, place in found.items():
        assert place in highest.values()
        own, holder = tree.record(*highest[leaf]), tree.record(*place)
        assert holder.byte_start <= own.byte_start
        assert own.byte_end <= holder.byte_end

    chosen = [tree.record(*place) for place in set(found.values())]
    for one in chosen:
        inside = [
            other
            for other in chosen
            if one.byte_start <= other.byte_start and other.byte_end <= one.byte_end
        ]
        assert inside == [one]


@given(documents, tree_settings())
@many
def test_leaves_inside_a_chunk_are_those_whose_span_is(parsed, settings):
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
