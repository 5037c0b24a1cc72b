"""Docker Compose parses docker-compose.yml to the expected services. Nothing is started."""

import json
import os
import shutil
import subprocess

import pytest

from tests.containers.engine import ENGINE_FOLDER, ROOT

pytestmark = pytest.mark.containers

COMPOSE = ENGINE_FOLDER / "venv" / "bin" / "docker-compose"
FILE = "docker-compose.yml"
SERVICES = ("indexer", "retriever")
OUTSIDE_ADDRESS = "192.0.2.7"


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
def all_services():
    return _read("--profile", "*")["services"]


def test_profiles_add_keys_http_and_monitoring(all_services):
    default, monitoring = {"namespaces", *SERVICES}, {"prometheus", "grafana"}
    assert _read()["services"].keys() == default
    assert _read("--profile", "http")["services"].keys() == default | {"gateway"}
    assert _read("--profile", "monitoring")["services"].keys() == default | monitoring
    assert all_services.keys() == default | monitoring | {"gateway", "keys"}


def test_both_services_share_the_store_and_the_namespaces(all_services):
    for name in SERVICES:
        service = all_services[name]
        assert service["pid"] == service["network_mode"] == "service:namespaces"
        assert service["environment"]["HRAG_AUTH"] == "api_key"
        mounts = {volume["target"]: volume for volume in service["volumes"]}
        assert mounts["/data"]["source"] == "store"
        assert mounts["/keys"]["read_only"]


def test_every_container_has_limits_and_no_privileges(all_services):
    for name, service in all_services.items():
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory", "pids"} <= limits.keys(), name
        assert service["tmpfs"] == ["/tmp:size=64m,mode=1777"]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["logging"]["options"] == {"max-file": "5", "max-size": "10m"}
        assert service["restart"] == ("no" if name == "keys" else "unless-stopped")


def test_ports_are_published_on_loopback_only(all_services):
    published = [port for service in all_services.values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}
    assert {port["target"] for port in published} == {50051, 50052, 8080, 9090, 3000}


def test_images_from_registries_are_pinned(all_services):
    for name in ("prometheus", "grafana"):
        tag = all_services[name]["image"].partition("@")[0].rpartition(":")[2]
        assert tag.lstrip("v").count(".") == 2


def test_the_keys_may_be_in_a_host_folder(tmp_path):
    folder = str(tmp_path)
    for service in _read("--profile", "keys", HRAG_KEYS=folder)["services"].values():
        mounts = {volume["target"]: volume for volume in service.get("volumes", ())}
        assert "/keys" not in mounts or mounts["/keys"]["source"] == folder


def test_tls_needs_an_address_to_publish():
    files = ("-f", FILE, "-f", "deploy/tls.yml")
    services = _read(*files, HRAG_PUBLISH_ADDRESS=OUTSIDE_ADDRESS)["services"]
    published = {(port["host_ip"], port["target"]) for port in services["namespaces"]["ports"]}
    addresses = ("127.0.0.1", OUTSIDE_ADDRESS)
    assert published == {(address, port) for address in addresses for port in (50051, 50052)}
    for name in SERVICES:
        assert services[name]["environment"]["HRAG_TLS_CERT_FILE"] == "/tls/service.pem"
    with pytest.raises(AssertionError, match="HRAG_PUBLISH_ADDRESS"):
        _read(*files)


def test_a_copy_of_the_example_changes_no_path_and_no_protection(tmp_path):
    """A copy of `.env.example` as `.env` changes no path and no protection.

    The copy must have no comment after an empty value, because Compose would read the comment as
    the value.
    """
    shutil.copy(ROOT / FILE, tmp_path)
    shutil.copy(ROOT / ".env.example", tmp_path / ".env")
    copied = _read(folder=tmp_path)["services"]
    default = _read()["services"]
    for name in SERVICES:
        settings = copied[name]["environment"]
        assert not [setting for setting in settings.items() if setting[1].startswith("#")]
        assert default[name]["environment"].items() <= settings.items()
        assert {**copied[name], "environment": 0} == {**default[name], "environment": 0}


def test_the_file_for_postgres_is_valid_for_compose():
    services = _read("--file", "deploy/postgres.yml", HRAG_POSTGRES_SECRETS="/secrets")["services"]
    assert services.keys() == {"postgres", "migrate", "indexer", "retriever-1", "retriever-2"}
    for name, service in services.items():
        ports = [port["host_ip"] for port in service.get("ports", ())]
        assert set(ports) <= {"127.0.0.1"}, name
