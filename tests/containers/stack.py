"""The running services of docker-compose.yml, with the operations that tests need."""

from dataclasses import dataclass

from hrag.cli.processes import INDEXER, RETRIEVER, Service
from hrag.cli.status import health_problem
from hrag.client import Client
from hrag.client.credentials import ClientCredentials
from hrag.errors import Unauthenticated
from hrag.server.auth import Role
from tests.containers.engine import Engine, eventually

# This program finds a service's process by its command line and kills it. Both containers see all
# processes of the shared PID namespace.
_KILL = """
import os, signal, sys
from pathlib import Path
for path in Path("/proc").glob("[0-9]*/cmdline"):
    pid = int(path.parent.name)
    if sys.argv[1].encode() in path.read_bytes().split(bytes(1)) and pid != os.getpid():
        os.kill(pid, signal.SIGKILL)
        print("killed", pid)
"""


@dataclass(frozen=True)
class Stack:
    """The running services. `token` is a key for all tenants with the role admin."""

    engine: Engine
    addresses: dict[Service, str]
    token: str = ""

    def client(self, access: ClientCredentials | None = None) -> Client:
        access = access or ClientCredentials(self.token)
        return Client(
            self.addresses[INDEXER],
            self.addresses[RETRIEVER],
            token=access.token,
            ca_file=access.ca_file,
        )

    def serves(self, service: Service, access: ClientCredentials | None = None) -> bool:
        return not health_problem(service, self.addresses[service], access or ClientCredentials())

    def wait_until_serving(self, access: ClientCredentials | None = None) -> None:
        for service in self.addresses:
            eventually(lambda s=service: self.serves(s, access), f"{service.name} serves")

    def kill(self, service: Service) -> None:
        """Sends SIGKILL to a service's process, from the container of the other service.

        `docker kill` would count as a deliberate stop, after which nothing is restarted.
        """
        other = {INDEXER: RETRIEVER, RETRIEVER: INDEXER}[service]
        done = self.engine.inside(other.name, "python3", "-c", _KILL, service.module)
        assert done.stdout.count("killed") == 1, done.stdout + done.stderr


def is_admitted(client: Client, tenant: str) -> bool:
    """Returns True if both services know the client's key. They read the key file each second."""
    try:
        client.list_collections(tenant)
        client.server_info()
    except Unauthenticated:
        return False
    return True


def new_key(stack: Stack, tenant: str = "*", role: Role = Role.ADMIN) -> str:
    """Creates a key by the documented command, and waits until both services know it."""
    done = stack.engine.keys("create", "--tenant", tenant, "--role", role.value)
    assert done.returncode == 0, done.stderr
    key = done.stdout.removesuffix("\n")
    with stack.client(ClientCredentials(key)) as client:
        eventually(
            lambda: is_admitted(client, "acme" if tenant == "*" else tenant), "the key is known"
        )
    return key
