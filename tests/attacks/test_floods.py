"""Floods of calls and of headers neither end nor block the calls of another tenant."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import grpc
import pytest

from hrag.errors import HragError
from hrag.values.limits import MAX_CALL_METADATA_PAIRS
from tests.attacks.http2 import Connection, ReferenceSender, half_open
from tests.attacks.observed import (
    MAX_GROWTH_BYTES,
    MAX_RATIO,
    MAX_S,
    health_s,
    memory_bytes,
    repeated,
    typical_s,
)
from tests.attacks.world import SEARCH, Guarded
from tests.support.until import until

pytestmark = pytest.mark.attacks

_FLOODING_CALLS = 8800
_RESETS = 1000
_RESETTING_CONNECTIONS = 4
_ATTACK_S = 4.0


@contextmanager
def _searches(guarded: Guarded, threads: int = 4) -> Iterator[Counter[str]]:
    """Searches as the other tenant in several threads; counts the outcomes."""
    outcomes: Counter[str] = Counter()
    ending = threading.Event()

    def search() -> None:
        while not ending.is_set():
            try:
                guarded.search()
                outcome = "ok"
            except HragError as error:
                outcome = f"{type(error).__name__}: {error}"
            outcomes[outcome] += 1

    started = [threading.Thread(target=search) for _ in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield outcomes
    finally:
        ending.set()
        for thread in started:
            thread.join()


def _half_open_calls(guarded: Guarded) -> None:
    with half_open(guarded.services.retriever.address, SEARCH, _FLOODING_CALLS):
        guarded.search()


def _rapid_resets(guarded: Guarded) -> None:
    for _ in range(2):
        connections = [
            Connection(guarded.services.retriever.address) for _ in range(_RESETTING_CONNECTIONS)
        ]
        for connection in connections:
            with closing(connection):
                connection.open_and_reset(SEARCH, _RESETS)
                connection.wait_until_read()


@pytest.mark.parametrize("flood", [_half_open_calls, _rapid_resets])
def test_a_flood_of_calls_ends_no_call_of_another_tenant(
    guarded: Guarded, flood: Callable[[Guarded], None]
) -> None:
    with _searches(guarded) as outcomes:
        flood(guarded)
    assert set(outcomes) == {"ok"}, outcomes


def test_references_to_one_header_neither_block_searches_nor_fill_the_memory(
    guarded: Guarded,
) -> None:
    """gRPC expands 12 KB of references to more than 1 MB, and does so for each call."""
    retriever = guarded.services.retriever
    allowed_s = max(MAX_S, MAX_RATIO * typical_s(guarded.search))
    before = largest = memory_bytes(retriever)
    connect = partial(Connection, retriever.address, acknowledges=False)
    sender = ReferenceSender(connect, SEARCH)
    until_s = time.monotonic() + _ATTACK_S
    with closing(sender), repeated(sender, 1):
        while time.monotonic() < until_s:
            assert typical_s(lambda: health_s(retriever)) < allowed_s
            assert typical_s(guarded.search) < allowed_s
            largest = max(largest, memory_bytes(retriever))
        # The service ends the connection of such calls.
        until(lambda: sender.connections > 1)
    assert largest - before < MAX_GROWTH_BYTES
    until(lambda: "connection_ended" in retriever.log)


@pytest.mark.parametrize("method", [SEARCH, "/hrag.v1.NoService/NoMethod"])
def test_a_connection_whose_call_has_far_too_many_metadata_pairs_is_ended(
    guarded: Guarded, method: str
) -> None:
    address = guarded.services.retriever.address
    with closing(Connection(address, acknowledges=False)) as connection:
        connection.open_with_references(method, 5 * MAX_CALL_METADATA_PAIRS)
        assert connection.wait_until_closed(60)
    guarded.search()


def test_too_many_metadata_pairs_are_an_invalid_argument(guarded: Guarded) -> None:
    # gRPC itself refuses calls with more than 8 KB of metadata, with another status. A pair counts
    # as 34 bytes.
    pairs = [("a", "b")] * (MAX_CALL_METADATA_PAIRS + 1)
    with grpc.insecure_channel(guarded.services.retriever.address) as channel:
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(SEARCH)(b"", metadata=pairs, timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"{MAX_CALL_METADATA_PAIRS} are allowed" in caught.value.details()
