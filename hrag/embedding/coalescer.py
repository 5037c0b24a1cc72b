"""Single texts that are asked for at once, embedded together.

Who asks while the model has room for one more is sent on at once. Who asks while it is busy
waits HOLD_S, and whoever else asks meanwhile goes along: one request for all of them, sent by
the thread of the first. So nobody is held for longer than HOLD_S, nothing waits for a request
to end, and there is no thread but the callers'. Equal texts in company are sent once.

Everybody leaves at their own deadline; a request goes on while one of its callers is there. A
failure that would have met each alone is everybody's; where a text may be to blame, each asks
again alone. Several texts of one caller, and long ones, are sent on by themselves: nobody
waits for their embedding.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from hrag.deadline import NEVER, Deadline
from hrag.embedding import Embedder, Vectors
from hrag.errors import EmbedderRejected

# Half of a millisecond: the other is for waking up, for which a busy interpreter lets wait.
HOLD_S = 0.0005
MAX_TEXTS = 32  # More gain little, and all wait for the last.
# A token has at least one byte: no model refuses such a text for its length.
MAX_TEXT_BYTES = 512


class _Gathering:
    """Texts that are sent together, those who wait for them, and what comes of it."""

    def __init__(self, *, held: bool) -> None:
        self.held = held
        self.rows: dict[str, int] = {}
        self.deadlines: list[Deadline] = []
        self.outcome: Future[Vectors] = Future()

    def add(self, text: str, deadline: Deadline) -> None:
        self.rows.setdefault(text, len(self.rows))
        self.deadlines.append(deadline)

    @property
    def is_full(self) -> bool:
        return len(self.rows) == MAX_TEXTS


class Together:
    """See `hrag.embedding.Embedder`."""

    def __init__(
        self, embedder: Embedder, at_once: int, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """The model is busy while `at_once` requests are under way."""
        self.name = embedder.name
        self.max_tokens = embedder.max_tokens
        self._embedder = embedder
        self._at_once = at_once
        self._pause = pause
        self._lock = Lock()
        self._under_way = 0  # Gatherings that have not ended, held ones too.
        self._open: _Gathering | None = None

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        if len(texts) != 1 or len(texts[0].encode()) > MAX_TEXT_BYTES:
            return self._embedder.embed(texts, deadline)
        (text,) = texts
        gathering, is_first = self._joined(text, deadline)
        if is_first:
            self._send(gathering)
        try:
            vectors = deadline.result_of(gathering.outcome, "embedding")
        except EmbedderRejected:
            if len(gathering.rows) == 1:
                raise
            return self._embedder.embed(texts, deadline)
        row = gathering.rows[text]
        return vectors[row : row + 1].copy()

    def _joined(self, text: str, deadline: Deadline) -> tuple[_Gathering, bool]:
        """What the text goes with, and whether it is the first there."""
        with self._lock:
            gathering = self._open
            is_first = gathering is None
            if gathering is None:
                gathering = _Gathering(held=self._under_way >= self._at_once)
                self._under_way += 1
            gathering.add(text, deadline)
            self._open = gathering if gathering.held and not gathering.is_full else None
        return gathering, is_first

    def _send(self, gathering: _Gathering) -> None:
        try:
            if gathering.held:
                self._hold(gathering)
            texts, deadline = list(gathering.rows), Deadline.of_any(gathering.deadlines)
            gathering.outcome.set_result(self._embedder.embed(texts, deadline))
        except BaseException as error:  # Whatever it is, nobody may wait for ever.
            gathering.outcome.set_exception(error)
        finally:
            with self._lock:
                self._under_way -= 1

    def _hold(self, gathering: _Gathering) -> None:
        """Nobody joins it any more once this returns."""
        try:
            self._pause(HOLD_S)
        finally:
            with self._lock:
                if self._open is gathering:
                    self._open = None
