"""Checks in a child process that every page of a store's file can be read.

If pages are missing at the end of the file, reading them kills the process with SIGBUS, which
Python cannot catch. So `every_page_is_readable` runs this module as a separate program:

    python -m hrag.engine.embedded.store.page_probe DIRECTORY [--lock]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hrag.engine.embedded.store import child_process, schema
from hrag.engine.embedded.store.lmdb_file import open_database, open_lmdb

_MODULE = "hrag.engine.embedded.store.page_probe"


def every_page_is_readable(directory: Path, *, lock: bool) -> bool:
    """Returns True if a child process could read all pages of the store in `directory`.

    With `lock`, the child registers in LMDB's table of readers. It must register if another process
    may be writing to the store.
    """
    probe = child_process.run_module(_MODULE, str(directory.absolute()), *["--lock"] * lock)
    return probe.returncode == 0


def read_every_page(directory: Path, *, lock: bool) -> None:
    """Reads the last byte of every value in every database.

    If the file ends before a page that is in use, the kernel kills this process.
    """
    with open_lmdb(directory, readonly=True, lock=lock) as env:
        databases = [open_database(env, name) for name in schema.DATABASES]
        with env.begin(buffers=True) as txn:
            for database in databases:
                for _, value in txn.cursor(db=database):
                    bytes(value[-1:])


def main(arguments: Sequence[str]) -> None:
    """Reads every page of the store in the folder that the arguments name."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--lock", action="store_true")
    parsed = parser.parse_args(arguments)
    read_every_page(parsed.directory, lock=parsed.lock)


if __name__ == "__main__":
    main(sys.argv[1:])
