"""The image, the compose file and the Kubernetes manifest limit and isolate the containers.

The tests read these files and need no container engine.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hrag.config import METRICS_WORDS, PLAINTEXT_WORDS

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
KUBERNETES: dict[str, Any] = {
    document["kind"]: document["spec"]
    for document in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text("utf-8"))
}
POD: dict[str, Any] = KUBERNETES["StatefulSet"]["template"]["spec"]
CONTAINERS: dict[str, Any] = {container["name"]: container for container in POD["containers"]}
SERVICES = ("indexer", "retriever")
DIGEST = re.compile(r"[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}")

_UNITS = {"M": 1 << 20, "G": 1 << 30, "Mi": 1 << 20, "Gi": 1 << 30}


def _bytes(size: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w+)", size).groups()
    return int(number) * _UNITS[unit]


def test_all_stages_have_one_base_image_by_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert DIGEST.fullmatch(base)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}"}


def test_everything_that_the_image_installs_from_a_registry_is_hashed() -> None:
    commands = re.split(r"&&|\n(?=[A-Z])", DOCKERFILE.replace("\\\n", " "))
    pip_commands = [text for text in commands if re.search(r"/pip .*\b(install|wheel)\b", text)]
    assert len(pip_commands) == 5
    for command in pip_commands:
        assert "--require-hashes" in command or "--no-index" in command


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_container_is_bounded(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert service["tmpfs"] == ["/tmp:size=64m,mode=1777"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]


def test_prometheus_is_pinned_by_digest() -> None:
    assert DIGEST.fullmatch(COMPOSE["services"]["prometheus"]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_of_the_pod_is_bounded_and_unprivileged(name: str) -> None:
    container = CONTAINERS[name]
    limited = {"cpu", "memory", "ephemeral-storage"}
    assert container["resources"]["limits"].keys() == limited
    assert container["resources"]["requests"].keys() == limited
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not POD["automountServiceAccountToken"]


def test_temporary_files_of_the_pod_are_bounded() -> None:
    temporary = {
        volume["name"]: volume["emptyDir"] for volume in POD["volumes"] if "emptyDir" in volume
    }
    mounted = {
        mount["name"]
        for container in CONTAINERS.values()
        for mount in container["volumeMounts"]
        if mount["mountPath"] == "/tmp"
    }
    assert mounted == temporary.keys()
    assert all(_bytes(folder["sizeLimit"]) <= 64 << 20 for folder in temporary.values())


@pytest.mark.parametrize("name", SERVICES)
def test_a_busy_service_is_not_restarted_soon(name: str) -> None:
    liveness, readiness = (CONTAINERS[name][f"{kind}Probe"] for kind in ("liveness", "readiness"))
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120
    assert readiness["periodSeconds"] * 3 <= 15


def test_the_indexer_has_memory_for_its_parsers() -> None:
    """The indexer needs 4 GiB, and each of its two parsers needs 512 MiB."""
    needed = (4 << 30) + 2 * (512 << 20)
    limits = COMPOSE["services"]["indexer"]["deploy"]["resources"]["limits"]
    assert _bytes(limits["memory"]) >= needed
    assert _bytes(CONTAINERS["indexer"]["resources"]["limits"]["memory"]) >= needed


def test_the_network_policy_separates_calls_from_metrics_and_forbids_the_rest() -> None:
    policy = KUBERNETES["NetworkPolicy"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["egress"] == []
    calls, metrics = policy["ingress"]
    assert calls["from"] == [{"podSelector": {}}]
    assert {port["port"] for port in calls["ports"]} == set(SERVICES)
    assert "namespaceSelector" in metrics["from"][0]
    named = {p["name"] for container in CONTAINERS.values() for p in container["ports"]}
    assert {p["port"] for rule in policy["ingress"] for p in rule["ports"]} == named
    labels = KUBERNETES["StatefulSet"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_acknowledgements_are_those_that_the_services_read() -> None:
    expected = {
        "HRAG_INSECURE_PLAINTEXT": PLAINTEXT_WORDS,
        "HRAG_INSECURE_METRICS": METRICS_WORDS,
    }
    for name in SERVICES:
        variables = {entry["name"]: entry["value"] for entry in CONTAINERS[name]["env"]}
        assert expected.items() <= variables.items()
        assert expected.items() <= COMPOSE["services"][name]["environment"].items()
