"""The metrics of all workers, shown by their supervisor in one place.

Each worker shows its own on loopback; they are read when somebody looks and get the label
`worker`, the number of its place. Nothing is added up here: a sum is right for calls and
wrong for a lag, and whoever asks knows which. A new worker begins at 0, as after a restart.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from urllib.request import ProxyHandler, build_opener

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from hrag.metrics import Reading, Readings

_TIMEOUT_S = 2.0  # Of a worker; scrapers give up after ten seconds by default.

_http = build_opener(ProxyHandler({}))


class Gathered:
    """`ports` has one number per worker, 0 where none serves; somebody else keeps it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._own = Readings(self._read)

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for number, port in enumerate(self._ports):
            for family in _shown_at(port):
                known = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                known.samples += [
                    sample._replace(labels={**sample.labels, "worker": str(number)})
                    for sample in family.samples
                ]
        return [*families.values(), *self._own.collect()]

    def _read(self) -> list[Reading]:
        return [
            Reading("hrag_workers", len(self._ports)),
            Reading("hrag_workers_serving", sum(port > 0 for port in self._ports)),
        ]


def _shown_at(port: int) -> list[Metric]:
    """Nothing of a worker that does not serve, or has just ended."""
    if port:
        with suppress(OSError), _http.open(f"http://127.0.0.1:{port}/", timeout=_TIMEOUT_S) as page:
            return list(text_string_to_metric_families(page.read().decode()))
    return []
