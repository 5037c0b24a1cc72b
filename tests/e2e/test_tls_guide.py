"""The commands of the guide make certificates that pass the strict verification of Python 3.13."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.client import Client
from tests.support.manuals import ROOT, blocks
from tests.support.servers.processes import FAST, START_S

ACCESS = ROOT / "docs" / "guide" / "access.md"
_STEPS = 10  # A TLS 1.3 handshake needs three flights of messages, so ten steps are enough.


def _commands() -> str:
    """Returns the commands of the guide that make the authority and the certificate."""
    (script,) = (block.text for block in blocks(ACCESS, "sh") if "openssl req" in block.text)
    return script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs the commands of the guide in a new folder and returns the folder."""
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl is not installed")
    subprocess.run(["bash", "-euo", "pipefail", "-c", _commands()], cwd=tmp_path, check=True)
    return tmp_path


def _strict_client(authority: Path) -> ssl.SSLContext:
    """Returns a context that verifies as the default context of Python 3.13 does."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _server(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "service.pem", folder / "service.key")
    return context


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Makes a TLS handshake in memory. Raises SSLError if the client refuses the certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_STEPS):
        ends = [end for end in ends if not _is_done(end)]
        if not ends:
            return
    raise AssertionError("the handshake does not end")


def _is_done(end: ssl.SSLObject) -> bool:
    """Continues a handshake. Returns False while `end` waits for data of its peer, else True."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_certificate_of_the_guide_passes_strict_verification(folder: Path, name: str) -> None:
    _shake_hands(_strict_client(folder / "authority.pem"), _server(folder), name)


def test_the_certificate_of_the_guide_is_for_its_names_only(folder: Path) -> None:
    client = _strict_client(folder / "authority.pem")
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        _shake_hands(client, _server(folder), "other.example")


def test_the_certificate_of_the_service_is_no_authority(folder: Path) -> None:
    """Strict verification refuses an authority without the right to sign certificates."""
    client = _strict_client(folder / "service.pem")
    client.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(client, _server(folder), "localhost")


def test_services_and_clients_use_the_certificate_of_the_guide(folder: Path) -> None:
    settings = {
        **FAST,
        "HRAG_TLS_CERT_FILE": str(folder / "service.pem"),
        "HRAG_TLS_KEY_FILE": str(folder / "service.key"),
    }
    indexer, retriever = free_addresses(2)
    services = ServiceProcesses(folder / "data", indexer, retriever, settings=settings)
    with services:
        services.wait_until_serving(START_S)
        with Client(indexer, retriever, ca_file=folder / "authority.pem") as client:
            assert client.server_info().embedder
    services.check_stopped_cleanly()
