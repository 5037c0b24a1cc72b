"""Reads the texts of documents from a collection, each one once, as long as memory permits it."""

import threading
from collections.abc import Callable

# The texts that are kept have at most this many characters together, so at most 64 MiB of memory.
_MAX_CHARS = 16 << 20


class DocumentTexts:
    """The texts of documents by their ids. Safe to use from several threads.

    `read` returns the text of a document. If the texts have more than `max_chars` characters
    together, those that were used least recently are dropped, and read again when they are needed.
    """

    def __init__(self, read: Callable[[str], str], max_chars: int = _MAX_CHARS) -> None:
        self._read = read
        self._max_chars = max_chars
        self._lock = threading.Lock()
        # The least recently used text comes first.
        self._texts: dict[str, str] = {}
        self._chars = 0

    def __call__(self, document_id: str) -> str:
        """Returns the text of a document. Raises the errors of `read`."""
        with self._lock:
            text = self._texts.pop(document_id, None)
            if text is not None:
                self._texts[document_id] = text
                return text
        text = self._read(document_id)
        with self._lock:
            if document_id not in self._texts:
                self._texts[document_id] = text
                self._chars += len(text)
            while self._chars > self._max_chars:
                self._chars -= len(self._texts.pop(next(iter(self._texts))))
        return text
