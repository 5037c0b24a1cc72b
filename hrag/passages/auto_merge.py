"""AUTO_MERGE: which chunk represents each leaf that matched.

After LlamaIndex's AutoMergingRetriever: a parent replaces its children where enough of them
represent matched leaves, level by level. In addition, a chunk that lies inside a larger
representative hands its leaves to it, so no text is returned twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from hrag.passages.tree_text import TreePosition
from hrag.values.tree import Tree

MERGED_LEAVES = 16
"""How many of the best leaves decide what is merged.

With all of 200 candidates nearly everything merges, and passages are as large, and as often
wrong, as those of SMALL_TO_BIG: 16 found 2 to 10 points more of gold text at equal budgets;
10 to 22 are alike.
"""


def representatives(
    tree: Tree, leaves: Iterable[int], leaf_level: int, top_level: int, ratio: float
) -> dict[int, TreePosition]:
    """Returns for each leaf, by index, the chunk at `top_level` at most that represents it.

    No representative lies inside another. A parent represents its children's leaves if at
    least `ratio` (over 0, up to 1) of its children represent leaves themselves, and at least
    two do unless it has only one. Without the second rule, one half of a parent would always
    be enough, because sizes double from level to level.
    """
    ancestors = {leaf: leaf for leaf in leaves}  # At the level in hand.
    chosen = {leaf: (leaf_level, leaf) for leaf in ancestors}
    merged = set(ancestors)
    for level in range(leaf_level, top_level):
        parents = {index: tree.record(level, index).parent for index in set(ancestors.values())}
        matched = Counter(parents[index] for index in merged)
        merged = {
            parent
            for parent, count in matched.items()
            if _enough(count, tree.record(level + 1, parent).child_count, ratio)
        }
        if not merged:
            break
        ancestors = {leaf: parents[index] for leaf, index in ancestors.items()}
        chosen |= {leaf: (level + 1, index) for leaf, index in ancestors.items() if index in merged}
    positions = set(chosen.values())
    if len(positions) < 2 or max(positions)[0] == leaf_level:
        return chosen  # None can lie inside another.
    holders = _holders(tree, sorted(positions))
    return {leaf: holders[position] for leaf, position in chosen.items()}


def leaves_inside(tree: Tree, position: TreePosition, below: range, leaf_level: int) -> range:
    """Returns the leaves, by index, whose spans lie wholly inside a chunk's.

    Those `below` it in the tree, and neighbours of these that its overlap contains.
    """
    chunk = tree.record(*position)
    first, end = below.start, below.stop
    while first and tree.record(leaf_level, first - 1).byte_start >= chunk.byte_start:
        first -= 1
    leaves = tree.counts[leaf_level]
    while end < leaves and tree.record(leaf_level, end).byte_end <= chunk.byte_end:
        end += 1
    return range(first, end)


def _enough(matched: int, children: int, ratio: float) -> bool:
    return matched >= max(ratio * children, min(children, 2))


def _holders(tree: Tree, positions: Sequence[TreePosition]) -> dict[TreePosition, TreePosition]:
    """For each chunk the one that contains all of it: itself, or one whose overlap does."""

    def extent(position: TreePosition) -> tuple[int, int]:
        record = tree.record(*position)
        return record.byte_start, -record.byte_end

    holders: dict[TreePosition, TreePosition] = {}
    furthest, reach = None, -1
    for position in sorted(positions, key=extent):
        end = tree.record(*position).byte_end
        if furthest is None or end > reach:
            furthest, reach = position, end
        holders[position] = furthest
    return holders
