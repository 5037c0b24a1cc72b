"""A scrape of a service's metrics."""

from collections.abc import Mapping
from ssl import SSLContext
from urllib.request import Request, urlopen

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


class Scrape(Mapping[str, Metric]):
    """All metric families of one scrape, by name. Names of counters end with `_total`."""

    def __init__(self, address: str, token: str = "", tls: SSLContext | None = None) -> None:
        scheme = "http" if tls is None else "https"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = Request(f"{scheme}://{address}/metrics", headers=headers)
        with urlopen(request, timeout=60, context=tls) as page:
            self.text = page.read().decode()
        families = text_string_to_metric_families(self.text)
        self._families = {_written(family): family for family in families}

    def __getitem__(self, name: str) -> Metric:
        return self._families[name]

    def __iter__(self):
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)

    @property
    def ours(self) -> set[str]:
        """The names of the metric families that hrag defines, not its libraries."""
        return {name for name in self if name.startswith("hrag_")}

    @property
    def series(self) -> set[str]:
        """The names of all time series, for example of the buckets of a histogram."""
        return {sample.name for family in self.values() for sample in family.samples}

    def value(self, series: str, **labels: str) -> float:
        """Returns the sum of the samples with these labels; raises KeyError if there is none."""
        values = [
            sample.value
            for family in self.values()
            for sample in family.samples
            if sample.name == series and labels.items() <= sample.labels.items()
        ]
        if not values:
            raise KeyError(series, labels)
        return sum(values)


def _written(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name
