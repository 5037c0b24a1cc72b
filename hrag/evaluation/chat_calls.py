"""Calls of a chat model that are counted, kept and never hidden.

A finished call is kept in the journal under a hash of model and prompt, so that an equal prompt
is not paid for twice, nor counted. A failed one is a value.
"""

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

_FAILURES_AT_FIRST = 3  # So many and no success: the endpoint is not there.

Task = TypeVar("Task")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class ChatText:
    """A model's whole reply. Token counts are 0 if the endpoint does not report them."""

    text: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """What the calls cost: those that succeeded, in this run or an earlier one, and failed.

    Equal prompts are one call.
    """

    model: str
    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChatCalls:
    """Asks one model. Thread-safe."""

    def __init__(self, model: ChatModel, journal: Journal) -> None:
        self._model = model
        self._journal = journal
        self._lock = Lock()
        self._turns: dict[str, Lock] = {}
        self._counted: set[str] = set()
        self._failed = 0
        self._prompt_tokens = self._completion_tokens = 0

    @property
    def usage(self) -> ChatUsage:
        """What the calls so far cost."""
        with self._lock:
            return ChatUsage(
                self._model.name,
                len(self._counted),
                self._failed,
                self._prompt_tokens,
                self._completion_tokens,
            )

    def ask(self, prompt: str, max_tokens: int) -> str:
        """Returns the reply. Raises HragError if the model fails, OSError if the journal does.

        An equal prompt waits for the call that is under way, and takes its reply if it succeeds.
        """
        key = key_of("chat", model=self._model.name, prompt=prompt, max_tokens=max_tokens)
        with self._turn(key):
            reply = self._journal.get(key, ChatText)
            if reply is None:
                reply = self._completed(prompt, max_tokens)
                self._journal.put(key, reply)
        self._count(key, reply)
        return reply.text

    def _turn(self, key: str) -> Lock:
        """The lock of all calls with this key."""
        with self._lock:
            return self._turns.setdefault(key, Lock())

    def _count(self, key: str, reply: ChatText) -> None:
        with self._lock:
            if key not in self._counted:
                self._counted.add(key)
                self._prompt_tokens += reply.prompt_tokens
                self._completion_tokens += reply.completion_tokens

    def _completed(self, prompt: str, max_tokens: int) -> ChatText:
        try:
            done = self._model.complete(prompt, max_tokens, NEVER)
        except HragError:
            with self._lock:
                self._failed += 1
            raise
        return ChatText(done.text, done.end.prompt_tokens, done.end.completion_tokens)

    def check_reachable(self, error: HragError) -> None:
        """Raises `error` if the first calls have all failed; more would fail too."""
        usage = self.usage
        if not usage.calls and usage.failed >= _FAILURES_AT_FIRST:
            raise error


def prompt_template(name: str) -> Template:
    """Returns one of the prompts that lie beside this module."""
    return Template(resources.files("hrag.evaluation").joinpath(name).read_text("utf-8"))


def in_threads(
    work: Callable[[Task], Done], tasks: Sequence[Task], concurrency: int
) -> Iterator[Done]:
    """Yields the results in the tasks' order; the first exception cancels what has not begun."""
    with ThreadPoolExecutor(concurrency) as pool:
        futures: list[Future[Done]] = [pool.submit(work, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
