"""Docker Compose parses docker-compose.yml to the expected services. Nothing is started."""

import json
import os
import shutil
import subprocess

import pytest

from tests.containers.engine import OWN, ROOT

pytestmark = pytest.mark.containers

COMPOSE = OWN / "venv" / "bin" / "docker-compose"
FILE = "docker-compose.yml"
SERVICES = ("indexer", "retriever")
OTHERS_REACH = "192.0.2.7"


def _read(*options, folder=ROOT, **settings):
    assert COMPOSE.exists(), "no Docker Compose; run tests/containers/prepare"
    done = subprocess.run(
        [COMPOSE, *options, "config", "--format", "json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def everything():
    return _read("--profile", "*")["services"]


def test_profiles_add_keys_http_and_monitoring(everything):
    usual, monitoring = {"namespaces", *SERVICES}, {"prometheus", "grafana"}
    assert _read()["services"].keys() == usual
    assert _read("--profile", "http")["services"].keys() == usual | {"gateway"}
    assert _read("--profile", "monitoring")["services"].keys() == usual | monitoring
    assert everything.keys() == usual | monitoring | {"gateway", "keys"}


def test_both_services_share_store_and_namespaces(everything):
    for name in SERVICES:
        service = everything[name]
        assert service["pid"] == service["network_mode"] == "service:namespaces"
        assert service["environment"]["HRAG_AUTH"] == "api_key"
        mounts = {volume["target"]: volume for volume in service["volumes"]}
        assert mounts["/data"]["source"] == "store"
        assert mounts["/keys"]["read_only"]


def test_every_container_has_limits_and_no_privileges(everything):
    for name, service in everything.items():
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory", "pids"} <= limits.keys(), name
        assert service["tmpfs"] == ["/tmp:size=64m,mode=1777"]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["logging"]["options"] == {"max-file": "5", "max-size": "10m"}
        assert service["restart"] == ("no" if name == "keys" else "unless-stopped")


def test_ports_are_published_on_loopback_only(everything):
    published = [port for service in everything.values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}
    assert {port["target"] for port in published} == {50051, 50052, 8080, 9090, 3000}


def test_images_from_registries_are_pinned(everything):
    for name in ("prometheus", "grafana"):
        tag = everything[name]["image"].partition("@")[0].rpartition(":")[2]
        assert tag.lstrip("v").count(".") == 2


def test_the_keys_may_be_in_a_host_folder(tmp_path):
    folder = str(tmp_path)
    for service in _read("--profile", "keys", HRAG_KEYS=folder)["services"].values():
        mounts = {volume["target"]: volume for volume in service.get("volumes", ())}
        assert "/keys" not in mounts or mounts["/keys"]["source"] == folder


def test_tls_needs_an_address_to_publish():
    files = ("-f", FILE, "-f", "deploy/tls.yml")
    services = _read(*files, HRAG_PUBLISH_ADDRESS=OTHERS_REACH)["services"]
    published = {(port["host_ip"], port["target"]) for port in services["namespaces"]["ports"]}
    addresses = ("127.0.0.1", OTHERS_REACH)
    assert published == {(address, port) for address in addresses for port in (50051, 50052)}
    for name in SERVICES:
        assert services[name]["environment"]["HRAG_TLS_CERT_FILE"] == "/tls/service.pem"
    with pytest.raises(AssertionError, match="HRAG_PUBLISH_ADDRESS"):
        _read(*files)


def test_a_copy_of_the_example_changes_no_path_and_no_protection(tmp_path):
    """Compose reads a comment after an empty value as the value."""
    shutil.copy(ROOT / FILE, tmp_path)
    shutil.copy(ROOT / ".env.example", tmp_path / ".env")
    copied = _read(folder=tmp_path)["services"]
    usual = _read()["services"]
    for name in SERVICES:
        settings = copied[name]["environment"]
        assert not [setting for setting in settings.items() if setting[1].startswith("#")]
        assert usual[name]["environment"].items() <= settings.items()
        assert {**copied[name], "environment": 0} == {**usual[name], "environment": 0}


def test_the_file_for_postgres_is_valid_for_compose():
    services = _read("--file", "deploy/postgres.yml", HRAG_POSTGRES_SECRETS="/secrets")["services"]
    assert services.keys() == {"postgres", "migrate", "indexer", "retriever-1", "retriever-2"}
    for name, service in services.items():
        ports = [port["host_ip"] for port in service.get("ports", ())]
        assert set(ports) <= {"127.0.0.1"}, name
