"""The twin of `_graph.pyx`: it uses Python lists of links, and numpy.

It follows the same links and returns the same items. Its scores are computed in float64, so they
may differ from those of the kernel in the last bits.
"""

import struct

import numpy as np
from numpy.typing import NDArray

# The header of a file of hnswlib; `_graph.pyx` names its fields.
HEADER = struct.Struct("<6QiI3QdQ")
# The constants of the 8-bit codes that a search compares instead of vectors; see `_graph.pyx`.
MAX_CODE = 127
MAX_INT16 = 32767
MAX_INT32 = 0x7FFFFFFF
WANTED_A_SPARE = 16
MEAN_OF = 1024
SMALLEST, LARGEST = 1e-30, 3e38


class Graph:
    """The twin of `hrag_fast.Graph`, with Python lists of links and exact scores in float64.

    It implements algorithms 5 (K-NN-SEARCH) and 2 (SEARCH-LAYER) of Malkov and Yashunin, arXiv
    1603.09320. Distances are negated inner products of codes, with the same bits as in the kernel:
    they determine the order in which links are followed.
    """

    def __init__(self, file: bytes, path: str | None = None) -> None:
        """Reads a valid index; see `_graph.pyi`. All paths except "float32" are the same here."""
        fields = HEADER.unpack_from(file)
        (
            _,
            _,
            count,
            element_bytes,
            label_offset,
            data_offset,
            self._top,
            self._entry,
            links,
            links0,
        ) = fields[:10]
        elements = np.frombuffer(file, np.uint8, count * element_bytes, HEADER.size)
        elements = elements.reshape(count, element_bytes)
        self._labels = elements[:, label_offset:].copy().view("<u8")[:, 0]
        vectors = elements[:, data_offset:label_offset].copy().view("<f4")
        self._vectors = vectors.astype(np.float64)
        self._by_codes = path != "float32"
        self._codes, self._scales = _rounded(vectors - _mean(vectors), MAX_CODE)
        words = elements[:, : 4 * (links0 + 1)].copy().view("<u4")
        self._links = [[_links_in(row)] for row in words]
        at = HEADER.size + count * element_bytes
        for internal_id in range(count):
            (size,) = struct.unpack_from("<I", file, at)
            upper = np.frombuffer(file, "<u4", size // 4, at + 4).reshape(-1, links + 1)
            self._links[internal_id] += [_links_in(row) for row in upper]
            at += 4 + size

    def __len__(self) -> int:
        """Returns the number of vectors."""
        return len(self._labels)

    def search(self, query: NDArray[np.float32], ef: int) -> "GraphSearch":
        """Begins an ANN search; see `_graph.pyi`."""
        return GraphSearch(self, query, ef)

    def ef_for(self, count: int) -> int:
        """Returns the lowest allowed ef for `count` items.

        With codes, it is more than `count`, because codes may rank the last items wrongly.
        """
        return count + 1 + count // WANTED_A_SPARE if self._by_codes else count

    def nearest(
        self, query: NDArray[np.float32], count: int, ef: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Returns the `count` best of the `ef` nearest items, with their inner products."""
        distances = self._distances(query)
        current = self._entry
        for level in range(self._top, 0, -1):
            while True:
                nearest = min([current, *self._links[current][level]], key=distances.__getitem__)
                if nearest == current:
                    break
                current = nearest
        candidates = self._search_layer(distances, current, ef)
        scores = self._vectors[candidates] @ query.astype(np.float64)
        best = sorted(range(len(candidates)), key=lambda i: (-scores[i], candidates[i]))[:count]
        items = self._labels[[candidates[i] for i in best]]
        return items.astype(np.uint32), scores[best].astype(np.float32)

    def scores(self, query: NDArray[np.float32], items: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Returns the exact inner product of the query with each item; see `_graph.pyi`."""
        internal_ids = [int(np.flatnonzero(self._labels == item)[0]) for item in items]
        return (self._vectors[internal_ids] @ query.astype(np.float64)).astype(np.float32)

    def _distances(self, query: NDArray[np.float32]) -> list[float]:
        """Returns the distance of every element from the query, computed by codes or by vectors."""
        if not self._by_codes:
            negated: list[float] = (-(self._vectors @ query.astype(np.float64))).tolist()
            return negated
        most_code = min(MAX_INT16, MAX_INT32 // (MAX_CODE * len(query)))
        codes, _ = _rounded(query[np.newaxis], most_code)
        distances: list[float] = (-self._scales * (self._codes @ codes[0]).astype("f4")).tolist()
        return distances

    def _search_layer(self, distances: list[float], start: int, ef: int) -> list[int]:
        """Returns the `ef` nearest elements that links from `start` lead to, nearest first.

        This is the paper's algorithm SEARCH-LAYER.
        """
        nearest, frontier, visited = [start], [start], {start}
        while frontier:
            current = min(frontier, key=lambda id_: (distances[id_], -id_))
            if distances[current] > distances[nearest[-1]]:
                break
            frontier.remove(current)
            for other in self._links[current][0]:
                if other in visited:
                    continue
                visited.add(other)
                if len(nearest) < ef or distances[other] < distances[nearest[-1]]:
                    frontier.append(other)
                    nearest.append(other)
                    nearest = sorted(nearest, key=lambda id_: (distances[id_], id_))[:ef]
        return nearest


class GraphSearch:
    """The twin of `hrag_fast.GraphSearch`. Each call starts a new search."""

    def __init__(self, graph: Graph, query: NDArray[np.float32], ef: int) -> None:
        """Stores the arguments. Only `Graph.search` calls this."""
        self._graph, self._query, self._ef = graph, query, ef

    def nearest(self, count: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the nearest items; see `_graph.pyi`."""
        self._ef = max(self._ef, self._graph.ef_for(count))
        return self._graph.nearest(self._query, count, self._ef)


def _mean(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the mean of at most MEAN_OF vectors, whose indexes are at about equal distances.

    Adds the vectors one by one, as the kernel does, so that the result is rounded in the same way.
    """
    count = min(len(vectors), MEAN_OF)
    total = np.zeros(vectors.shape[1], np.float32)
    for i in range(count):
        total += vectors[i * len(vectors) // count]
    return total / np.float32(count)


def _rounded(
    vectors: NDArray[np.float32], most_code: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns the integer codes of each vector, and for each vector the scale of its codes.

    The largest magnitude of a vector's codes is `most_code`. For a vector whose numbers are all
    tiny, or not all finite, the codes and the scale are 0.
    """
    largest = np.abs(vectors).max(axis=1)
    usable = (largest >= np.float32(SMALLEST)) & (largest <= np.float32(LARGEST))
    factors = np.float32(most_code) / np.where(usable, largest, np.float32(1))
    codes = np.rint(np.where(usable[:, np.newaxis], vectors, 0) * factors[:, np.newaxis])
    scales = np.where(usable, largest / np.float32(most_code), np.float32(0))
    return codes.astype(np.int64), scales.astype(np.float32)


def _links_in(words: NDArray[np.uint32]) -> list[int]:
    """Returns the links of one element at one level.

    The lower 16 bits of the first word are the count of the links. The words after it are the
    links.
    """
    links: list[int] = words[1 : 1 + (int(words[0]) & 0xFFFF)].tolist()
    return links
