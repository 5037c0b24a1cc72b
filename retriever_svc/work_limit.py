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


def check_texts(texts: Iterable[str]) -> None:
    """Raises TooLarge if the texts of a batch's queries have more than MAX_EMBEDDED_BYTES together.

    Equal texts count once, because they are embedded once.
    """
    size = sum(len(text.encode()) + TEXT_BYTES for text in set(texts))
    if size > MAX_EMBEDDED_BYTES:
        raise TooLarge(
            f"searches has texts of {size:,} bytes in total, with {TEXT_BYTES} bytes added for "
            f"each text; a call may embed at most {MAX_EMBEDDED_BYTES:,} bytes, so send fewer "
            "searches in a batch",
            field="searches",
        )
