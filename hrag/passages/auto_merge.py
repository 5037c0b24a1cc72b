"""AUTO_MERGE: chooses, for each matched leaf, the chunk that is returned for it.

This chunk is called the leaf's representative: the leaf itself or one of its ancestors. The
algorithm follows LlamaIndex's AutoMergingRetriever: level by level, a parent replaces its children
if enough of the children represent matched leaves. In addition, if a representative lies completely
inside a larger one, the larger one also represents the leaves of the smaller one. So no text is
returned twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from hrag.passages.tree_text import TreePosition
from hrag.values.tree import Tree

MERGED_LEAVES = 16
"""Only this many of a search's best leaves decide which parents replace their children.

If all of 200 candidates decide, nearly every parent replaces its children, and the passages are as
large, and as often wrong, as those of SMALL_TO_BIG. With 16 leaves, searches with a small token
budget found 2 to 10 percentage points more of the gold text than with 200. Values from 10 to 22
give similar results.
"""


def representatives(
    tree: Tree, leaves: Iterable[int], leaf_level: int, top_level: int, ratio: float
) -> dict[int, TreePosition]:
    """Returns, for the index of each matched leaf, the position of the chunk that represents it.

    This chunk, its representative, is the leaf itself or an ancestor at `top_level` or below. No
    representative lies inside another one. A parent replaces its children as a representative if
    two conditions hold. First, at least the share `ratio` (above 0, at most 1) of its children
    represent matched leaves. Second, at least two of its children do so, or its only child does.
    The second condition is needed because chunk sizes usually double from level to level. Most
    parents then have two children, and one child alone would reach a `ratio` of 0.5.
    """
    # The ancestor of each matched leaf, at the level that the loop has reached.
    ancestors = {leaf: leaf for leaf in leaves}
    positions_by_leaf = {leaf: (leaf_level, leaf) for leaf in ancestors}
    merged_chunks = set(ancestors)
    for level in range(leaf_level, top_level):
        parents = {index: tree.record(level, index).parent for index in set(ancestors.values())}
        matched_children = Counter(parents[index] for index in merged_chunks)
        merged_chunks = {
            parent
            for parent, count in matched_children.items()
            if _replaces_children(count, tree.record(level + 1, parent).child_count, ratio)
        }
        if not merged_chunks:
            break
        ancestors = {leaf: parents[index] for leaf, index in ancestors.items()}
        positions_by_leaf |= {
            leaf: (level + 1, index) for leaf, index in ancestors.items() if index in merged_chunks
        }
    positions = set(positions_by_leaf.values())
    if len(positions) < 2 or max(positions)[0] == leaf_level:
        # Either all representatives are leaves, or there is only one representative. So none of
        # them can lie inside another one.
        return positions_by_leaf
    containers = _containing_chunks(tree, sorted(positions))
    return {leaf: containers[position] for leaf, position in positions_by_leaf.items()}


def leaves_inside(tree: Tree, position: TreePosition, below: range, leaf_level: int) -> range:
    """Returns the indexes of the leaves whose spans lie completely inside a chunk's span.

    `below` are the indexes of the leaves that are the chunk's descendants in the tree; all of them
    are inside. Leaves next to them are also inside if they lie in the text that the chunk shares
    with the chunk before or after it.
    """
    chunk = tree.record(*position)
    start, end = below.start, below.stop
    while start and tree.record(leaf_level, start - 1).byte_start >= chunk.byte_start:
        start -= 1
    leaves = tree.counts[leaf_level]
    while end < leaves and tree.record(leaf_level, end).byte_end <= chunk.byte_end:
        end += 1
    return range(start, end)


def _replaces_children(matched_count: int, child_count: int, ratio: float) -> bool:
    """Returns True if enough children of a parent matched, so that the parent replaces them.

    `matched_count` of the parent's `child_count` children represent matched leaves. These must be
    at least the share `ratio` of the children. If the parent has several children, they must also
    be at least two.
    """
    return matched_count >= max(ratio * child_count, min(child_count, 2))


def _containing_chunks(
    tree: Tree, positions: Sequence[TreePosition]
) -> dict[TreePosition, TreePosition]:
    """Returns, for each of the chunks at `positions`, which of these chunks contains it completely.

    In most cases this is the chunk itself. Otherwise it is a larger chunk that is not an ancestor.
    Such a chunk shares text with the chunk before or after it, and this text contains the smaller
    chunk.
    """

    def start_then_longest(position: TreePosition) -> tuple[int, int]:
        record = tree.record(*position)
        return record.byte_start, -record.byte_end

    containers: dict[TreePosition, TreePosition] = {}
    container, container_end = None, -1
    for position in sorted(positions, key=start_then_longest):
        end = tree.record(*position).byte_end
        if container is None or end > container_end:
            container, container_end = position, end
        containers[position] = container
    return containers
