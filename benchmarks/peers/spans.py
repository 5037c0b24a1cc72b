"""Finds a passage's offsets in its document; pure.

Some libraries return texts without offsets, and some strip or join white space.
"""

import re
from functools import lru_cache

Span = tuple[int, int]
"""Start and exclusive end, in code points of the document."""

_SPACE = re.compile(r"\s+")


def find_span(document: str, passage: str, start: int | None = None) -> Span | None:
    """Returns the span of `passage`, None if it is not in the document.

    `start`, if given, is tried first; otherwise the first occurrence counts. White space may
    differ from the document's.
    """
    if start is not None and document.startswith(passage, start):
        return start, start + len(passage)
    found = document.find(passage)
    if found >= 0:
        return found, found + len(passage)
    return _find_without_space(document, passage)


def _find_without_space(document: str, passage: str) -> Span | None:
    compact, places = _without_space(document)
    wanted = _SPACE.sub("", passage)
    found = compact.find(wanted) if wanted else -1
    if found < 0:
        return None
    return places[found], places[found + len(wanted) - 1] + 1


@lru_cache(maxsize=4)
def _without_space(document: str) -> tuple[str, list[int]]:
    """Returns the text without white space, and the offset of each of its characters."""
    places = [place for place, character in enumerate(document) if not character.isspace()]
    return "".join(document[place] for place in places), places
