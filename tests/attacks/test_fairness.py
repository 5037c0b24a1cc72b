"""Other tenants are served while one tenant sends many or costly calls or reads no replies."""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest

from hrag.client import Client
from hrag.errors import TooBusy
from hrag.types import Document, SearchMode, SearchQuery, SearchResult
from hrag.v1 import retriever_pb2 as pb
from tests.attacks.http2 import Connection
from tests.attacks.observed import (
    MAX_GROWTH_BYTES,
    MAX_RATIO,
    MAX_S,
    health_s,
    memory_bytes,
    p99_s,
    repeated,
    threads_of,
    typical_s,
)
from tests.attacks.world import (
    ATTACKER,
    BATCH_SEARCH,
    SEARCH,
    UNREAD,
    Guarded,
    everything_at_once,
    large_batch,
)
from tests.support.servers.processes import FAST, running
from tests.support.until import until

pytestmark = pytest.mark.attacks

_CALLS_PER_CONNECTION = 300
# The most seconds to wait until one second's worth of calls is sent. A busy machine is slow.
_FLOODED_S = 60.0

# The most memory by which unread replies may enlarge the retriever. gRPC stores a tenant's 64 MiB
# of unread replies twice, and each of 16 threads needs up to three times 3 MiB for the reply that
# it builds: together 272 MiB. Without a limit, 100 unread replies take over 600 MiB.
_UNREAD_GROWTH_BYTES = 384 << 20


@contextmanager
def _flood(guarded: Guarded, request: pb.SearchRequest, calls_per_s: int) -> Iterator[None]:
    """Sends `calls_per_s` calls per second in a thread, without reading replies.

    The block begins when the calls of the first second have been sent.
    """
    ending, flooded = threading.Event(), threading.Event()
    message = request.SerializeToString()
    address, key = guarded.services.retriever.address, guarded.attacker_key

    def send() -> None:
        sent = 0
        while not ending.is_set():
            connection = Connection(address, window_bytes=1 << 30)
            for _ in range(_CALLS_PER_CONNECTION):
                connection.call(SEARCH, message, key)
                sent += 1
                if sent == calls_per_s:
                    flooded.set()
                if ending.wait(1 / calls_per_s):
                    break
            connection.close()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        assert flooded.wait(_FLOODED_S)
        yield
    finally:
        ending.set()
        sender.join()


@pytest.mark.parametrize("mode", ["SENTENCE_WINDOW", "AUTO_MERGE", "CONTEXT"])
def test_costly_calls_of_one_tenant_do_not_block_searches_of_others(
    guarded: Guarded, mode: str
) -> None:
    costly = pb.SearchRequest(
        tenant_id=ATTACKER,
        text="ship lighthouse rocks keeper",
        mode=getattr(pb, f"SEARCH_MODE_{mode}"),
        candidates=10_000,
    )
    if mode != "CONTEXT":
        costly.limit = 100
    p99_s(guarded.search, 50)
    quiet = p99_s(guarded.search)
    with _flood(guarded, costly, 200):
        attacked = p99_s(guarded.search)
    problem = f"p99 {quiet * 1e3:.1f} ms quiet, {attacked * 1e3:.1f} ms under attack"
    assert attacked < max(MAX_RATIO * quiet, MAX_S), problem


def test_batches_of_costly_searches_do_not_block_searches_of_others(guarded: Guarded) -> None:
    """A batch has 32 searches with the most candidates, whose passages just fit into the reply."""
    with guarded.attacker() as attacker:
        for number in range(20):
            words = (f"word{(number + step * step) % 397}" for step in range(8000))
            attacker.ingest(ATTACKER, Document(" ".join(words), f"large{number}"))
        queries = [
            SearchQuery(
                ATTACKER,
                " ".join(f"word{(number * step) % 397}" for step in range(40)),
                mode=SearchMode.CONTEXT,
                candidates=10_000,
                token_budget=9_000,
            )
            for number in range(32)
        ]
        outcomes = attacker.batch_search(queries)
        assert [one for one in outcomes if not isinstance(one, SearchResult)] == []
        p99_s(guarded.search, 50)
        quiet = p99_s(guarded.search)
        with repeated(lambda: attacker.batch_search(queries, timeout_s=60), 4):
            attacked = p99_s(guarded.search)
    problem = f"p99 {quiet * 1e3:.1f} ms quiet, {attacked * 1e3:.1f} ms under attack"
    assert attacked < max(MAX_RATIO * quiet, MAX_S), problem


def test_waiting_calls_of_one_tenant_are_bounded(guarded: Guarded) -> None:
    """By default one tenant may have at most half of HRAG_MAX_CONCURRENT_CALLS waiting.

    So calls of other tenants can wait, too.
    """
    request = pb.SearchRequest(tenant_id=ATTACKER, text="ship", min_sequence=1 << 62)
    with grpc.insecure_channel(guarded.services.retriever.address) as channel:
        search = channel.unary_unary(SEARCH, pb.SearchRequest.SerializeToString)
        metadata = (("authorization", f"Bearer {guarded.attacker_key}"),)
        calls = [search.future(request, timeout=100, metadata=metadata) for _ in range(400)]
        until(lambda: sum(call.done() for call in calls) >= 272)
        assert typical_s(guarded.search) < MAX_S
        refusals = [call.exception() for call in calls if call.done()]
        for call in calls:
            call.cancel()
    assert Counter(error.code() for error in refusals) == {grpc.StatusCode.RESOURCE_EXHAUSTED: 272}
    assert any("HRAG_TENANT_MAX_WAITING_CALLS" in error.details() for error in refusals)


def test_unread_replies_are_bounded_and_their_calls_end(guarded: Guarded) -> None:
    """The client's HTTP/2 flow-control window has 0 bytes, so gRPC stores each reply in memory."""
    retriever = guarded.services.retriever
    guarded.search()
    before = memory_bytes(retriever)
    with closing(Connection(retriever.address, window_bytes=0)) as connection:
        for _ in range(UNREAD):
            connection.call(BATCH_SEARCH, large_batch(), guarded.attacker_key)
        largest, health = before, []
        began = time.monotonic()
        while time.monotonic() - began < 12:
            health.append(health_s(retriever))
            guarded.search()
            largest = max(largest, memory_bytes(retriever))
        assert statistics.median(health) < MAX_S
        assert largest - before < _UNREAD_GROWTH_BYTES
        with guarded.attacker() as attacker:
            until(lambda: _is_served(attacker))


def _is_served(attacker: Client) -> bool:
    """Returns True if the calls with unread replies keep the tenant from searching no longer."""
    try:
        return bool(attacker.search(ATTACKER, "ship", limit=100).passages)
    except TooBusy:
        return False


def test_all_attacks_at_once_do_not_block_searches_of_others(guarded: Guarded) -> None:
    processes = (guarded.services.retriever, guarded.services.indexer)
    p99_s(guarded.search, 50)
    quiet = p99_s(guarded.search)
    memory = [memory_bytes(process) for process in processes]
    threads = [threads_of(process) for process in processes]
    with everything_at_once(guarded):
        for process in processes:
            assert typical_s(lambda process=process: health_s(process)) < MAX_S
        assert p99_s(guarded.search) < max(MAX_RATIO * quiet, MAX_S)
        for process, before in zip(processes, memory, strict=True):
            assert memory_bytes(process) - before < MAX_GROWTH_BYTES
    for process, before in zip(processes, threads, strict=True):
        until(lambda process=process, before=before: threads_of(process) <= before + 5)


def test_a_call_without_a_deadline_gets_the_deadline_of_the_server(tmp_path: Path) -> None:
    settings = {**FAST, "HRAG_DEFAULT_DEADLINE_S": "1"}
    with running(tmp_path / "store", settings) as services:
        request = pb.SearchRequest(tenant_id=ATTACKER, text="ship", min_sequence=1 << 62)
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            services.raw_retriever.Search(request, timeout=None)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 30
