"""The plain Python twins of compiled kernels. They define the right answers.

They are written to be read, with dicts, sorts and strings. The stubs (`.pyi`) document both. Tests
check that `climb` and `boundary_ranks` give the same bits as their twins, and that `Graph` gives
the same results except for the rounding of scores. Benchmarks compare their speed.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from hrag_fast._boundaries import (
    CUT_CODE_POINT,
    CUT_FORBIDDEN,
    CUT_PARAGRAPH,
    CUT_SENTENCE,
    CUT_WORD,
)
from hrag_fast._climb import COUNT, MAX, MEAN, SUM, Groups

# The header of a file of hnswlib; `_graph.pyx` names its fields.
HEADER = struct.Struct("<6QiI3QdQ")
# The constants of the codes that a search of a graph compares.
MAX_CODE = 127
MAX_INT16 = 32767
MAX_INT32 = 0x7FFFFFFF
WANTED_A_SPARE = 16
MEAN_OF = 1024
SMALLEST, LARGEST = 1e-30, 3e38
WHITE_SPACE = " \t\n\v\f\r\u3000"
CLOSERS = "\"')]}”’」』）》】"
SENTENCE_ENDS = (".", "!", "?")
CJK_SENTENCE_ENDS = ("。", "！", "？", "；", "…", "．", "｡")
BLANK_LOOK_BACK = 64
CLOSER_LOOK_BACK = 16
MAX_CODE_POINT_BYTES = 4
CJK_RANGES = (
    (0x3000, 0x303F),  # Punctuation.
    (0x3040, 0x30FF),  # Kana.
    (0x3400, 0x4DBF),  # Ideographs, extension A.
    (0x4E00, 0x9FFF),  # Ideographs.
    (0xAC00, 0xD7AF),  # Hangul.
    (0xF900, 0xFAFF),  # Compatibility ideographs.
    (0xFF00, 0xFFEF),  # Full-width forms.
    (0x20000, 0x3FFFF),  # Ideographs beyond the basic plane.
)


def rows_of_documents(
    labels: NDArray[np.uint64], ordinals: NDArray[np.uint64]
) -> NDArray[np.uint32]:
    """The twin of `hrag_fast.rows_of_documents`, which `_rows.pyi` documents."""
    documents = set(ordinals.tolist())
    rows = [row for row, label in enumerate(labels.tolist()) if label >> 20 in documents]
    return np.array(rows, np.uint32)


def climb(
    rows: NDArray[np.uint32],
    scores: NDArray[np.float32],
    labels: NDArray[np.uint64],
    ancestors: NDArray[np.uint32],
    alive: NDArray[np.uint8],
    aggregation: int,
) -> Groups:
    """The twin of `hrag_fast.climb`, which `_climb.pyi` documents."""
    _check(rows, scores, labels, ancestors, alive, aggregation)
    families: dict[int, list[tuple[float, int, int]]] = {}
    for i, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True)):
        if row >= len(labels):
            raise IndexError(f"rows[{i}] is {row}; it must be below {len(labels)}")
        if alive[row]:
            label = int(labels[row])
            key = (label >> 20) << 20 | int(ancestors[row])
            families.setdefault(key, []).append((score, label, row))

    ranked = []
    for key, family in families.items():
        score = _aggregated([score for score, _, _ in family], aggregation)
        family.sort(key=lambda child: (-child[0], child[1]))
        ranked.append((score, key, family))
    ranked.sort(key=lambda group: (-group[0], -group[2][0][0], group[1]))
    return _groups(ranked)


def _check(
    rows: NDArray[np.uint32],
    scores: NDArray[np.float32],
    labels: NDArray[np.uint64],
    ancestors: NDArray[np.uint32],
    alive: NDArray[np.uint8],
    aggregation: int,
) -> None:
    if len(scores) != len(rows):
        raise ValueError(f"scores has {len(scores)} entries; it must have {len(rows)}, as rows")
    for name, column in (("ancestors", ancestors), ("alive", alive)):
        if len(column) != len(labels):
            raise ValueError(
                f"{name} has {len(column)} entries; it must have {len(labels)}, as labels"
            )
    if aggregation not in (MAX, SUM, MEAN, COUNT):
        raise ValueError(
            f"aggregation is {aggregation}; it must be {MAX} (MAX), {SUM} (SUM), "
            f"{MEAN} (MEAN) or {COUNT} (COUNT)"
        )


def _aggregated(scores: list[float], aggregation: int) -> float:
    if aggregation == MAX:
        return max(scores)
    if aggregation == COUNT:
        return float(len(scores))
    total = 0.0
    # The built-in sum() is not used: since Python 3.12 it corrects its rounding errors.
    for score in scores:
        total += score
    return float(np.float32(total if aggregation == SUM else total / len(scores)))


def _groups(ranked: list[tuple[float, int, list[tuple[float, int, int]]]]) -> Groups:
    starts = [0]
    children: list[int] = []
    child_scores: list[float] = []
    for _, _, family in ranked:
        children.extend(row for _, _, row in family)
        child_scores.extend(score for score, _, _ in family)
        starts.append(len(children))
    return Groups(
        np.array([key for _, key, _ in ranked], dtype=np.uint64),
        np.array([score for score, _, _ in ranked], dtype=np.float32),
        np.array(starts, dtype=np.uint32),
        np.array(children, dtype=np.uint32),
        np.array(child_scores, dtype=np.float32),
    )


def boundary_ranks(text: bytes, ends: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The twin of `hrag_fast.boundary_ranks`, which `_boundaries.pyi` documents."""
    for i, end in enumerate(ends.tolist()):
        if not 0 < end <= len(text):
            raise IndexError(
                f"ends[{i}] is {end}; it must be from 1 to {len(text)}, the text's bytes"
            )
    return np.array([_rank(text, end) for end in ends.tolist()], dtype=np.uint8)


def _rank(text: bytes, end: int) -> int:
    if end == len(text):
        return CUT_PARAGRAPH
    if _is_continuation(text[end]) or text[end - 1 : end + 1] == b"\r\n":
        return CUT_FORBIDDEN
    before = _code_points(text, end - MAX_CODE_POINT_BYTES, end)[-1]
    after = _code_points(text, end, end + MAX_CODE_POINT_BYTES)[0]
    blanks = _trailing(WHITE_SPACE, text, end, BLANK_LOOK_BACK)
    newlines = _newlines(blanks)
    next_to_blank = blanks != "" or after in WHITE_SPACE
    if newlines >= 2 or "\f" in blanks:
        return CUT_PARAGRAPH
    if newlines == 1 or _ends_sentence(text, end - len(blanks.encode()), next_to_blank):
        return CUT_SENTENCE
    if next_to_blank or _is_cjk(before) or _is_cjk(after):
        return CUT_WORD
    return CUT_CODE_POINT


def _ends_sentence(text: bytes, end: int, next_to_blank: bool) -> bool:
    closers = _trailing(CLOSERS, text, end, CLOSER_LOOK_BACK)
    end -= len(closers.encode())
    before = _code_points(text, end - MAX_CODE_POINT_BYTES, end)
    return before.endswith(CJK_SENTENCE_ENDS) or (next_to_blank and before.endswith(SENTENCE_ENDS))


def _trailing(alphabet: str, text: bytes, end: int, look_back: int) -> str:
    """Returns the characters of `alphabet` just before `end`, at most `look_back` bytes."""
    window = _code_points(text, end - look_back, end)
    return window[len(window.rstrip(alphabet)) :]


def _code_points(text: bytes, start: int, end: int) -> str:
    """Returns the code points that are wholly between two byte offsets."""
    return text[max(start, 0) : end].decode(errors="ignore")


def _newlines(blanks: str) -> int:
    one_each = blanks.replace("\r\n", "\n").replace("\r", "\n")
    return one_each.count("\n")


def _is_continuation(byte: int) -> bool:
    return 0x80 <= byte < 0xC0


def _is_cjk(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CJK_RANGES)


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
        self._links = [[_list(row)] for row in words]
        at = HEADER.size + count * element_bytes
        for internal_id in range(count):
            (size,) = struct.unpack_from("<I", file, at)
            upper = np.frombuffer(file, "<u4", size // 4, at + 4).reshape(-1, links + 1)
            self._links[internal_id] += [_list(row) for row in upper]
            at += 4 + size

    def search(self, query: NDArray[np.float32], ef: int) -> "GraphSearch":
        """Begins an ANN search; see `_graph.pyi`."""
        return GraphSearch(self, query, ef)

    def ef_for(self, count: int) -> int:
        """Returns the least ef for `count` items. Codes may put the last items in a wrong order."""
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
        """Returns exact inner products; see `_graph.pyi`."""
        internal_ids = [int(np.flatnonzero(self._labels == item)[0]) for item in items]
        return (self._vectors[internal_ids] @ query.astype(np.float64)).astype(np.float32)

    def _distances(self, query: NDArray[np.float32]) -> list[float]:
        """Returns every element's distance from the query, by codes or by vectors."""
        if not self._by_codes:
            negated: list[float] = (-(self._vectors @ query.astype(np.float64))).tolist()
            return negated
        most_code = min(MAX_INT16, MAX_INT32 // (MAX_CODE * len(query)))
        codes, _ = _rounded(query[np.newaxis], most_code)
        distances: list[float] = (-self._scales * (self._codes @ codes[0]).astype("f4")).tolist()
        return distances

    def _search_layer(self, distances: list[float], start: int, ef: int) -> list[int]:
        """Returns the `ef` nearest elements that `start` leads to, in order (SEARCH-LAYER)."""
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
        """Keeps the arguments. `Graph.search` calls it."""
        self._graph, self._query, self._ef = graph, query, ef

    def nearest(self, count: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the nearest items; see `_graph.pyi`."""
        self._ef = max(self._ef, self._graph.ef_for(count))
        return self._graph.nearest(self._query, count, self._ef)


def _mean(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the mean of vectors at equal distances. Adds one by one, like the kernel."""
    count = min(len(vectors), MEAN_OF)
    total = np.zeros(vectors.shape[1], np.float32)
    for i in range(count):
        total += vectors[i * len(vectors) // count]
    return total / np.float32(count)


def _rounded(
    vectors: NDArray[np.float32], most_code: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns the codes of each vector, and their scale. The largest magnitude is `most_code`.

    Codes and scale are zeros for a vector whose numbers are all tiny, or not all finite.
    """
    largest = np.abs(vectors).max(axis=1)
    usable = (largest >= np.float32(SMALLEST)) & (largest <= np.float32(LARGEST))
    factors = np.float32(most_code) / np.where(usable, largest, np.float32(1))
    codes = np.rint(np.where(usable[:, np.newaxis], vectors, 0) * factors[:, np.newaxis])
    scales = np.where(usable, largest / np.float32(most_code), np.float32(0))
    return codes.astype(np.int64), scales.astype(np.float32)


def _list(words: NDArray[np.uint32]) -> list[int]:
    """Returns a list of links. The low half of the first word is their number; they follow it."""
    links: list[int] = words[1 : 1 + (int(words[0]) & 0xFFFF)].tolist()
    return links
