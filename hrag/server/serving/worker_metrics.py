"""The metrics of all worker processes, collected by their supervisor.

Each worker serves its metrics on loopback. When the supervisor is scraped, it scrapes the workers
and adds the label `worker` with the index of the worker, from 0. A worker that replaces an exited
worker gets the index of the exited worker, but starts its counters at 0, as after a restart. The
supervisor does not aggregate the metrics of workers, because a sum is right for a count of calls
but wrong for a lag. Queries in Prometheus can aggregate as needed.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from hrag.observe.metrics import Reading, Readings
from hrag.server.serving.metrics_access import UNRESTRICTED, MetricsAccess

# The time limit for scraping one worker. It is shorter than the ten seconds after which Prometheus
# ends a scrape by default.
_TIMEOUT_S = 2.0

_http = build_opener(ProxyHandler({}))


class WorkerMetrics:
    """A Prometheus collector of the workers' metrics."""

    def __init__(self, ports: Sequence[int], access: MetricsAccess = UNRESTRICTED) -> None:
        """Creates the collector for the workers at `ports`.

        `ports` has the metrics port of each worker, or 0 while the worker does not serve. The
        supervisor updates `ports`. `access` has the token and the TLS context of these ports.
        """
        self._ports = ports
        self._access = access
        self._supervisor_readings = Readings(self._read)

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics of all serving workers and of the supervisor."""
        families: dict[str, Metric] = {}
        for slot, port in enumerate(self._ports):
            for family in _scrape(port, self._access):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                merged.samples += [
                    sample._replace(labels={**sample.labels, "worker": str(slot)})
                    for sample in family.samples
                ]
        return [*families.values(), *self._supervisor_readings.collect()]

    def _read(self) -> list[Reading]:
        return [
            Reading("hrag_workers", len(self._ports)),
            Reading("hrag_workers_serving", sum(port > 0 for port in self._ports)),
        ]


def _scrape(port: int, access: MetricsAccess) -> list[Metric]:
    """Returns the metrics of a worker.

    Returns an empty list if the worker is not serving, or exits during the scrape.
    """
    if port:
        request = Request(f"http://127.0.0.1:{port}/", headers=access.headers())
        # A reply that ends too early raises HTTPException. An incomplete line raises ValueError.
        failures = suppress(OSError, HTTPException, ValueError)
        with failures, _http.open(request, timeout=_TIMEOUT_S) as page:
            return list(text_string_to_metric_families(page.read().decode()))
    return []
