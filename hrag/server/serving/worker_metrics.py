"""The metrics of all worker processes, collected by their supervisor.

Each worker serves its own metrics on loopback. The supervisor scrapes them whenever it is
scraped and adds the label `worker`, the number of the worker's slot. It aggregates nothing:
a sum is right for calls and wrong for a lag, and the query decides. The counters of a
replacement worker start at 0, as after a restart.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from hrag.observe.metrics import Reading, Readings
from hrag.server.serving.metrics_access import OPEN, MetricsAccess

_TIMEOUT_S = 2.0  # For each worker; Prometheus gives up a scrape after ten seconds by default.

_http = build_opener(ProxyHandler({}))


class WorkerMetrics:
    """A Prometheus collector of the workers' metrics."""

    def __init__(self, ports: Sequence[int], access: MetricsAccess = OPEN) -> None:
        """`ports` has the metrics port of each slot, 0 where no worker serves.

        The supervisor keeps it up to date. `access` is that of the workers.
        """
        self._ports = ports
        self._access = access
        self._own = Readings(self._read)

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics of all serving workers, and the supervisor's own."""
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
        return [*families.values(), *self._own.collect()]

    def _read(self) -> list[Reading]:
        return [
            Reading("hrag_workers", len(self._ports)),
            Reading("hrag_workers_serving", sum(port > 0 for port in self._ports)),
        ]


def _scrape(port: int, access: MetricsAccess) -> list[Metric]:
    """Returns nothing for a worker that is not serving, or that exits meanwhile."""
    if port:
        request = Request(f"http://127.0.0.1:{port}/", headers=access.headers())
        # A page that ends too early raises HTTPException, half a line ValueError.
        failures = suppress(OSError, HTTPException, ValueError)
        with failures, _http.open(request, timeout=_TIMEOUT_S) as page:
            return list(text_string_to_metric_families(page.read().decode()))
    return []
