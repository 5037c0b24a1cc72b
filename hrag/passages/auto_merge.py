"""AUTO_MERGE: which chunk stands for each leaf that matched. Pure: a tree in, chunks out.

The idea is LlamaIndex's AutoMergingRetriever: a parent of which enough children stand for
what matched takes their place, level by level. Here a chunk that comes to lie inside a
larger one gives its leaves to that one, so no text is returned twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from hrag.tree import Tree

Place = tuple[int, int]
"""A chunk's level and index."""


def standing_for(
    tree: Tree, leaves: Iterable[int], leaf_level: int, top_level: int, ratio: float
) -> dict[int, Place]:
    """The chunk, at `top_level` at most, that stands for each leaf; none lies inside another.

    A parent stands for its children when at least `ratio` of them, over 0 and up to 1,
    stand for leaves of their own; and at least two of them, unless it has but one. Else
    one half of a parent would always do, where sizes double from level to level.
    """
    current = {leaf: leaf for leaf in leaves}  # A leaf's ancestor at the level looked at.
    standing = {leaf: (leaf_level, leaf) for leaf in current}
    whole = set(current)
    for level in range(leaf_level, top_level):
        matched = Counter(tree.record(level, index).parent for index in whole)
        whole = {
            parent
            for parent, count in matched.items()
            if _enough(count, tree.record(level + 1, parent).child_count, ratio)
        }
        if not whole:
            break
        current = {leaf: tree.record(level, index).parent for leaf, index in current.items()}
        standing |= {leaf: (level + 1, index) for leaf, index in current.items() if index in whole}
    holders = _holders(tree, sorted(set(standing.values())))
    return {leaf: holders[place] for leaf, place in standing.items()}


def _enough(matched: int, children: int, ratio: float) -> bool:
    return matched >= max(ratio * children, min(children, 2))


def _holders(tree: Tree, places: Sequence[Place]) -> dict[Place, Place]:
    """For each chunk the one that holds all of it: another's overlap may, or itself."""

    def extent(place: Place) -> tuple[int, int]:
        record = tree.record(*place)
        return record.byte_start, -record.byte_end

    holders: dict[Place, Place] = {}
    furthest, reach = None, -1
    for place in sorted(places, key=extent):
        end = tree.record(*place).byte_end
        if furthest is None or end > reach:
            furthest, reach = place, end
        holders[place] = furthest
    return holders
