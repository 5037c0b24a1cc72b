"""The reasoning of a chat model as a client receives it: as guarded and bounded as an answer.

Reasoning is text that a model writes under the influence of passages, like an answer. So it goes
through the same filter. It is never read for citations.
"""

from hrag.values.answers import Reasoning
from hrag.values.limits import MAX_ANSWER_BYTES
from retriever_svc.markers import MarkerFilter


class ShownReasoning:
    """Reads the reasoning in pieces, and returns what the client receives."""

    def __init__(self, passages: int, hosts: frozenset[str], *, is_wanted: bool) -> None:
        """`passages` and `hosts` have the meaning that they have for a MarkerFilter.

        If `is_wanted` is False, nothing is returned.
        """
        self._filter = MarkerFilter(passages, hosts)
        self._left_bytes = MAX_ANSWER_BYTES if is_wanted else 0

    def feed(self, piece: Reasoning) -> list[Reasoning]:
        """Returns the reasoning that can be sent after this piece.

        Reasoning beyond MAX_ANSWER_BYTES is left out.
        """
        encoded = piece.text.encode()[: self._left_bytes]
        self._left_bytes -= len(encoded)
        return _events(self._filter.feed(encoded.decode("utf-8", "ignore")))

    def finish(self) -> list[Reasoning]:
        """Returns the rest of the reasoning. Must be called once, after the last piece."""
        return _events(self._filter.finish())


def _events(text: str) -> list[Reasoning]:
    return [Reasoning(text)] if text else []
