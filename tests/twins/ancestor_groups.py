"""The twin of `_climb.pyx`: it groups in a dict and sorts lists, and returns the same bits."""

import numpy as np
from numpy.typing import NDArray

from hrag_fast import COUNT, MAX, MEAN, SUM, Groups


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
    children_by_key: dict[int, list[tuple[float, int, int]]] = {}
    for i, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True)):
        if row >= len(labels):
            raise IndexError(f"rows[{i}] is {row}; it must be below {len(labels)}")
        if alive[row]:
            label = int(labels[row])
            key = (label >> 20) << 20 | int(ancestors[row])
            children_by_key.setdefault(key, []).append((score, label, row))

    ranked = []
    for key, children in children_by_key.items():
        score = _aggregated([score for score, _, _ in children], aggregation)
        children.sort(key=lambda child: (-child[0], child[1]))
        ranked.append((score, key, children))
    ranked.sort(key=lambda group: (-group[0], -group[2][0][0], group[1]))
    return _as_arrays(ranked)


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
    # The built-in sum() is not used, because since Python 3.12 it corrects rounding errors, which
    # the kernel does not.
    for score in scores:
        total += score
    return float(np.float32(total if aggregation == SUM else total / len(scores)))


def _as_arrays(ranked: list[tuple[float, int, list[tuple[float, int, int]]]]) -> Groups:
    starts = [0]
    rows: list[int] = []
    row_scores: list[float] = []
    for _, _, children in ranked:
        rows.extend(row for _, _, row in children)
        row_scores.extend(score for score, _, _ in children)
        starts.append(len(rows))
    return Groups(
        np.array([key for _, key, _ in ranked], dtype=np.uint64),
        np.array([score for score, _, _ in ranked], dtype=np.float32),
        np.array(starts, dtype=np.uint32),
        np.array(rows, dtype=np.uint32),
        np.array(row_scores, dtype=np.float32),
    )
