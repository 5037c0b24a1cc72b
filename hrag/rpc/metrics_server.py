"""An HTTP server for metrics, in Prometheus' text format, on a port of its own."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric

from hrag.net.addresses import cannot_listen


class Collector(Protocol):
    """A source of metrics."""

    def collect(self) -> Iterable[Metric]:
        """Returns the current metrics."""


@contextmanager
def serve_metrics(address: str, *collectors: Collector) -> Iterator[int]:
    """Serves the metrics of `collectors` at `address`, `host:port`; yields the bound port.

    Serves nothing and yields 0 if `address` is empty. Raises ServiceUnavailable if the
    address cannot be bound.
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
        raise cannot_listen(address, "metrics") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
