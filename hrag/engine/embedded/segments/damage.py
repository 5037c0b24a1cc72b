"""Markers by which a reader reports damaged segments to the process that writes to the store.

A reader cannot write to LMDB. When a reader finds that a listed segment is damaged, it creates the
empty file `<segment>.damaged` in the folder of all segments. The scrubber of the writing process
looks for these markers and verifies the segments. A segment that is damaged is built again. If a
segment is intact, the error that the reader met was transient. Then the scrubber deletes the
marker, and readers load the segment again.
"""

import os
from pathlib import Path

from hrag.engine.embedded.segments import segment_files
from hrag.host.private_files import FILE_MODE

MARKER = ".damaged"


def report_damage(folder: Path, segment_id: int) -> None:
    """Creates the empty file `<segment>.damaged`, which reports the segment as damaged.

    `folder` is the folder of all segments. Raises OSError.
    """
    segment_files.path_of(folder, segment_id).with_suffix(MARKER).touch(FILE_MODE)


def reported_damage(folder: Path) -> set[int]:
    """Returns the ids of the segments for which a `.damaged` file exists in `folder`."""
    with os.scandir(folder) as entries:
        markers = [Path(entry.name) for entry in entries if entry.name.endswith(MARKER)]
    return {int(marker.stem) for marker in markers if marker.stem.isdecimal()}


def is_reported(folder: Path, segment_id: int) -> bool:
    """Returns True if a `.damaged` file for the segment exists in `folder`.

    Raises OSError if the folder cannot be read.
    """
    return segment_files.path_of(folder, segment_id).with_suffix(MARKER).exists()


def forget_damage(folder: Path, segment_id: int) -> None:
    """Deletes the segment's `.damaged` file, if it exists."""
    segment_files.path_of(folder, segment_id).with_suffix(MARKER).unlink(missing_ok=True)
