"""With deploy/tls.yml, all connections use TLS, from other machines and between containers."""

import socket
import ssl

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client.credentials import ClientCredentials
from hrag.errors import ServiceUnavailable
from hrag.types import Document
from tests.support.servers.pki import Authority

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

# This machine has this address too, and no other program listens there.
PUBLISHED_ADDRESS = "127.0.0.2"


@pytest.fixture
def authority(tmp_path):
    """An authority that has stored a certificate in the folder that the containers mount."""
    authority = Authority(tmp_path, "authority")
    pair = authority.issue()
    pair.cert_file.rename(tmp_path / "service.pem")
    pair.key_file.rename(tmp_path / "service.key")
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o755)
    return authority


@pytest.fixture
def encrypted(stack, authority):
    settings = {
        "HRAG_PUBLISH_ADDRESS": PUBLISHED_ADDRESS,
        "HRAG_TLS_FOLDER": str(authority.ca_file.parent),
    }
    stack.engine.down()
    engine = stack.engine.extended("deploy/tls.yml", **settings)
    try:
        engine.up()
        yield engine
    finally:
        engine.down()
        stack.engine.up()
        stack.wait_until_serving()


def test_all_connections_use_tls_and_the_published_address_is_reachable(
    stack, authority, encrypted
):
    access = ClientCredentials(stack.token, ca_file=authority.ca_file)
    stack.wait_until_serving(access)
    with stack.client(access) as client:
        client.ingest("tls", Document("Cats sleep. Dogs bark.", "pets"))
        assert client.search("tls", "what do dogs do?").passages
    with stack.client() as plain, pytest.raises(ServiceUnavailable):
        plain.search("tls", "what do dogs do?", timeout_s=60)
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.set_alpn_protocols(["h2"])
    for service in (INDEXER, RETRIEVER):
        port = int(stack.addresses[service].rpartition(":")[2])
        with (
            socket.create_connection((PUBLISHED_ADDRESS, port), timeout=60) as tcp,
            context.wrap_socket(tcp, server_hostname="localhost") as wire,
        ):
            assert wire.selected_alpn_protocol() == "h2"
    for command in (("hrag", "health"), ("hrag", "status", "--tenant", "tls")):
        done = encrypted.inside("indexer", *command, token=stack.token)
        assert done.returncode == 0, done.stdout + done.stderr
