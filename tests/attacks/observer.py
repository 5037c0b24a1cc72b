"""Observes what others notice of an attack: health checks, another tenant's calls, and memory.

Each connection makes one call at a time, and a call is due at each tick of a clock. If a call is
still running at a tick, the tick counts as a call that waits until this one ends. So a service that
stops for a second is noticed by all calls of that second, and not by one of a thousand.
"""

import json
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from hrag.cli.processes import GATEWAY
from hrag.client.calls import channel_options
from hrag.types import Document, IngestResult, SearchMode
from hrag.v1 import indexer_pb2, retriever_pb2
from tests.attacks.attackers import MARKERS, Target, attacking
from tests.attacks.observed import memory_bytes, seconds
from tests.attacks.world import ATTACKER, SEARCH, VICTIM, Guarded, guarded_services
from tests.support.servers.forked import Forked, program_with_output
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import Process, Start, started
from tests.support.until import until

Call = Callable[[], object]

_HEALTH = "/grpc.health.v1.Health/Check"
_DOCUMENT = "/hrag.v1.IndexerService/GetDocument"
_TIMEOUT_S = 30.0
_HEALTH_PERIOD_S, _CALL_PERIOD_S = 0.05, 0.01
_POLL_S = 0.05
# The attacker's documents: each has a chunk of about 1 MB, most of it spaces.
_LARGE_DOCUMENTS = 8
_LARGE = ("word " + " " * 8000) * 120
_NUMBERED_DOCUMENTS = 100
_WARM_UP_S = 1.0
# The most seconds of an answer that counts as full service.
_FULL_SERVICE_S = 0.1
# The chat model is a process of its own, because its threads would delay those of the observer.
_CHAT_MODEL = "from tests.attacks.observer import run_chat_model; run_chat_model()"


@dataclass(frozen=True)
class Bounds:
    """What others may notice of an attack.

    The percentiles of another tenant's calls may be this many times those without an attack, or the
    floor, if that is more.
    """

    health_s: float = 0.1
    p50_ratio: float = 2.0
    p99_ratio: float = 3.0
    p50_floor_s: float = 0.0
    p99_floor_s: float = 0.0
    growth_bytes: int = 300 << 20
    recovery_s: float = 1.0


@dataclass
class Observation:
    """What was noticed during some seconds.

    `health` and `calls` have the latencies of each service: of health checks, and of calls of
    another tenant. `failures` are the errors of these calls. `growth_bytes` is how much larger each
    service was than at the beginning, at most.
    """

    health: dict[str, "Latencies"] = field(default_factory=lambda: defaultdict(Latencies))
    calls: dict[str, "Latencies"] = field(default_factory=lambda: defaultdict(Latencies))
    failures: list[str] = field(default_factory=list)
    growth_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    recovery_s: float = 0.0

    @property
    def slowest_health_s(self) -> float:
        return max(latencies.longest_s() for latencies in self.health.values())

    @property
    def largest_growth_bytes(self) -> int:
        return max(self.growth_bytes.values())

    def missed(self, quiet: "Observation", bounds: Bounds) -> Iterator[str]:
        """Yields a sentence for each bound that was missed, compared with `quiet`."""
        if self.failures:
            yield f"{len(self.failures)} calls failed, the first with {self.failures[0]}"
        for service, health in self.health.items():
            if health.longest_s() > bounds.health_s:
                yield f"{service}: a health check took {health.longest_s():.3f} s"
        for service, calls in self.calls.items():
            before = quiet.calls[service]
            p50_s, p99_s = calls.p50_s(), calls.p99_s()
            if p50_s > max(bounds.p50_ratio * before.p50_s(), bounds.p50_floor_s):
                yield f"{service}: the p50 is {before.p50_s():.4f} s quiet, {p50_s:.4f} s attacked"
            if p99_s > max(bounds.p99_ratio * before.p99_s(), bounds.p99_floor_s):
                yield f"{service}: the p99 is {before.p99_s():.4f} s quiet, {p99_s:.4f} s attacked"
        for service, growth in self.growth_bytes.items():
            if growth > bounds.growth_bytes:
                yield f"{service}: the memory grew by {growth >> 20} MiB"
        if self.recovery_s > bounds.recovery_s:
            yield f"full service came back after {self.recovery_s:.2f} s"


@dataclass
class Latencies:
    """Latencies in seconds, of calls and of the ticks that passed while a call was running."""

    calls: list[float] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)

    def p50_s(self) -> float:
        return statistics.median(self.calls)

    def p99_s(self) -> float:
        return statistics.quantiles([*self.calls, *self.ticks], n=100)[-1]

    def longest_s(self) -> float:
        return max(self.calls)


class Observer:
    """Both services, a gateway, and the calls of another tenant, each over its own connection."""

    def __init__(self, guarded: Guarded, gateway: Process, clock: Callable[[], float]) -> None:
        """Observes with a clock in seconds."""
        services = guarded.services
        self.target = Target(
            services.indexer.address,
            services.retriever.address,
            gateway.address,
            guarded.attacker_key,
            str(guarded.key_file),
        )
        self._processes = {
            "indexer": services.indexer,
            "retriever": services.retriever,
            "gateway": gateway,
        }
        self._victim_key = guarded.victim_key
        self._clock = clock

    @contextmanager
    def observing(self) -> Iterator[Observation]:
        """Makes the calls during the block."""
        observation, ending = Observation(), threading.Event()
        with ExitStack() as connections:
            threads = [
                threading.Thread(
                    target=_repeat, args=(*observed, observation.failures, ending, self._clock)
                )
                for observed in self._observed(observation, connections)
            ]
            watch = threading.Thread(target=self._watch_memory, args=(observation, ending))
            threads.append(watch)
            for thread in threads:
                thread.start()
            try:
                yield observation
            finally:
                ending.set()
                for thread in threads:
                    thread.join()

    def observe(self, duration_s: float) -> Observation:
        """Makes the calls for some seconds."""
        with self.observing() as observation:
            until_s = self._clock() + duration_s
            while self._clock() < until_s:
                time.sleep(_POLL_S)
        return observation

    def under_attack(self, name: str, duration_s: float) -> Observation:
        """Makes the calls during an attack, and measures how soon there is full service again."""
        with attacking(name, self.target):
            observation = self.observe(duration_s)
        observation.recovery_s = self.seconds_until_full_service()
        return observation

    def seconds_until_full_service(self) -> float:
        """Returns the seconds until every service answers everybody over a new connection.

        Each answer may take at most a tenth of a second.
        """
        began = self._clock()
        until(self.serves_fully, _TIMEOUT_S)
        return self._clock() - began

    def serves_fully(self) -> bool:
        """Returns True if every service answers everybody at once over a new connection."""
        with ExitStack() as connections:
            calls = [
                *_health_checks(self._processes, connections).values(),
                *_calls(self.target, self._victim_key, VICTIM, connections).values(),
                *_calls(self.target, self.target.key, ATTACKER, connections).values(),
            ]
            try:
                return all(seconds(call) < _FULL_SERVICE_S for call in calls)
            except (OSError, grpc.RpcError, AssertionError):
                return False

    def _observed(
        self, observation: Observation, connections: ExitStack
    ) -> Iterator[tuple[Call, float, Latencies]]:
        """Yields each call with its period in seconds, and the latencies to which it adds."""
        for service, check in _health_checks(self._processes, connections).items():
            yield check, _HEALTH_PERIOD_S, observation.health[service]
        calls = _calls(self.target, self._victim_key, VICTIM, connections)
        for service, call in calls.items():
            yield call, _CALL_PERIOD_S, observation.calls[service]

    def _watch_memory(self, observation: Observation, ending: threading.Event) -> None:
        before = {name: memory_bytes(process) for name, process in self._processes.items()}
        while not ending.wait(_HEALTH_PERIOD_S):
            for name, process in self._processes.items():
                growth = memory_bytes(process) - before[name]
                observation.growth_bytes[name] = max(observation.growth_bytes[name], growth)


def _repeat(
    call: Call,
    period_s: float,
    latencies: Latencies,
    failures: list[str],
    ending: threading.Event,
    clock: Callable[[], float],
) -> None:
    call()  # The first call connects.
    due_s = clock()
    while not ending.wait(max(0.0, due_s - clock())):
        began_s = clock()
        try:
            call()
        except (OSError, grpc.RpcError, AssertionError) as error:
            failures.append(repr(error))
        ended_s = clock()
        latencies.calls.append(ended_s - began_s)
        due_s += period_s
        while due_s < ended_s:
            latencies.ticks.append(ended_s - due_s)
            due_s += period_s


def _health_checks(processes: Mapping[str, Process], connections: ExitStack) -> dict[str, Call]:
    message = health_pb2.HealthCheckRequest().SerializeToString()
    checks: dict[str, Call] = {
        name: _unary(processes[name].address, _HEALTH, message, "", connections)
        for name in ("indexer", "retriever")
    }
    live = _http(processes["gateway"].address, "GET", "/healthz/live", None, "", connections)
    return {**checks, "gateway": live}


def _calls(target: Target, key: str, tenant_id: str, connections: ExitStack) -> dict[str, Call]:
    """Returns a call of a tenant to each service: a search, directly and through the gateway."""
    search = retriever_pb2.SearchRequest(tenant_id=tenant_id, text="which ship passed", limit=3)
    read = indexer_pb2.GetDocumentRequest(tenant_id=tenant_id, document_id="log")
    body = json.dumps({"tenantId": tenant_id, "text": "which ship passed", "limit": 3}).encode()
    return {
        "retriever": _unary(target.retriever, SEARCH, search.SerializeToString(), key, connections),
        "indexer": _unary(target.indexer, _DOCUMENT, read.SerializeToString(), key, connections),
        "gateway": _http(target.gateway, "POST", SEARCH, body, key, connections),
    }


def _unary(address: str, method: str, message: bytes, key: str, connections: ExitStack) -> Call:
    # Retries would hide failures.
    options = [*channel_options(address), ("grpc.enable_retries", 0)]
    channel = connections.enter_context(grpc.insecure_channel(address, options))
    call: Callable[..., Any] = channel.unary_unary(method)
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    return lambda: call(message, metadata=metadata, timeout=_TIMEOUT_S)


def _http(
    address: str, method: str, path: str, body: bytes | None, key: str, connections: ExitStack
) -> Call:
    connection = HTTPConnection(address, timeout=_TIMEOUT_S)
    connections.callback(connection.close)
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}

    def call() -> None:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        reply = response.read()
        assert response.status == 200, reply

    return call


@contextmanager
def observed_services(
    folder: Path,
    start: Start = Forked,
    *,
    chat_model: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Observer]:
    """Runs both services and a gateway, with documents that attackers need.

    Settings are the default, except for the embedder and, if `chat_model`, a chat model that writes
    nothing but markers. `clock` returns seconds.
    """
    with ExitStack() as ending:
        settings = ending.enter_context(_chat_model()) if chat_model else {}
        guarded = ending.enter_context(guarded_services(folder, start, settings))
        gateway_settings = _gateway_settings(guarded)
        gateway = ending.enter_context(
            started(GATEWAY, folder / "gateway", gateway_settings, start=start)
        )
        with guarded.attacker() as attacker:
            for result in attacker.ingest_many(ATTACKER, _attackers_documents()):
                assert isinstance(result, IngestResult), result
            # The first search of this mode reads the table of tokens.
            attacker.search(ATTACKER, "which ship passed", mode=SearchMode.CONTEXT)
        observer = Observer(guarded, gateway, clock)
        until(observer.serves_fully)
        observer.observe(_WARM_UP_S)
        yield observer


def _attackers_documents() -> Iterator[Document]:
    for number in range(_LARGE_DOCUMENTS):
        yield Document(f"{number} {_LARGE}", f"large-{number}")
    for number in range(_NUMBERED_DOCUMENTS):
        yield Document(f"A word {number}.", metadata={"number": number})


@contextmanager
def _chat_model() -> Iterator[dict[str, str]]:
    """Runs the chat model; yields the settings by which a retriever uses it."""
    with program_with_output("-c", _CHAT_MODEL) as (_, lines):
        yield {"HRAG_CHAT_MODEL": "m", "HRAG_CHAT_BASE_URL": lines.readline().strip()}


def run_chat_model() -> None:
    """Runs a chat model that writes nothing but markers, and prints its URL."""
    with OpenAIServer() as chat:
        chat.script = lambda _: MARKERS
        print(chat.base_url, flush=True)  # noqa: T201 - the parent process waits for this line
        signal.pause()


def _gateway_settings(guarded: Guarded) -> dict[str, str]:
    services = guarded.services
    return {
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
    }
