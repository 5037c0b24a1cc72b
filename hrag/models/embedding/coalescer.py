"""Coalesces concurrent calls for single texts into one request to the model (micro-batching).

While the model has capacity, a text is sent immediately. While the model is busy, the first text
opens a batch, and the thread of this text waits half a millisecond (MAX_DELAY_S). Texts that arrive
during this time join the batch. Then the batch is sent as one request. So a text is delayed by
MAX_DELAY_S at most, and no text waits until a running request ends. If several callers send the
same text at the same time, the batch contains the text several times. Otherwise the duration of a
query would reveal whether another tenant sends the same query.

Each caller stops waiting at its own deadline, but the request continues as long as any of its
callers waits. A caller whose thread sent the batch could not stop waiting. So a batch with several
callers is sent in a new thread, which ends with the request. While MAX_BATCHES batches with several
callers are running, each text is sent alone, in the thread of its caller. If a request fails, all
callers of the batch receive the error. Exception: if a single text may be the cause of the failure,
each caller repeats the request with only its own text. Calls with several texts, and long texts,
are never coalesced, so that no other caller waits until these texts are embedded.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock, Thread

from hrag.models.embedding import Embedder, Vectors
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected

# How long the first text of a batch waits for other texts. The delay is only half a millisecond,
# because waking the thread in a busy interpreter may take another half millisecond.
MAX_DELAY_S = 0.0005
# The maximum count of texts in a batch. Larger batches save little time, and all callers of a batch
# wait until its last text is embedded.
MAX_TEXTS = 32
# The maximum count of running batches with several callers. If all these batches are full, they
# have 1,024 callers in total, which is the maximum of HRAG_THREADS.
MAX_BATCHES = 32
# The maximum size of a text that is coalesced. A token has at least one byte, so a text of this
# size has at most 512 tokens, and no model rejects it for its length.
MAX_TEXT_BYTES = 512


class _Batch:
    """The texts of one request to the model, the deadlines of their callers, and the reply.

    If `delayed` is True, the batch waits for further texts before it is sent.
    """

    def __init__(self, *, delayed: bool) -> None:
        self.delayed = delayed
        self.texts: list[str] = []
        self.deadlines: list[Deadline] = []
        self.outcome: Future[Vectors] = Future()

    def add(self, text: str, deadline: Deadline) -> int:
        """Adds a text; returns its index, which is also the index of its vector in the reply."""
        self.texts.append(text)
        self.deadlines.append(deadline)
        return len(self.texts) - 1

    @property
    def is_full(self) -> bool:
        return len(self.texts) == MAX_TEXTS


class CoalescingEmbedder:
    """An embedder that coalesces single texts. Implements `hrag.models.embedding.Embedder`."""

    def __init__(
        self, embedder: Embedder, max_requests: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Wraps `embedder`, which is treated as busy while `max_requests` requests are running.

        While the embedder is busy, `sleep` is called with the seconds to wait before a batch is
        sent.
        """
        self.name = embedder.name
        self.max_tokens = embedder.max_tokens
        self.lowest_cosine = embedder.lowest_cosine
        self._embedder = embedder
        self._max_requests = max_requests
        self._sleep = sleep
        self._lock = Lock()
        self._running = 0  # The count of batches that have not ended, including delayed batches.
        self._shared = 0  # The count of batches that have not ended and have several callers.
        self._open: _Batch | None = None  # The batch that texts may join now.

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._embedder.dimension

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text. Implements `Embedder.embed`."""
        if len(texts) != 1 or len(texts[0].encode()) > MAX_TEXT_BYTES:
            return self._embedder.embed(texts, deadline)
        (text,) = texts
        batch, row = self._join(text, deadline)
        if row == 0:
            self._start(batch)
        try:
            vectors = deadline.result_of(batch.outcome, "embedding")
        except EmbedderRejected as error:
            if error.every_text or len(set(batch.texts)) == 1:
                raise
            return self._embedder.embed(texts, deadline)
        return vectors[row : row + 1].copy()

    def _join(self, text: str, deadline: Deadline) -> tuple[_Batch, int]:
        """Adds the text to the open batch or to a new batch.

        Returns the batch and the index of the text in the batch. The caller whose text has the
        index 0 must call `_start` with the batch.
        """
        with self._lock:
            batch = self._open
            if batch is None:
                is_busy = self._running >= self._max_requests
                batch = _Batch(delayed=is_busy and self._shared < MAX_BATCHES)
                self._running += 1
            row = batch.add(text, deadline)
            self._shared += row == 1
            self._open = batch if batch.delayed and not batch.is_full else None
        return batch, row

    def _start(self, batch: _Batch) -> None:
        """Sends the batch, after MAX_DELAY_S if the batch is delayed.

        If the batch has several callers, sends the batch in a new thread and does not wait for the
        reply.
        """
        with self._errors_to_callers(batch):
            if batch.delayed:
                self._wait_for_others(batch)
            if len(batch.texts) == 1:
                self._send(batch)
            else:
                Thread(target=self._send, args=(batch,), name="coalesced", daemon=True).start()

    def _send(self, batch: _Batch) -> None:
        with self._errors_to_callers(batch):
            vectors = self._embedder.embed(batch.texts, Deadline.of_any(batch.deadlines))
            self._end(batch)
            batch.outcome.set_result(vectors)

    @contextmanager
    def _errors_to_callers(self, batch: _Batch) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # Any error must end the callers' wait.
            self._end(batch)
            batch.outcome.set_exception(error)

    def _end(self, batch: _Batch) -> None:
        with self._lock:
            self._running -= 1
            self._shared -= len(batch.texts) > 1

    def _wait_for_others(self, batch: _Batch) -> None:
        """Waits MAX_DELAY_S, then closes the batch, so that no further text can join it."""
        try:
            self._sleep(MAX_DELAY_S)
        finally:
            with self._lock:
                if self._open is batch:
                    self._open = None
