"""Limits the work of one gRPC call. A batch has the same limits as a single search.

The limits are on the text that the call embeds, and on its filters. The size of a text is its
length in bytes plus TEXT_BYTES. The built-in embedder takes a time that is about proportional to
this size. So the limit bounds the processor time of a call. It is checked before any text is
embedded. Texts are counted even if their vectors are cached, so that the same call does not succeed
or fail depending on the cache.
"""

from collections.abc import Iterable

from hrag.values.errors import TooLarge
from hrag.values.filters import Filter, FilterSize, size_of
from hrag.values.limits import MAX_EMBEDDED_BYTES

# Embedding a text takes some time even if the text is short. So this many bytes are added to the
# size of each text.
TEXT_BYTES = 64


def check_filters(filters: Iterable[Filter]) -> None:
    """Raises TooLarge if the different filters of a batch are together larger than one may be.

    Equal filters count once, because the searches of a batch often share one long filter. The
    filters must be valid.
    """
    total = sum(map(size_of, set(filters)), FilterSize())
    total.check("searches have different filters with in total", "searches")


class EmbeddingWork:
    """Counts the bytes of text that one gRPC call embeds, and limits them. Not thread-safe."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._left_bytes = MAX_EMBEDDED_BYTES

    def add_queries(self, texts: Iterable[str]) -> None:
        """Counts the texts of queries.

        Raises TooLarge if the call would embed more than MAX_EMBEDDED_BYTES.
        """
        size = self._count(texts)
        if size > self._left_bytes:
            raise TooLarge(
                f"searches has texts of {size:,} bytes in total, with {TEXT_BYTES} bytes added for "
                f"each text; a call may embed at most {MAX_EMBEDDED_BYTES:,} bytes, so send fewer "
                "searches in a batch",
                field="searches",
            )
        self._left_bytes -= size

    def add_sentences(self, texts_of_leaves: Iterable[Iterable[str]], window_count: int) -> None:
        """Counts the texts of sentences before they are embedded.

        `texts_of_leaves` has, for each leaf that the search has found, the texts of its sentences.
        `window_count` is the count of windows of sentences that the search has chosen from other
        leaves already.

        Raises TooLarge if the call would then embed more than MAX_EMBEDDED_BYTES in total. The
        message names the highest `limit` with which the query would not raise this error, if there
        is one.
        """
        size = fitting = 0
        for texts in texts_of_leaves:
            size += self._count(texts)
            fitting += size <= self._left_bytes
        if size > self._left_bytes:
            possible = window_count + fitting
            advice = (
                f"a limit of {possible} is possible"
                if possible
                else "the collection's leaves are too long for SENTENCE_WINDOW"
            )
            raise TooLarge(
                f"limit is too high: {size:,} bytes of sentences have to be embedded, with "
                f"{TEXT_BYTES} bytes added for each sentence; of the {MAX_EMBEDDED_BYTES:,} bytes "
                f"that a call may embed, {self._left_bytes:,} are left; {advice}",
                field="limit",
            )
        self._left_bytes -= size

    def _count(self, texts: Iterable[str]) -> int:
        """Returns the total size of the texts that have not been counted in this call before."""
        new = set(texts) - self._texts
        self._texts |= new
        return sum(len(text.encode()) + TEXT_BYTES for text in new)
