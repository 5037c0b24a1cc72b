"""Transfers a store to another one; the process kills itself with SIGKILL at a given point.

The arguments are the address of the source, the address of the target, the name of the point, and
n. The process kills itself when it reaches the point for the n-th time. An address is a folder, or
the DSN of a store in PostgreSQL in the form `key=value ...`. The point is a failpoint of the
embedded engine, or one of `tests.crash.statements.POINTS`.
"""

import sys
from contextlib import closing
from pathlib import Path

from hrag.config import EngineSettings
from hrag.engine import Engine, open_engine
from hrag.engine.transfer import copier
from hrag.engine.transfer.transfer import transfer
from hrag.engine.transfer.transfer_report import TransferProgress, TransferReport
from tests.crash import statements
from tests.crash.indexer_at_point import install


def engine_of(address: str) -> Engine:
    """Opens the engine of the store with this address."""
    settings: dict[str, object] = {"data_dir": Path(address)}
    if "=" in address:
        settings = {"engine": "postgres", "postgres_dsn": address}
    return open_engine(EngineSettings().model_copy(update=settings))


def transferred(source: str, target: str) -> TransferReport:
    """Transfers a store; returns the report.

    A commit has at most three documents, so that few documents take several commits.
    """
    copier.GROUP_DOCUMENTS = 3
    with closing(engine_of(source)) as source_engine, closing(engine_of(target)) as target_engine:
        writer, existing = target_engine.writer(), target_engine.reader()
        return transfer(source_engine.reader(), writer, existing, TransferProgress())


def main(source: str, target: str, point: str, at: str) -> None:
    if point in statements.POINTS:
        statements.end_at_commit(point, int(at))
    else:
        install(point, int(at), armed=Path("/"))
    transferred(source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
