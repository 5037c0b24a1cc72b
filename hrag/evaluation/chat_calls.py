"""Calls a chat model, counts the calls and their tokens, and stores the replies in the journal.

The key of a reply is a hash of the model's name, the prompt and the token limit. So if a prompt is
sent again, the stored reply is used, and the prompt is neither paid for nor counted twice. Failed
calls are counted separately, and their errors are raised.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from string import Template
from threading import Lock
from typing import TypeVar

from hrag.evaluation.journal import Journal, key_of
from hrag.models.chat import ChatModel
from hrag.values.deadline import NEVER
from hrag.values.errors import HragError

DEFAULT_CONCURRENCY = 4

# If this many calls have failed and none has succeeded, the endpoint is considered unreachable.
_FAILURES_AT_FIRST = 3

Task = TypeVar("Task")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class ChatText:
    """A model's complete reply. Token counts are 0 if the endpoint does not report them.

    `took_us` is the time from the request to the complete reply, in microseconds.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    took_us: int = 0


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """The count of calls of a chat model, and the tokens of the calls.

    `calls` counts the successful calls, including calls of earlier runs whose stored replies this
    run has used. Calls with equal prompts count once. `failed` counts the failed calls of this run.
    """

    model: str
    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChatCalls:
    """Calls one chat model, and stores its replies in a journal. Thread-safe."""

    def __init__(self, model: ChatModel, journal: Journal) -> None:
        self._model = model
        self._journal = journal
        self._lock = Lock()
        self._locks_by_key: dict[str, Lock] = {}
        self._counted: set[str] = set()
        self._failed = 0
        self._prompt_tokens = self._completion_tokens = 0

    @property
    def usage(self) -> ChatUsage:
        """The counts of successful and failed calls so far, and the tokens of the calls."""
        with self._lock:
            return ChatUsage(
                self._model.name,
                len(self._counted),
                self._failed,
                self._prompt_tokens,
                self._completion_tokens,
            )

    def ask(self, prompt: str, max_tokens: int) -> ChatText:
        """Returns the reply to a prompt, from the journal if it is stored there.

        If another thread is sending an equal prompt, waits for its reply and returns this reply. If
        the other thread's call fails, sends the prompt itself. Raises HragError if the model fails,
        and OSError if the journal cannot be written.
        """
        key = key_of("chat", model=self._model.name, prompt=prompt, max_tokens=max_tokens)
        with self._lock_of(key):
            reply = self._journal.get(key, ChatText)
            if reply is None:
                reply = self._complete(prompt, max_tokens)
                self._journal.put(key, reply)
        self._count(key, reply)
        return reply

    def _lock_of(self, key: str) -> Lock:
        """Returns the lock for calls with this key; all calls with the same key share one lock.

        A call holds the lock while it reads the journal, requests the reply and stores it.
        """
        with self._lock:
            return self._locks_by_key.setdefault(key, Lock())

    def _count(self, key: str, reply: ChatText) -> None:
        with self._lock:
            if key not in self._counted:
                self._counted.add(key)
                self._prompt_tokens += reply.prompt_tokens
                self._completion_tokens += reply.completion_tokens

    def _complete(self, prompt: str, max_tokens: int) -> ChatText:
        started = time.perf_counter_ns()
        try:
            completion = self._model.complete(prompt, max_tokens, NEVER)
        except HragError:
            with self._lock:
                self._failed += 1
            raise
        end = completion.end
        took_us = (time.perf_counter_ns() - started) // 1000
        return ChatText(completion.text, end.prompt_tokens, end.completion_tokens, took_us)

    def check_reachable(self, error: HragError) -> None:
        """Raises `error` if all calls so far have failed, because more calls would fail too.

        Does nothing before `_FAILURES_AT_FIRST` calls have failed.
        """
        usage = self.usage
        if not usage.calls and usage.failed >= _FAILURES_AT_FIRST:
            raise error


def prompt_template(name: str) -> Template:
    """Returns the prompt template in the file `name`, which is in the folder of this package."""
    return Template(resources.files("hrag.evaluation").joinpath(name).read_text("utf-8"))


def in_threads(
    work: Callable[[Task], Done], tasks: Sequence[Task], concurrency: int
) -> Iterator[Done]:
    """Calls `work` for each task, in threads; yields the results in the order of the tasks.

    If `work` raises an exception, the exception is raised, and tasks that have not begun are
    cancelled. `concurrency` is the number of threads.
    """
    with ThreadPoolExecutor(concurrency) as pool:
        futures: list[Future[Done]] = [pool.submit(work, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
