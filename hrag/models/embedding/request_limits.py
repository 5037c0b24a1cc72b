"""The largest request to an embedding endpoint: its number of texts, and of bytes together.

Endpoints have different limits, for example 10 texts (DashScope), 32 texts (text-embeddings-
inference) or 16,384 tokens (Mistral), and none of them can be asked for its limits. They refuse a
larger request with 400, 413 or 422. Then requests of half the size are tried, until one is
accepted. Limits count bytes in place of tokens, because only the endpoint knows its tokens.

A refusal does not say in a form that all endpoints share whether there were too many texts or too
many bytes. So the number of texts is reduced first, down to the largest number that the endpoint
has accepted. If it refuses that number too, there were too many bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The largest request that may be sent, and the largest that the endpoint has accepted.

    The most texts and the most bytes may have been accepted in different requests.
    """

    max_texts: int
    max_bytes: int
    accepted_texts: int = 0
    accepted_bytes: int = 0

    def batch_end(self, sizes: Sequence[int], start: int) -> int:
        """Returns the end of the request that begins with the text at `start`.

        `sizes` are the bytes of all texts. A text with more than `max_bytes` bytes is sent alone.
        """
        end, total = start + 1, sizes[start]
        last = min(len(sizes), start + self.max_texts)
        while end < last and total + sizes[end] <= self.max_bytes:
            total += sizes[end]
            end += 1
        return end

    def after_acceptance(self, texts: int, size_bytes: int) -> Self:
        """Returns the limits after the endpoint has accepted a request."""
        return replace(
            self,
            accepted_texts=max(self.accepted_texts, texts),
            accepted_bytes=max(self.accepted_bytes, size_bytes),
        )

    def after_refusal(self, texts: int, size_bytes: int) -> Self:
        """Returns smaller limits after the endpoint has refused a request with several texts."""
        if texts > self.accepted_texts:
            return replace(self, max_texts=max(self.accepted_texts, _half(texts)))
        if size_bytes > self.accepted_bytes:
            return replace(self, max_bytes=max(self.accepted_bytes, size_bytes // 2))
        # The endpoint refuses what it accepted before, so its limits have changed.
        return replace(self, max_texts=_half(texts), accepted_texts=0, accepted_bytes=0)

    def combined(self, other: Self) -> Self:
        """Returns the limits that two calls have learned at the same time."""
        max_texts = min(self.max_texts, other.max_texts)
        max_bytes = min(self.max_bytes, other.max_bytes)
        return replace(
            self,
            max_texts=max_texts,
            max_bytes=max_bytes,
            accepted_texts=min(max_texts, max(self.accepted_texts, other.accepted_texts)),
            accepted_bytes=min(max_bytes, max(self.accepted_bytes, other.accepted_bytes)),
        )


def _half(texts: int) -> int:
    """Returns the largest power of two below `texts`, because many limits are powers of two."""
    return 1 << ((texts - 1).bit_length() - 1)
