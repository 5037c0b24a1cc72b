"""Runs services, sends them generated messages and checks their invariants."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import grpc

from hrag.client import Client
from hrag.client.calls import channel_options
from hrag.server.auth import Role
from tests.endurance.processes import MB, memory_of
from tests.fuzz.calls import CALLS, Caller, Outcome
from tests.fuzz.messages import Messages, readable
from tests.fuzz.world import NAMES, OTHER, OWN, SETTINGS, restore_collections, seeds, stored_of
from tests.support.servers.credentials import new_key
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import FAST, Process, Running, running

# The memory of a service may grow by this much in a run. The memory that the allocator keeps after
# large documents or replies varies by 20 MB. An endurance run has 5,000 messages between the
# middles of its halves, so a leak of 5 KB per message is detected.
MAX_GROWN_BYTES = 24 * MB

# So many threads send messages, because the retriever runs this many answers concurrently.
_AT_ONCE = 8
# Collections are restored before each batch of this many messages, so that deletions in a later
# batch find documents.
_BATCH = 500
_STREAM = 20
_SHOWN = 4000


@dataclass
class Figures:
    """The status codes, the longest duration and the memory of a run of messages to one method."""

    codes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    memory_bytes: list[float] = field(default_factory=list)

    @property
    def grown_bytes(self) -> float:
        """The median memory in the second half of a run minus the median in the first half."""
        half = len(self.memory_bytes) // 2
        if not half:
            return 0.0
        return median(self.memory_bytes[half:]) - median(self.memory_bytes[:half])

    def __str__(self) -> str:
        codes = ", ".join(f"{count} {code}" for code, count in self.codes.most_common())
        grown = self.grown_bytes / MB
        return f"{codes}; slowest {self.slowest_s:.2f} s; memory {grown:+.1f} MB"


@dataclass(frozen=True)
class Target:
    """Both services under test.

    `key` is the API key of the sending tenant. It is empty if the services require no key.
    """

    services: Running
    operator: Client
    key: str

    def fire(self, path: str, count: int, seed: int) -> Figures:
        """Sends `count` messages to a method. Raises AssertionError if an invariant is violated."""
        process = self._process(path)
        draw = random.Random(f"{seed} {path}")
        kind = CALLS[path].input_type
        messages = Messages(kind, seeds()[kind], NAMES)
        figures = Figures()
        with grpc.insecure_channel(process.address, channel_options(process.address)) as channel:
            caller = Caller(channel, path, self.key)
            for start in range(0, count, _BATCH):
                sent = [messages.message(draw) for _ in range(min(_BATCH, count - start))]
                self._batch(caller, sent, figures, f"{path}, FUZZ_SEED={seed}")
                figures.memory_bytes.append(memory_of(process).anon_bytes)
        assert figures.grown_bytes < MAX_GROWN_BYTES, f"{path}: {figures}"
        return figures

    def _process(self, path: str) -> Process:
        return self.services.indexer if "Indexer" in path else self.services.retriever

    def _batch(self, caller: Caller, sent: list[bytes], figures: Figures, context: str) -> None:
        restore_collections(self.operator)
        others = stored_of(self.operator, OTHER)
        for outcome in _outcomes(caller, sent):
            figures.codes[outcome.code.name] += 1
            figures.slowest_s = max(figures.slowest_s, outcome.seconds)
            if caller.problem(outcome):
                self._check_processes()
                raise AssertionError(f"{context}: {_explained(caller, caller.smallest(outcome))}")
        self._check_processes()
        if self.key:
            assert stored_of(self.operator, OTHER) == others, f"{context}: wrote to another tenant"

    def _check_processes(self) -> None:
        for process in (self.services.indexer, self.services.retriever):
            log = process.log
            assert process.is_running, log
            assert "internal_error" not in log, log
            assert "Traceback" not in log, log


@contextmanager
def under_fire(folder: Path, *, keyed: bool) -> Iterator[Target]:
    """Runs services with a chat model; with `keyed` they require API keys.

    Checks the store at the end.
    """
    keys = folder / "keys.json"
    own_key, operator_key = (new_key(keys, tenant, role=Role.ADMIN) for tenant in (OWN, "*"))
    with OpenAIServer() as chat:
        settings = {
            **FAST,
            **SETTINGS,
            "HRAG_CHAT_MODEL": "test",
            "HRAG_CHAT_BASE_URL": chat.base_url,
            "HRAG_LOG_LEVEL": "warning",
        }
        if keyed:
            settings |= {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(keys)}
        with (
            running(folder / "store", settings) as services,
            Client(
                services.indexer.address, services.retriever.address, token=operator_key
            ) as operator,
        ):
            yield Target(services, operator, own_key if keyed else "")


def _outcomes(caller: Caller, sent: Sequence[bytes]) -> Iterator[Outcome]:
    size = _STREAM if caller.method.client_streaming else 1
    groups = [sent[start : start + size] for start in range(0, len(sent), size)]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for outcomes in threads.map(lambda group: list(caller.feed(group)), groups):
            yield from outcomes


def _explained(caller: Caller, outcome: Outcome) -> str:
    """Returns a description of a failure with the messages that reproduce it."""
    lines = [caller.problem(outcome)]
    for raw in outcome.sent:
        message = readable(caller.method.input_type, raw)
        lines += [raw[:_SHOWN].hex(), f"as a message: {message}"[:_SHOWN]]
    return "\n".join(lines)
