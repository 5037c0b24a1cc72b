"""The documents of a collection in two stores, side by side, by their ids.

Both exports are in order of ids, so one pass over both is a merge join, and one document of
each is in memory at a time. What is written to a store behind the pair that was yielded last
is not met again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hrag.engine.engine_documents import Exported


@dataclass(frozen=True, slots=True)
class Pair:
    """A document as source and target have it; None where a store does not. Never both None."""

    document_id: str
    source: Exported | None
    target: Exported | None


def pairs(source: Iterator[Exported], target: Iterator[Exported]) -> Iterator[Pair]:
    """Yields every document of the two exports once, in order of ids."""
    one, other = next(source, None), next(target, None)
    while one is not None or other is not None:
        document_id = min(each.document_id for each in (one, other) if each is not None)
        ours = one if one is not None and one.document_id == document_id else None
        theirs = other if other is not None and other.document_id == document_id else None
        yield Pair(document_id, ours, theirs)
        one = one if ours is None else next(source, None)
        other = other if theirs is None else next(target, None)
