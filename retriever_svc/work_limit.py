"""How much text one call embeds: a limit of work, the same for a search and for a batch.

The built-in embedder takes about as long for a text as for its bytes and TEXT_BYTES more. So
bytes measure processor time before it is spent. Texts are counted whether or not their vectors
are cached, so that the same call is always answered in the same way.
"""

from collections.abc import Iterable

from hrag.values.errors import TooLarge
from hrag.values.limits import MAX_EMBEDDED_BYTES

TEXT_BYTES = 64  # Added to each text's length.


class EmbeddingWork:
    """What one call has embedded so far, and may still embed. For one thread."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._left_bytes = MAX_EMBEDDED_BYTES

    def add_queries(self, texts: Iterable[str]) -> None:
        """Counts the texts of queries; raises TooLarge if they are too many."""
        size = self._count(texts)
        if size > self._left_bytes:
            raise TooLarge(
                f"searches has texts of {size:,} bytes together, counting {TEXT_BYTES} more for "
                f"each; at most {MAX_EMBEDDED_BYTES:,} are embedded in a call, so send fewer in a "
                "batch",
                field="searches",
            )
        self._left_bytes -= size

    def add_sentences(self, texts_of_leaves: Iterable[Iterable[str]], found: int) -> None:
        """Counts the sentences of each leaf; raises TooLarge if they are too many.

        `found` is how many windows there are without them; the message names a limit that the
        leaves before would have met.
        """
        size = fitting = 0
        for texts in texts_of_leaves:
            size += self._count(texts)
            fitting += size <= self._left_bytes
        if size > self._left_bytes:
            possible = found + fitting
            advice = (
                f"a limit of {possible} is possible"
                if possible
                else "the collection's leaves are too long for SENTENCE_WINDOW"
            )
            raise TooLarge(
                f"limit is too high: {size:,} more bytes of sentences would be embedded, counting "
                f"{TEXT_BYTES} for each beside its length; {self._left_bytes:,} are left of "
                f"{MAX_EMBEDDED_BYTES:,} in a call; {advice}",
                field="limit",
            )
        self._left_bytes -= size

    def _count(self, texts: Iterable[str]) -> int:
        """The bytes of those texts that the call has not embedded before."""
        new = set(texts) - self._texts
        self._texts |= new
        return sum(len(text.encode()) + TEXT_BYTES for text in new)
