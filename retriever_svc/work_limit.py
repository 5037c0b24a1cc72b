"""Limits how much text one call embeds. One search and a batch of searches have the same limit.

The size of a text is its length in bytes plus TEXT_BYTES. The built-in embedder takes a time that
is about proportional to this size. So the limit bounds the processor time of a call, and is checked
before any text is embedded. Texts are counted even if their vectors are cached, so that the same
call always succeeds or always fails.
"""

from collections.abc import Iterable

from hrag.values.errors import TooLarge
from hrag.values.limits import MAX_EMBEDDED_BYTES

TEXT_BYTES = 64  # The work for a text besides its length, as if it were that many bytes longer.


class EmbeddingWork:
    """Counts the text that one call embeds, and limits it. Not thread-safe."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._left_bytes = MAX_EMBEDDED_BYTES

    def add_queries(self, texts: Iterable[str]) -> None:
        """Counts the texts of queries. Raises TooLarge if they have too many bytes together."""
        size = self._count(texts)
        if size > self._left_bytes:
            raise TooLarge(
                f"searches has texts of {size:,} bytes together, counting {TEXT_BYTES} more for "
                f"each; at most {MAX_EMBEDDED_BYTES:,} are embedded in a call, so send fewer in a "
                "batch",
                field="searches",
            )
        self._left_bytes -= size

    def add_sentences(self, texts_of_leaves: Iterable[Iterable[str]], window_count: int) -> None:
        """Counts the sentences of each leaf. Raises TooLarge if they have too many bytes together.

        `window_count` is the count of windows that are chosen already. The message names a
        `limit` of the query that is possible.
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
                f"limit is too high: {size:,} more bytes of sentences would be embedded, counting "
                f"{TEXT_BYTES} more for each; {self._left_bytes:,} are left of "
                f"{MAX_EMBEDDED_BYTES:,} in a call; {advice}",
                field="limit",
            )
        self._left_bytes -= size

    def _count(self, texts: Iterable[str]) -> int:
        """Returns the size of the texts that the call has not counted before."""
        new = set(texts) - self._texts
        self._texts |= new
        return sum(len(text.encode()) + TEXT_BYTES for text in new)
