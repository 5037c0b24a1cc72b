"""Where a passage lies in its document; pure.

Some libraries return texts without offsets, and some strip or join white space on the way.
"""

import re
from functools import lru_cache

Span = tuple[int, int]
"""First character and the one behind the last, in code points of the document."""

_SPACE = re.compile(r"\s+")


def find_span(document: str, passage: str, start: int | None = None) -> Span | None:
    """Where `passage` lies; `start`, where it is given, is tried first.

    A passage that differs from the document in white space alone is found too; of several
    places the first counts. None if there is none.
    """
    if start is not None and document.startswith(passage, start):
        return start, start + len(passage)
    found = document.find(passage)
    if found >= 0:
        return found, found + len(passage)
    return _find_without_space(document, passage)


def _find_without_space(document: str, passage: str) -> Span | None:
    bare, places = _without_space(document)
    wanted = _SPACE.sub("", passage)
    found = bare.find(wanted) if wanted else -1
    if found < 0:
        return None
    return places[found], places[found + len(wanted) - 1] + 1


@lru_cache(maxsize=4)
def _without_space(document: str) -> tuple[str, list[int]]:
    """The text without white space, and where each character of it came from."""
    places = [place for place, character in enumerate(document) if not character.isspace()]
    return "".join(document[place] for place in places), places
