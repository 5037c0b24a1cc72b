"""Finds the offsets of a passage in its document, with pure functions.

Some libraries return texts without offsets, and some remove or join white space.
"""

import re
from functools import lru_cache

Span = tuple[int, int]
"""The start and the exclusive end, in code points of the document."""

_SPACE = re.compile(r"\s+")


def find_span(document: str, passage: str, start: int | None = None) -> Span | None:
    """Returns the span of `passage`; None if it is not in the document.

    If `start` is given and the passage is there, returns this span. Otherwise returns the first
    occurrence. White space in the passage may differ from that in the document.
    """
    if start is not None and document.startswith(passage, start):
        return start, start + len(passage)
    offset = document.find(passage)
    if offset >= 0:
        return offset, offset + len(passage)
    return _find_without_space(document, passage)


def _find_without_space(document: str, passage: str) -> Span | None:
    compact, offsets = _without_space(document)
    compact_passage = _SPACE.sub("", passage)
    at = compact.find(compact_passage) if compact_passage else -1
    if at < 0:
        return None
    return offsets[at], offsets[at + len(compact_passage) - 1] + 1


@lru_cache(maxsize=4)
def _without_space(document: str) -> tuple[str, list[int]]:
    """Returns the text without white space, and the offset of each of its characters."""
    offsets = [offset for offset, character in enumerate(document) if not character.isspace()]
    return "".join(document[offset] for offset in offsets), offsets
