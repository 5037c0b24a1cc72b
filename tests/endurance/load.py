"""Measures how long a store's segment files take to load, in a separate process."""

import sys
import time
from pathlib import Path

from hrag.engine.embedded.maintenance.segment_build import all_collections
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store.environment import open_for_reading
from hrag.engine.embedded.store.queries import listed_segments
from tests.endurance.processes import number_from


def loading_seconds(data_dir: Path) -> float:
    """Returns the seconds that a new process takes to load all segments, one after the other."""
    return number_from(__name__, data_dir)


def _seconds(data_dir: Path) -> float:
    store = open_for_reading(data_dir)
    try:
        with store.read() as txn:
            records = [
                record
                for collection in all_collections(store)
                for record in listed_segments(txn, collection)
            ]
        began = time.perf_counter()
        for record in records:
            segment_files.load(store.segments, record)
        return time.perf_counter() - began
    finally:
        store.close()


if __name__ == "__main__":
    print(_seconds(Path(sys.argv[1])))  # noqa: T201 - the parent process reads the output
