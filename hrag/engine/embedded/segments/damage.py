"""Damage reports from a reader, which cannot write to LMDB, to the writer's process.

A reader that finds a listed segment damaged creates the empty file `<segment>.damaged`
beside it. The scrubber of the writer's process reads these markers and verifies the
segments. A damaged segment is rebuilt. A sound one loses its marker: what the reader met
was transient, so readers read the segment again.
"""

import os
from pathlib import Path

from hrag.engine.embedded.segments import segment_files
from hrag.host.private_files import FILE_MODE

MARKER = ".damaged"


def report_damage(folder: Path, segment_id: int) -> None:
    """Creates the segment's marker. Raises OSError; the caller logs it."""
    segment_files.path_of(folder, segment_id).with_suffix(MARKER).touch(FILE_MODE)


def reported_damage(folder: Path) -> set[int]:
    """Returns the ids of the segments that have a marker."""
    with os.scandir(folder) as entries:
        markers = [Path(each.name) for each in entries if each.name.endswith(MARKER)]
    return {int(marker.stem) for marker in markers if marker.stem.isdecimal()}


def is_reported(folder: Path, segment_id: int) -> bool:
    """Whether the segment has a marker. Raises OSError if that cannot be seen."""
    return segment_files.path_of(folder, segment_id).with_suffix(MARKER).exists()


def forget_damage(folder: Path, segment_id: int) -> None:
    """Deletes the segment's marker, if there is one."""
    segment_files.path_of(folder, segment_id).with_suffix(MARKER).unlink(missing_ok=True)
