"""Serves metrics over HTTP, in Prometheus' text form, on a port of their own."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric

from hrag.errors import ServiceUnavailable


class Collector(Protocol):
    """Has metrics to show."""

    def collect(self) -> Iterable[Metric]: ...


@contextmanager
def exposed(address: str, *collectors: Collector) -> Iterator[int]:
    """Shows what `collectors` have at `address`, `host:port`; yields the port it got.

    An empty address shows nothing and yields 0. Raises ServiceUnavailable if the address
    cannot be had.
    """
    if not address:
        yield 0
        return
    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as error:
        raise ServiceUnavailable(
            f"cannot listen on {address} for metrics: it is in use or no address of this machine"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
