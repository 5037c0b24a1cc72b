"""What a transfer has done, for who shows it while it runs and when it has ended."""

from dataclasses import dataclass

from hrag.engine.transfer.transfer_catalog import Difference

MAX_DIFFERENCES = 1000
"""How many differences a report names; it counts all."""


class TransferProgress:
    """How far a transfer is. Written by its thread, read by any.

    `step` is `copying` or `comparing`, `collection` is `tenant/name`. Of `total` documents,
    `done` were read in this step. `copied`, `replaced` and `present` count documents of the
    source: written anew, in place of another version, there already and the same.
    """

    def __init__(self) -> None:
        self.step = ""
        self.collection = ""
        self.total = 0
        self.done = 0
        self.copied = 0
        self.replaced = 0
        self.present = 0

    def begin(self, step: str, total: int) -> None:
        """Starts to count a step's documents."""
        self.step, self.total, self.done = step, total, 0


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What was copied and compared; `differences` are the first MAX_DIFFERENCES of all.

    `documents` of `collections` were compared. `replaced` and `present` are documents that the
    target had before. Source and target are the same if `difference_count` is 0.
    """

    collections: int
    documents: int
    copied: int
    replaced: int
    present: int
    difference_count: int
    differences: tuple[Difference, ...]
