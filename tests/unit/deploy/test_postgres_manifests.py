"""The files that deploy the engine on PostgreSQL limit and isolate the containers.

The tests read these files and need no container engine.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hrag.config import METRICS_WORDS, PLAINTEXT_WORDS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
SCRIPT = DEPLOY / "postgres" / "make-secrets"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "postgres.yml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFEST = (DEPLOY / "kubernetes-postgres.yaml").read_text("utf-8")
DOCUMENTS: dict[tuple[str, str], Any] = {
    (document["kind"], document["metadata"]["name"]): document["spec"]
    for document in yaml.safe_load_all(MANIFEST)
}
PODS: dict[str, Any] = {
    name: spec["template"]["spec"]
    for (kind, name), spec in DOCUMENTS.items()
    if kind in ("Job", "Deployment")
}
PUBLISHED = ("indexer", "retriever-1", "retriever-2")
ACKNOWLEDGEMENTS = {
    "HRAG_INSECURE_PLAINTEXT": PLAINTEXT_WORDS,
    "HRAG_INSECURE_METRICS": METRICS_WORDS,
}

_UNITS = {"m": 1 << 20, "g": 1 << 30, "M": 1 << 20, "G": 1 << 30, "MB": 1 << 20, "GB": 1 << 30}


def _bytes(size: str) -> int:
    match = re.fullmatch(r"(\d+)(\w+)", size)
    assert match is not None
    return int(match[1]) * _UNITS[match[2]]


def _variables(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_bounded_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert "/tmp:size=64m,mode=1777" in service["tmpfs"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert not service["user"].startswith(("0", "root"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_services_wait_for_the_schema_and_are_published_on_this_machine(name: str) -> None:
    service = SERVICES[name]
    assert service["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert ACKNOWLEDGEMENTS.items() <= service["environment"].items()
    assert "test" in service["healthcheck"]
    assert "ports" not in SERVICES["postgres"]


def test_a_parallel_index_build_has_shared_memory() -> None:
    database = SERVICES["postgres"]
    settings = dict(option[2:].split("=", 1) for option in database["command"][1:])
    work = _bytes(settings["maintenance_work_mem"])
    memory = _bytes(database["deploy"]["resources"]["limits"]["memory"])
    assert work < _bytes(database["shm_size"])
    assert work + _bytes(settings["shared_buffers"]) < memory


def test_passwords_are_in_files_outside_of_the_repository() -> None:
    for name, service in SERVICES.items():
        variables = [name for name in service.get("environment", {}) if "PASSWORD" in name]
        assert variables == (["POSTGRES_PASSWORD_FILE"] if name == "postgres" else [])
        for volume in service["volumes"]:
            if ":/secrets/" in volume:
                assert volume.startswith("${HRAG_POSTGRES_SECRETS")
    assert "password=" not in MANIFEST.replace("password=...", "")
    assert not [kind for kind, _ in DOCUMENTS if kind == "Secret"]


def test_the_script_makes_every_secret_that_compose_mounts() -> None:
    mounted = {
        volume.split("}/")[-1].partition(":")[0]
        for service in SERVICES.values()
        for volume in service["volumes"]
        if ":/secrets/" in volume
    }
    assert mounted == {"superuser", "owner", "service", "owner.pgpass", "service.pgpass"}
    script = SCRIPT.read_text("utf-8")
    assert all(name in script for name in mounted)
    assert SCRIPT.stat().st_mode & 0o111


@pytest.mark.parametrize("name", PODS)
def test_every_pod_is_bounded_and_unprivileged(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    limited = {"cpu", "memory", "ephemeral-storage"}
    assert container["resources"]["limits"].keys() == limited
    assert container["resources"]["requests"].keys() == limited
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("name", ["hrag-indexer", "hrag-retriever"])
def test_a_busy_service_is_not_restarted_soon(name: str) -> None:
    (container,) = PODS[name]["containers"]
    liveness, readiness = container["livenessProbe"], container["readinessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120
    assert readiness["periodSeconds"] * 3 <= 15
    assert ACKNOWLEDGEMENTS.items() <= _variables(container).items()


def test_every_pod_reads_the_address_of_its_database_from_a_secret() -> None:
    secrets = {}
    for name, pod in PODS.items():
        (container,) = pod["containers"]
        variables = _variables(container)
        assert variables["HRAG_ENGINE"] == "postgres"
        assert variables["HRAG_POSTGRES_DSN"] == "service=hrag"
        assert variables["PGSERVICEFILE"] == "/database/pg_service.conf"
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "database")
        secrets[name] = volume["secret"]["secretName"]
    assert secrets.pop("hrag-migrate") == "hrag-database-owner"
    assert set(secrets.values()) == {"hrag-database"}


def test_two_retrievers_are_on_two_nodes_and_one_always_runs() -> None:
    retrievers = DOCUMENTS["Deployment", "hrag-retriever"]
    labels = retrievers["template"]["metadata"]["labels"]
    assert retrievers["replicas"] == 2
    (rule,) = PODS["hrag-retriever"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"].items() <= labels.items()
    budget = DOCUMENTS["PodDisruptionBudget", "hrag-retriever"]
    assert budget["minAvailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", ["hrag-indexer", "hrag-retriever"])
def test_each_address_leads_to_one_kind_of_service(name: str) -> None:
    service, deployment = DOCUMENTS["Service", name], DOCUMENTS["Deployment", name]
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == labels
    (container,) = PODS[name]["containers"]
    (port,) = service["ports"]
    assert port["targetPort"] in {entry["name"] for entry in container["ports"]}


def test_pods_reach_only_name_servers_and_the_database() -> None:
    policy = DOCUMENTS["NetworkPolicy", "hrag"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    allowed = [{port["port"] for port in rule["ports"]} for rule in policy["egress"]]
    assert allowed == [{53}, {5432}]
    assert all(rule["to"] for rule in policy["egress"])
    calls, metrics = policy["ingress"]
    named = {
        port["name"] for pod in PODS.values() for port in pod["containers"][0].get("ports", ())
    }
    assert {p["port"] for rule in (calls, metrics) for p in rule["ports"]} == named
