"""Running services serve metrics that Prometheus scrapes."""

import json
import os
import re
import signal
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import Metric

from hrag.cli.processes import INDEXER, free_addresses
from hrag.errors import HragError
from hrag.filters import Match
from hrag.server.serving.metrics_server import serve_metrics
from hrag.server.serving.worker_metrics import WorkerMetrics
from hrag.types import Document, SearchQuery, SettingsRequest, SummaryUnit
from hrag.v1 import retriever_pb2
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.openai_server import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    OpenAIServer,
    refuse,
)
from tests.support.servers.processes import FAST, Process, Running, running
from tests.support.servers.stores import is_embedded
from tests.support.until import until

_OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations"
_MANUAL = (_OPERATIONS / "monitoring.md").read_text("utf-8")
_STAGES = {"embed", "filter", "search", "climb", "fetch"}


_ALL_METRICS = pytest.mark.embedded_only("only this engine has all metrics")


@dataclass(frozen=True)
class Monitored:
    """Services, and the addresses of their metrics ports."""

    services: Running
    indexer: str
    retriever: str

    @property
    def indexed(self) -> Scrape:
        return Scrape(self.indexer)

    @property
    def retrieved(self) -> Scrape:
        return Scrape(self.retriever)


def _monitored_settings(settings: dict[str, str]) -> tuple[dict[str, str], str, str]:
    indexer, retriever = free_addresses(2)
    addresses = {
        "HRAG_INDEXER_METRICS_ADDRESS": indexer,
        "HRAG_RETRIEVER_METRICS_ADDRESS": retriever,
    }
    return {**FAST, **settings, **addresses}, indexer, retriever


@pytest.fixture(scope="module")
def monitored(
    tmp_path_factory: pytest.TempPathFactory, chat_endpoint: OpenAIServer
) -> Iterator[Monitored]:
    """Services with a quota file that build segments early, and an endpoint for their models."""
    quotas = tmp_path_factory.mktemp("quotas") / "quotas.toml"
    quotas.touch()
    settings, indexer, retriever = _monitored_settings(
        {
            "HRAG_EMBEDDER": "openai",
            "OPENAI_BASE_URL": chat_endpoint.base_url,
            "OPENAI_API_KEY": "sk-1",
            "HRAG_CHAT_MODEL": "m",
            "HRAG_SEGMENT_MIN_LEAVES": "64",
            "HRAG_TENANT_QUOTAS_FILE": str(quotas),
        }
    )
    with running(tmp_path_factory.mktemp("monitored") / "store", settings) as services:
        yield Monitored(services, indexer, retriever)


def test_calls_are_counted_by_method_and_code(monitored: Monitored, tenant: str) -> None:
    client = monitored.services.client
    before = monitored.retrieved
    client.ingest(tenant, Document("Cats sleep.", "a"))
    for _ in range(3):
        client.search(tenant, "cats")
    for wrong in ("nobody", "not a tenant"):
        with suppress(HragError):
            client.search(wrong, "cats")
    after = monitored.retrieved

    def counted(code: str, scrape: Scrape) -> float:
        return scrape.total("hrag_calls_total", method="Search", code=code)

    grown = {
        code: counted(code, after) - counted(code, before)
        for code in ("OK", "NOT_FOUND", "INVALID_ARGUMENT")
    }
    assert grown == {"OK": 3, "NOT_FOUND": 1, "INVALID_ARGUMENT": 1}
    assert after.value("hrag_call_seconds_count", method="Search") >= 5
    assert after.value("hrag_call_seconds_bucket", method="Search", le="+Inf") >= 5
    until(lambda: monitored.retrieved.value("hrag_calls_running") == 0)


def test_a_waiting_search_counts_as_a_running_call_but_occupies_no_thread(
    monitored: Monitored, tenant: str
) -> None:
    client = monitored.services.client
    client.ingest(tenant, Document("Cats sleep.", "a"))
    stub = monitored.services.raw_retriever
    request = retriever_pb2.SearchRequest(tenant_id=tenant, text="x", min_sequence=1 << 40)
    waiting = stub.Search.future(request, timeout=600)
    until(lambda: monitored.retrieved.value("hrag_calls_running") == 1)
    until(lambda: monitored.retrieved.value("hrag_threads_busy") == 0)
    waiting.cancel()


def test_stages_caches_and_models_are_counted(monitored: Monitored, tenant: str) -> None:
    client = monitored.services.client
    client.ingest(tenant, Document("Dogs bark at night.", "a"))
    before = monitored.retrieved
    for _ in range(2):
        client.search(tenant, f"what do the dogs of {tenant} do?")
    list(client.answer(SearchQuery(tenant, f"what do the dogs of {tenant} do?")))
    after = monitored.retrieved

    def grown(series: str, **labels: str) -> float:
        return after.value(series, **labels) - before.total(series, **labels)

    assert after.value("hrag_search_stage_seconds_count", stage="climb") >= 3
    stages = {s.labels["stage"] for s in after["hrag_search_stage_seconds"].samples}
    assert stages <= _STAGES
    assert grown("hrag_cache_lookups_total", cache="query", outcome="miss") == 1
    assert grown("hrag_cache_lookups_total", cache="query", outcome="hit") == 2
    assert after.value("hrag_chat_calls_total", outcome="ok") >= 1
    assert after.value("hrag_chat_tokens_total", kind="prompt") >= PROMPT_TOKENS
    assert after.value("hrag_chat_tokens_total", kind="completion") >= COMPLETION_TOKENS
    assert after.value("hrag_embedder_calls_total", outcome="ok") >= 1


def test_a_failing_embedder_is_counted(
    monitored: Monitored, chat_endpoint: OpenAIServer, tenant: str
) -> None:
    monitored.services.client.ingest(tenant, Document("Cats sleep.", "a"))
    chat_endpoint.inject(refuse(400))
    with pytest.raises(HragError):
        monitored.services.client.ingest(tenant, Document("Cows graze.", "b"))
    scrape = monitored.indexed
    assert scrape.value("hrag_embedder_calls_total", outcome="EmbedderRejected") >= 1
    assert scrape.value("hrag_documents_total", outcome="failed") >= 1


def test_documents_and_the_store_are_measured(monitored: Monitored, tenant: str) -> None:
    client = monitored.services.client
    client.create_collection(tenant, "c", SettingsRequest(summaries=SummaryUnit.CHUNK))
    text = "".join(f"Sentence {number} tells a story. " for number in range(3000))
    before = monitored.indexed
    documents = [Document(text, "a"), Document("Short.", "b"), Document("Short.", "b")]
    outcomes = list(client.ingest_many(tenant, documents, collection="c"))
    assert len(outcomes) == 3
    client.ingest(tenant, Document("Longer now.", "b"), collection="c")
    after = monitored.indexed

    def grown(series: str, **labels: str) -> float:
        return after.value(series, **labels) - before.total(series, **labels)

    assert grown("hrag_documents_total", outcome="created") == 2
    assert grown("hrag_documents_total", outcome="unchanged") == 1
    assert grown("hrag_documents_total", outcome="updated") == 1
    assert grown("hrag_store_documents") == 2
    assert grown("hrag_store_leaves") > 64
    stages = {s.labels["stage"] for s in after["hrag_ingest_stage_seconds"].samples}
    assert stages == {"extract", "cut", "embed", "commit"}
    until(lambda: monitored.indexed.value("hrag_store_unsummarised_documents") == 0)
    assert monitored.indexed.value("hrag_store_summaries") >= 2
    until(lambda: monitored.retrieved.value("hrag_reader_lag_seconds") == 0)


@pytest.mark.embedded_only("only this engine has segments, disk limits and loaded collections")
def test_segments_disk_and_memory_are_measured(monitored: Monitored, tenant: str) -> None:
    text = "".join(f"Sentence {number} tells a story. " for number in range(3000))
    monitored.services.client.ingest(tenant, Document(text, "a"))
    monitored.services.client.search(tenant, "a story")
    assert monitored.indexed.value("hrag_store_segment_min_leaves") == 64
    until(lambda: monitored.indexed.value("hrag_store_segments") >= 1)
    scrape = monitored.indexed
    assert scrape.value("hrag_segment_build_seconds_count", kind="tail") >= 1
    assert scrape.value("hrag_store_segment_bytes") > 0
    assert scrape.value("hrag_store_disk_free_bytes") > scrape.value(
        "hrag_store_disk_reserve_bytes"
    )
    sequence = scrape.value("hrag_store_sequence")
    until(lambda: monitored.retrieved.value("hrag_reader_applied_sequence") >= sequence)
    until(lambda: monitored.retrieved.value("hrag_reader_lag_seconds") == 0)
    assert monitored.retrieved.value("hrag_reader_loaded_bytes") > 0
    assert monitored.retrieved.value("hrag_reader_budget_bytes") == 4 << 30


def test_no_label_names_a_tenant_or_a_collection(monitored: Monitored, tenant: str) -> None:
    monitored.services.client.ingest(tenant, Document("Cats sleep.", "a"))
    monitored.services.client.search(tenant, "cats")
    for scrape in (monitored.indexed, monitored.retrieved):
        assert tenant not in scrape.text
        assert "sk-1" not in scrape.text


def test_a_metrics_address_in_use_stops_the_service(monitored: Monitored, tmp_path: Path) -> None:
    settings = {**FAST, "HRAG_INDEXER_METRICS_ADDRESS": monitored.indexer}
    second = Process(INDEXER, tmp_path / "other", settings)
    assert second.wait() == 1
    assert f"cannot listen on {monitored.indexer} for metrics" in second.log


# These tests compare documentation, alerts and dashboard with the served metrics.


@pytest.fixture(scope="module")
def served(monitored: Monitored) -> Mapping[str, Metric]:
    """All metrics of services and workers by name, after calls that set every metric."""
    client = monitored.services.client
    client.ingest("served", Document("".join(f"Cat {n} sleeps. " for n in range(3000)), "a"))
    list(client.answer(SearchQuery("served", "cats", filter=Match("document_id", ("a",)))))
    until(lambda: bool(monitored.retrieved["hrag_chat_tokens_total"].samples))
    until(lambda: bool(monitored.indexed["hrag_segment_build_seconds"].samples))
    with serve_metrics("127.0.0.1:0", WorkerMetrics([])) as port:
        metrics_of_workers = Scrape(f"127.0.0.1:{port}")
    return ChainMap(dict(monitored.indexed), dict(monitored.retrieved), dict(metrics_of_workers))


def _series(served: Mapping[str, Metric]) -> set[str]:
    """Returns the names of all time series of these metrics, also of series without samples."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
    return {
        f"{name}{suffix}"
        for name, family in served.items()
        for suffix in suffixes.get(family.type, ())
    }


@_ALL_METRICS
def test_the_documentation_lists_exactly_the_served_metrics(served: Mapping[str, Metric]) -> None:
    rows = re.findall(r"^\| `(hrag_\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", _MANUAL, re.MULTILINE)
    documented = {name: (kind, meaning) for name, kind, _, meaning in rows}
    ours = {name: family for name, family in served.items() if name.startswith("hrag_")}
    assert documented == {
        name: (family.type, family.documentation) for name, family in ours.items()
    }
    for name, _, labels, _ in rows:
        written = set(filter(None, labels.split(", ")))
        for sample in ours[name].samples:
            assert sample.labels.keys() - {"le"} == written, name


def _expressions() -> dict[str, str]:
    """Returns the PromQL expressions of alerts and dashboard panels by the name of each."""
    rules = yaml.safe_load((_OPERATIONS / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    panels = json.loads((_OPERATIONS / "dashboard.json").read_text("utf-8"))["panels"]
    queried = {rule["alert"]: rule["expr"] for rule in rules}
    for panel in panels:
        for target in panel.get("targets", ()):
            queried[f"{panel['title']} {target['refId']}"] = target["expr"]
    return queried


@_ALL_METRICS
@pytest.mark.parametrize(("name", "expression"), _expressions().items())
def test_alerts_and_panels_query_existing_series(
    name: str, expression: str, served: Mapping[str, Metric]
) -> None:
    queried = set(re.findall(r"\b(?:hrag|process)_\w+", expression))
    assert queried or "up{" in expression
    assert queried <= _series(served)
    known = {label for family in served.values() for s in family.samples for label in s.labels}
    matched = re.findall(r"[{,](\w+)(?:=~|!~|!=|=)", expression)
    grouped = ", ".join(re.findall(r"by \((.*?)\)", expression)).split(", ")
    assert {*matched, *filter(None, grouped)} <= known | {"job", "instance"}


def test_the_runbook_has_a_section_for_each_alert() -> None:
    sections = re.findall(r"^## (Hrag\w+)$", (_OPERATIONS / "alerts.md").read_text("utf-8"), re.M)
    assert sections == [name for name in _expressions() if name.startswith("Hrag")]


def test_every_critical_condition_is_in_an_alert_or_panel() -> None:
    queried = " ".join(_expressions().values())
    for series in ("up", "code", "lag_seconds", "tail_leaves", "damaged_segments", "disk_free"):
        assert series in queried
    names = [name for name in _expressions() if name.startswith("Hrag")]
    assert len(names) == len(set(names)) >= 9


@pytest.mark.slow
def test_the_metrics_of_workers_are_served_at_one_address(data_dir: Path) -> None:
    settings, _, address = _monitored_settings({"HRAG_WORKERS": "2"})
    with running(data_dir, settings) as services:
        services.client.ingest("t", Document("Cats sleep.", "a"))
        until(lambda: Scrape(address).value("hrag_workers_serving") == 2)
        searches = 20
        for _ in range(searches):
            with services.new_client() as client:
                client.search("t", "cats")
        scrape = _scrape_of_both(address)
        assert scrape.value("hrag_calls_total", method="Search", code="OK") == searches
        if is_embedded():
            assert scrape.value("hrag_reader_budget_bytes") == 4 << 30
        until(lambda: _serving_after_kill(services.retriever, address) == 1)
        until(lambda: Scrape(address).value("hrag_workers_serving") == 2)


def _scrape_of_both(address: str) -> Scrape:
    """Returns a scrape with the metrics of both workers.

    The metrics of a worker that does not answer within two seconds are missing in a scrape.
    """
    scrapes: list[Scrape] = []

    def has_both() -> bool:
        scrapes[:] = [Scrape(address)]
        lags = scrapes[0].get("hrag_reader_lag_seconds")
        return lags is not None and {s.labels["worker"] for s in lags.samples} == {"0", "1"}

    until(has_both)
    return scrapes[0]


def _serving_after_kill(retriever: Process, address: str) -> float:
    """Kills a worker if both run; returns how many serve. A killed worker is soon replaced."""
    if len(workers := retriever.children) == 2:
        os.kill(min(workers), signal.SIGKILL)
    return Scrape(address).value("hrag_workers_serving")
