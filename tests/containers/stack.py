"""The services of docker-compose.yml, for tests."""

import time
from dataclasses import dataclass

from hrag.cli.processes import INDEXER, RETRIEVER, Service
from hrag.cli.status import is_serving
from hrag.client import Client
from hrag.client.credentials import Access
from hrag.server.auth import Role
from tests.containers.engine import Engine, eventually

NOTICED_S = 1.2  # Services check the key file once a second.
# Found by its command line; both containers see all processes of the shared namespace.
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
    """The running stack; `token` is a key for all tenants with the role admin."""

    engine: Engine
    addresses: dict[Service, str]
    token: str = ""

    def client(self, access: Access | None = None) -> Client:
        access = access or Access(self.token)
        return Client(
            self.addresses[INDEXER],
            self.addresses[RETRIEVER],
            token=access.token,
            ca_file=access.ca_file,
        )

    def serves(self, service: Service, access: Access | None = None) -> bool:
        return is_serving(service, self.addresses[service], access or Access())

    def wait_until_serving(self, access: Access | None = None) -> None:
        for service in self.addresses:
            eventually(lambda s=service: self.serves(s, access), f"{service.name} serves")

    def kill(self, service: Service) -> None:
        """SIGKILL to a service's process, sent from the other's container.

        Not `docker kill`, which counts as a stop that was wanted: nothing restarts then.
        """
        other = {INDEXER: RETRIEVER, RETRIEVER: INDEXER}[service]
        done = self.engine.inside(other.name, "python3", "-c", _KILL, service.module)
        assert done.stdout.count("killed") == 1, done.stdout + done.stderr


def new_key(engine: Engine, tenant: str = "*", role: Role = Role.ADMIN) -> str:
    """Creates a key by the documented command, and waits until the services have loaded it."""
    done = engine.keys("create", "--tenant", tenant, "--role", role.value)
    assert done.returncode == 0, done.stderr
    time.sleep(NOTICED_S)
    return done.stdout.removesuffix("\n")
