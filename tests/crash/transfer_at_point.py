"""A transfer between two stores, which ends itself by SIGKILL at a named point.

Arguments: the addresses of source and target, the point, and at which reach of it. An address
is a folder, or the DSN of a store in PostgreSQL as keywords. The point is a failpoint of the
embedded engine, or one of `tests.crash.statements`.
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
    """The engine of a store, by its address."""
    own: dict[str, object] = {"data_dir": Path(address)}
    if "=" in address:
        own = {"engine": "postgres", "postgres_dsn": address}
    return open_engine(EngineSettings().model_copy(update=own))


def transferred(source: str, target: str) -> TransferReport:
    """Transfers with small groups, so that few documents take several commits."""
    copier.GROUP_DOCUMENTS = 3
    one, other = engine_of(source), engine_of(target)
    with closing(one), closing(other):
        reader, writer, existing = one.reader(), other.writer(), other.reader()
        return transfer(reader, writer, existing, TransferProgress())


def main(source: str, target: str, point: str, at: str) -> None:
    if point in statements.POINTS:
        statements.end_at_commit(point, int(at))
    else:
        install(point, int(at), armed=Path("/"))
    transferred(source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
