"""Reads which passages an answer cites: the numbers in markers such as [1], [1, 3] and [2-4].

Only the numbers of passages that the model received are citations. Any other text in brackets is
part of the answer.
"""

import re

_MARKER = re.compile(r"[ \t]*[\[【]\s*(\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\s*[\]】]")
_RANGE = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")


def cited_passages(answer: str, passages: int) -> tuple[int, ...]:
    """Returns the numbers of the cited passages, from 1, in the order of their first citation.

    `passages` is the count of passages that the answer was made from.
    """
    numbers = (n for marker in _MARKER.finditer(answer) for n in _numbers(marker[1], passages))
    return tuple(dict.fromkeys(numbers))


def without_citations(answer: str, passages: int) -> str:
    """Returns the answer without its markers, so that a judge compares only what answers say."""

    def keep(marker: re.Match[str]) -> str:
        return "" if _numbers(marker[1], passages) else marker[0]

    return _MARKER.sub(keep, answer).strip()


def _numbers(text: str, passages: int) -> list[int]:
    """Returns the numbers in a marker that are numbers of passages."""
    numbers: list[int] = []
    for first, last in _RANGE.findall(text):
        numbers += range(int(first), int(last or first) + 1)
    return [number for number in numbers if 1 <= number <= passages]
