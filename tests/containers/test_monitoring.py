"""In the profile `monitoring`, Prometheus scrapes both services and loads all alert rules.

The tests start Debian's package of Prometheus instead of its image. Debian has no package of
Grafana, so only Grafana's files are checked.
"""

import json
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from hrag.cli.processes import INDEXER
from tests.containers.engine import COMPOSE_FILE, ROOT, eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

HERE = ROOT / "tests" / "containers" / "prometheus"
MONITORING = ROOT / "deploy" / "monitoring"
IMAGE = "hrag-test-prometheus"


def _yaml(path):
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def prometheus(stack):
    """A function that queries Prometheus, which runs as with `--profile monitoring`."""
    stack.engine.build(HERE, IMAGE)
    engine = stack.engine.extended(
        str(HERE / "compose.yml"),
        COMPOSE_PROFILES="monitoring",
    )
    address = f"http://127.0.0.1:{engine.env['HRAG_PROMETHEUS_PORT']}"

    def ask(call, **parameters):
        with urlopen(f"{address}/api/v1/{call}?{urlencode(parameters)}", timeout=60) as reply:
            return json.load(reply)["data"]

    engine.up("prometheus")
    try:
        yield ask
    finally:
        engine.stop("prometheus")


def _reached_services(prometheus):
    """Returns, by the name of each service, `1` if Prometheus reaches the service, else `0`.

    Services that Prometheus has never tried to scrape are missing.
    """
    try:
        series = prometheus("query", query="up")["result"]
    except OSError:
        # Prometheus is starting.
        return {}
    return {entry["metric"]["job"]: entry["value"][1] for entry in series}


def test_prometheus_scrapes_both_services_and_loads_all_rules(prometheus):
    both = {"hrag-indexer": "1", "hrag-retriever": "1"}
    eventually(lambda: _reached_services(prometheus) == both, "both services are scraped")
    (group,) = prometheus("rules")["groups"]
    documented = _yaml(ROOT / "docs" / "operations" / "alerts.yml")["groups"][0]["rules"]
    assert [rule["name"] for rule in group["rules"]] == [rule["alert"] for rule in documented]
    eventually(
        lambda: all(r["health"] == "ok" for r in prometheus("rules")["groups"][0]["rules"]),
        "all rules are evaluated",
    )
    for metric in ("hrag_store_sequence", "hrag_reader_applied_sequence", "hrag_threads"):
        assert prometheus("query", query=metric)["result"], metric


def _down(prometheus):
    """Returns the jobs for which the alert HragDown is pending."""
    labels = [alert["labels"] for alert in prometheus("alerts")["alerts"]]
    return [label["job"] for label in labels if label["alertname"] == "HragDown"]


def test_an_alert_is_pending_for_a_service_that_is_down(stack, prometheus):
    stack.engine.stop(INDEXER.name)
    try:
        eventually(
            lambda: _reached_services(prometheus).get("hrag-indexer") == "0",
            "the indexer is missed",
        )
        eventually(lambda: _down(prometheus), "the alert is pending")
        assert _down(prometheus) == ["hrag-indexer"]
    finally:
        stack.engine.up()
        stack.wait_until_serving()


def test_grafana_is_provisioned_with_data_source_and_dashboard():
    services = _yaml(ROOT / COMPOSE_FILE)["services"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    (source,) = _yaml(MONITORING / "datasource.yml")["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    (provider,) = _yaml(MONITORING / "dashboards.yml")["providers"]
    folder = provider["options"]["path"]
    assert mounted["./docs/operations/dashboard.json"] == f"{folder}/hrag.json"
    for file, kind in (("datasource", "datasources"), ("dashboards", "dashboards")):
        target = mounted[f"./deploy/monitoring/{file}.yml"]
        assert target == f"/etc/grafana/provisioning/{kind}/hrag.yml"
    assert all((ROOT / path).exists() for path in mounted if path.startswith("./"))
    (chosen,) = (
        variable
        for variable in json.loads((ROOT / "docs/operations/dashboard.json").read_text("utf-8"))[
            "templating"
        ]["list"]
        if variable["type"] == "datasource"
    )
    assert chosen["query"] == source["type"]
