"""AUTO_MERGE: chooses the chunk that represents each matched leaf.

The algorithm follows LlamaIndex's AutoMergingRetriever: level by level, a parent replaces its
children if enough of them represent matched leaves. In addition, if a chunk lies inside a larger
representative, the larger one represents its leaves, so no text is returned twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from hrag.passages.tree_text import TreePosition
from hrag.values.tree import Tree

MERGED_LEAVES = 16
"""The number of best leaves that decide what is merged.

With all of 200 candidates nearly everything merges, and the passages are as large, and as often
wrong, as those of SMALL_TO_BIG. With 16 leaves, searches found 2 to 10 points more of the gold text
at equal token budgets. Values from 10 to 22 give similar results.
"""


def representatives(
    tree: Tree, leaves: Iterable[int], leaf_level: int, top_level: int, ratio: float
) -> dict[int, TreePosition]:
    """Returns the chunk that represents each leaf, at `top_level` at most, by leaf index.

    No representative lies inside another one. A parent represents the leaves of its children if two
    conditions hold. First, at least `ratio` (above 0, at most 1) of its children represent leaves
    themselves. Second, at least two children do, unless the parent has only one child. Without the
    second condition, one half of a parent would always be enough, because chunk sizes double from
    level to level.
    """
    ancestors = {leaf: leaf for leaf in leaves}  # Each leaf's ancestor at the current level.
    positions_by_leaf = {leaf: (leaf_level, leaf) for leaf in ancestors}
    merged_chunks = set(ancestors)
    for level in range(leaf_level, top_level):
        parents = {index: tree.record(level, index).parent for index in set(ancestors.values())}
        matched_children = Counter(parents[index] for index in merged_chunks)
        merged_chunks = {
            parent
            for parent, count in matched_children.items()
            if _merges(count, tree.record(level + 1, parent).child_count, ratio)
        }
        if not merged_chunks:
            break
        ancestors = {leaf: parents[index] for leaf, index in ancestors.items()}
        positions_by_leaf |= {
            leaf: (level + 1, index) for leaf, index in ancestors.items() if index in merged_chunks
        }
    positions = set(positions_by_leaf.values())
    if len(positions) < 2 or max(positions)[0] == leaf_level:
        # All are leaves or there is only one, so none can lie inside another one.
        return positions_by_leaf
    holders = _holders(tree, sorted(positions))
    return {leaf: holders[position] for leaf, position in positions_by_leaf.items()}


def leaves_inside(tree: Tree, position: TreePosition, below: range, leaf_level: int) -> range:
    """Returns the indexes of the leaves whose spans lie completely inside a chunk's span.

    These are the leaves `below` it in the tree, and the neighbours of those leaves that lie in the
    part where the chunk overlaps another one.
    """
    chunk = tree.record(*position)
    start, end = below.start, below.stop
    while start and tree.record(leaf_level, start - 1).byte_start >= chunk.byte_start:
        start -= 1
    leaves = tree.counts[leaf_level]
    while end < leaves and tree.record(leaf_level, end).byte_end <= chunk.byte_end:
        end += 1
    return range(start, end)


def _merges(matched: int, children: int, ratio: float) -> bool:
    """Returns True if a parent with `matched` matched children replaces them."""
    return matched >= max(ratio * children, min(children, 2))


def _holders(tree: Tree, positions: Sequence[TreePosition]) -> dict[TreePosition, TreePosition]:
    """Returns, for each chunk, the chunk that completely contains it.

    That is the chunk itself, or a larger one whose overlap contains it.
    """

    def extent(position: TreePosition) -> tuple[int, int]:
        record = tree.record(*position)
        return record.byte_start, -record.byte_end

    holders: dict[TreePosition, TreePosition] = {}
    holder, holder_end = None, -1
    for position in sorted(positions, key=extent):
        end = tree.record(*position).byte_end
        if holder is None or end > holder_end:
            holder, holder_end = position, end
        holders[position] = holder
    return holders
