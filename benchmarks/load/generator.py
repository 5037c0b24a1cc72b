"""An open-loop load generator: sends each call when it is due, even if earlier calls still run.

The load does not slow down when the server does, just as users do not. Only the number of calls in
flight is bounded. Calls beyond that number are counted as UNSENT.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import grpc
import grpc.aio

from benchmarks.load.figures import OK, UNSENT, Figures, Outcome, joined
from benchmarks.load.work import Work
from hrag.client.calls import channel_options

Send = Callable[[int], Awaitable[str]]

# With several processes, the first call is due after this time, so that all processes are ready.
SPAWN_S = 3.0
# After this many overdue calls in a row, the event loop gets a chance to read replies.
_YIELD_EVERY = 16


@dataclass(frozen=True, slots=True)
class Target:
    """The services' addresses, and the options of connections and calls."""

    indexer: str
    retriever: str
    timeout_s: float = 5.0
    connections: int = 4
    """Each process has this many connections to each service, and uses them in turn."""
    max_in_flight: int = 10_000
    """The largest number of calls that each process has in flight."""


def run(work: Work, target: Target, processes: int = 1) -> Figures:
    """Runs a load and returns all outcomes.

    The calls are distributed over the processes in turn.
    """
    begin_s = time.monotonic() + (SPAWN_S if processes > 1 else 0.0)
    if processes == 1:
        return _run_part(work, target, range(work.count), begin_s)
    # The processes are spawned, because gRPC does not survive a fork.
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning) as pool:
        parts = [
            pool.submit(_run_part, work, target, range(first, work.count, processes), begin_s)
            for first in range(processes)
        ]
        return joined(part.result() for part in parts)


def _run_part(work: Work, target: Target, numbers: Sequence[int], begin_s: float) -> Figures:
    return asyncio.run(_send_part(work, target, numbers, begin_s))


async def _send_part(work: Work, target: Target, numbers: Sequence[int], begin_s: float) -> Figures:
    channels = [
        {
            service: grpc.aio.insecure_channel(address, options=_options(address))
            for service, address in (("indexer", target.indexer), ("retriever", target.retriever))
        }
        for _ in range(target.connections)
    ]
    turns = cycle(channels)

    async def send(number: int) -> str:
        call = work.call(number)
        service = f"hrag.v1.{call.service.capitalize()}Service"
        method = next(turns)[call.service].unary_unary(
            f"/{service}/{call.method}", request_serializer=_bytes_of
        )
        try:
            await method(call.request, timeout=target.timeout_s)
        except grpc.RpcError as error:
            return str(error.code().name)
        return OK

    try:
        return await drive(work, send, numbers, begin_s, target.max_in_flight)
    finally:
        for services in channels:
            for channel in services.values():
                await channel.close()


async def drive(
    work: Work, send: Send, numbers: Sequence[int], begin_s: float, max_in_flight: int
) -> Figures:
    """Sends each call when it is due, waits for all of them, and returns their outcomes.

    `begin_s` is the start of the load by `time.monotonic`.
    """
    outcomes: list[Outcome] = []
    in_flight: set[asyncio.Task[None]] = set()

    async def send_when_due(number: int, due_s: float) -> None:
        sent_s = time.monotonic() - begin_s
        code = await send(number)
        ended_s = time.monotonic() - begin_s
        outcomes.append(Outcome(due_s, sent_s, ended_s, code, work.writes(number)))

    for index, number in enumerate(numbers):
        due_s = work.due_s(number)
        wait_s = begin_s + due_s - time.monotonic()
        if wait_s > 0 or index % _YIELD_EVERY == 0:
            await asyncio.sleep(max(0.0, wait_s))
        if len(in_flight) >= max_in_flight:
            now_s = time.monotonic() - begin_s
            outcomes.append(Outcome(due_s, now_s, now_s, UNSENT, work.writes(number)))
            continue
        task = asyncio.create_task(send_when_due(number, due_s))
        in_flight.add(task)
        task.add_done_callback(in_flight.discard)
    await asyncio.gather(*in_flight)
    return joined([Figures(outcomes)])


def _options(address: str) -> list[tuple[str, Any]]:
    # Retries would hide failures and add load.
    return [*channel_options(address), ("grpc.enable_retries", 0)]


def _bytes_of(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data
